"""The same models built from PyG's own layers, trained by PyG's own autograd."""

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GCN2Conv, GCNConv

import lmc
from estimating import full_gradient, gcn, gcnii, graph_of


def pyg_of(graph):
    """PyG counts repeated edges in float32 unless told otherwise."""
    data = graph.to_pyg()
    if graph.edge_weight is not None:
        data.edge_weight = graph.edge_weight.double()
    return data


def pyg_gcn(model, data, options):
    """The prediction of our GCN by PyG's GCNConv, and its leaves under the names of our parameters."""
    leaves = {}

    def parameters(prefix):
        for name in (f"{prefix}.weight", f"{prefix}.bias"):
            leaves[name] = torch.nn.Parameter(model.get_parameter(name).detach().clone())
        return leaves[f"{prefix}.weight"], leaves[f"{prefix}.bias"]

    def conv(place, h):
        weight, bias = parameters(f"layers.{place}.linear")
        made = GCNConv(*weight.T.shape).double()
        made.lin.weight, made.bias = weight, bias
        return made(h, data.edge_index, data.get("edge_weight"))

    def norm(prefix, h):
        if "norm" not in options:
            return h
        weight, bias = parameters(prefix)
        if options["norm"] == "layer":
            return functional.layer_norm(h, h.shape[1:], weight, bias)
        return functional.batch_norm(h, None, None, weight, bias, training=True)

    h = data.x
    if options.get("linear_in"):
        h = functional.linear(h, *parameters("encoder.parts.1")).relu()
    for place in range(len(model.layers)):
        z = conv(place, h)
        if options.get("residual") and z.shape == h.shape:
            z = z + h
        if place + 1 < len(model.layers):
            h = norm(f"layers.{place + 1}.message.norm", z).relu()
    if options.get("linear_out"):
        z = functional.linear(norm("head.parts.0.norm", z).relu(), *parameters("head.parts.1"))
    return z, leaves


def close(one, other):
    return torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["undirected", "directed", "weighted"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "layer"},
        {"norm": "batch", "linear_out": True},
        {"residual": True, "linear_in": True},
        {"residual": True, "linear_in": True, "linear_out": True, "norm": "batch"},
    ],
)
@pytest.mark.parametrize("depth", [1, 3])
def test_gcn_has_the_predictions_and_gradients_of_pyg(depth, options, kind):
    graph, model = graph_of(kind), gcn(depth, **options)
    _, found = full_gradient(model, graph)
    data = pyg_of(graph)
    prediction, expected = pyg_gcn(model, data, options)
    assert close(model(graph), prediction)
    mask = data.train_mask
    functional.cross_entropy(prediction[mask], data.y[mask]).backward()
    assert expected.keys() == found.keys()
    for name, parameter in expected.items():
        assert close(found[name], parameter.grad), name


@pytest.mark.parametrize("kind", ["undirected", "directed", "weighted"])
@pytest.mark.parametrize("shared", [True, False])
def test_gcnii_has_the_gradients_of_pyg(shared, kind):
    graph, model = graph_of(kind), gcnii(4, alpha=0.2, theta=0.7, shared_weights=shared)
    _, found = full_gradient(model, graph)
    data = pyg_of(graph)
    encoder, head = (torch.nn.Linear(*shape).double() for shape in ((5, 6), (6, 3)))
    encoder.load_state_dict(model.encoder.parts[1].state_dict())
    head.load_state_dict(model.head.parts[1].state_dict())
    h = initial = encoder(data.x).relu()
    convs = []
    for place, layer in enumerate(model.layers, start=1):
        conv = GCN2Conv(6, alpha=0.2, theta=0.7, layer=place, shared_weights=shared).double()
        conv.weight1.data = layer.linear.weight.data.T.clone()
        if not shared:
            conv.weight2.data = layer.linear_initial.weight.data.T.clone()
        h = conv(h, initial, data.edge_index, data.get("edge_weight")).relu()
        convs.append(conv)
    mask = data.train_mask
    functional.cross_entropy(head(h)[mask], data.y[mask]).backward()
    expected = {"encoder.parts.1": encoder, "head.parts.1": head}
    for prefix, module in expected.items():
        for name, parameter in module.named_parameters():
            assert close(found[f"{prefix}.{name}"], parameter.grad)
    for place, conv in enumerate(convs):
        assert torch.allclose(
            found[f"layers.{place}.linear.weight"], conv.weight1.grad.T, rtol=1e-5, atol=1e-8
        )
        if not shared:
            assert close(found[f"layers.{place}.linear_initial.weight"], conv.weight2.grad.T)


def test_forward_in_evaluation_mode_uses_running_statistics():
    graph, model = graph_of("undirected"), gcn(2, norm="batch", dropout=0.5)
    model.eval()
    assert torch.equal(model(graph), model(graph))
    with pytest.raises(lmc.ArgumentError, match=r"dropout=1\.0: must be in \[0, 1\)"):
        lmc.GCN(5, 4, 3, dropout=1.0)
