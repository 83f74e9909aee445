"""What is hung on a model of PyG runs or is refused: hooks, norms of weights, modules in others' places."""

import copy
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch_geometric.nn import GCN2Conv, GCNConv, GINConv, Linear, SAGEConv, models

import lmc
from estimating import bound, distance, full_gradient, graph_of, settled
from pyg_models import by_pyg, make
from test_from_pyg import own_gradient, pyg_gradient


class LoRA(nn.Module):
    """A linear map beside that of two thin matrices, the second of which starts at zero."""

    def __init__(self, of):
        super().__init__()
        self.of = of
        self.down = nn.Linear(of.weight.shape[1], 2, bias=False)
        self.up = nn.Linear(2, of.weight.shape[0], bias=False)

    @property
    def weight(self):
        return self.of.weight

    @property
    def bias(self):
        return self.of.bias

    def forward(self, x):
        return self.of(x) + self.up(self.down(x))


def with_lora(model):
    for conv in model.convs:
        for name in ("lin", "lin_l", "lin_r"):
            if hasattr(conv, name):
                setattr(conv, name, LoRA(getattr(conv, name)))


def on_maps(change):
    def changed(model):
        for module in list(model.modules()):
            if type(module) in (nn.Linear, Linear):
                change(module)

    return changed


def on_convolutions(register, hook):
    def changed(model):
        for conv in model.convs:
            getattr(conv, register)(hook)

    return changed


def halved(module, *given):
    return 0.5 * given[-1]


def map_hook(model):
    for conv in model.convs:
        for part in conv.children():
            if isinstance(part, (Linear, models.MLP)):
                part.register_forward_hook(lambda module, given, out: out.tanh())


def norm_and_activation_hooks(model):
    for module in (model.norms[0], model.act, model.dropout):
        module.register_forward_hook(lambda module, given, out: out + 0.1)


def a_method(model):
    for conv in model.convs:
        conv.message = lambda x_j: x_j.sin()


CHANGES = {
    "LoRA": with_lora,
    "weight norm": on_maps(parametrizations.weight_norm),
    "spectral norm": on_maps(parametrizations.spectral_norm),
    "orthogonal": on_maps(parametrizations.orthogonal),
    "old weight norm": on_maps(weight_norm),
    "old spectral norm": on_maps(spectral_norm),
    "hook of a map": map_hook,
    "hooks between": norm_and_activation_hooks,
}
OF_CONVOLUTIONS = {
    "hook of a convolution": on_convolutions("register_forward_hook", halved),
    "hook of messages": on_convolutions("register_message_forward_hook", halved),
    "hook of sums": on_convolutions("register_aggregate_forward_hook", halved),
    "hook of propagation": on_convolutions("register_propagate_forward_hook", halved),
}
CASES = [(kind, change) for kind in ("GCN", "SAGE mean", "GIN") for change in CHANGES]
CASES += [
    ("SAGE max", "LoRA"),
    ("SAGE max", "old spectral norm"),
    ("GAT", "old weight norm"),
    ("GAT", "orthogonal"),
]
CASES += [(kind, change) for kind in ("SAGE mean", "GIN") for change in OF_CONVOLUTIONS]


def changed(kind, change):
    model = make(kind, norm="BatchNorm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its older functions
        (CHANGES | OF_CONVOLUTIONS)[change](model)
    model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "up.weight" in name:
                parameter.normal_()
    return model


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_what_is_hung_on_a_model_runs(kind, change):
    graph, model = graph_of("directed weighted"), changed(kind, change)
    by_pyg(model, graph)  # the older norms compute their weights in a call
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def restore():
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])

    expected = pyg_gradient(model, graph)
    restore()
    wrapped = lmc.from_pyg(model)
    found = own_gradient(model, bound(lmc.FullBatch(), wrapped, graph), graph.batch(range(36)))
    assert found.keys() == expected.keys()
    assert max(distance(found, expected).values()) < 1e-9
    restore()
    with torch.no_grad():
        predicted = by_pyg(model.eval(), graph)
    for rows in (7, 100):
        assert torch.allclose(
            lmc.predict(graph, wrapped, rows_at_once=rows), predicted, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("change", ["LoRA", "old weight norm", "hook of a map"])
def test_a_gcn_with_another_map_stays_exact(change):
    """Whatever maps the messages, they are added up: settled histories give the gradient."""
    model = make("GCN")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        CHANGES[change](model)
    graph, wrapped = graph_of("undirected"), lmc.from_pyg(model.double())
    _, expected = full_gradient(wrapped, graph)
    assert max(distance(settled(bound(lmc.LMC(alpha=0), wrapped, graph), graph), expected).values()) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("GCN", "old weight norm"),
        ("GCN", "spectral norm"),
        ("GCN", "LoRA"),
        ("SAGE max", "weight norm"),
        ("SAGE max", "old spectral norm"),
    ],
)
def test_it_is_trained_kept_and_resumed(kind, change, tmp_path):
    """PyG's Linear leaves weights that others are computed from out of its `state_dict`."""
    graph, options = graph_of("undirected"), {"parts": 4, "parts_per_batch": 2, "seed": 0}
    models_ = [changed(kind, change) for _ in range(2)]
    lmc.fit(graph, lmc.from_pyg(models_[0]), lmc.LMC(), epochs=4, **options)
    for epochs in (2, 4):
        resumed = lmc.from_pyg(models_[1])
        lmc.fit(graph, resumed, lmc.LMC(), epochs=epochs, out=tmp_path / "a", resume=epochs == 4, **options)
    for one, other in zip(*(model.parameters() for model in models_), strict=True):
        assert torch.equal(one, other)


def test_settings_do_not_describe_a_model_with_hooks(tmp_path):
    graph, model = graph_of("undirected"), make("SAGE max")
    for conv in model.convs:
        conv.register_forward_hook(halved)
    lmc.fit(graph, lmc.from_pyg(model), lmc.GAS(), parts=4, parts_per_batch=2, epochs=1, out=tmp_path / "a")
    with pytest.raises(lmc.ArgumentError, match="in memory"):
        _ = lmc.load_run(tmp_path / "a").model


# -- refused ----------------------------------------------------------------------------------------


def hooked(module):
    module.register_forward_hook(halved)
    return module


REFUSED = {
    "hook of a model": (
        lambda: lmc.from_pyg(hooked(make("GCN"))),
        "GCN: has hooks or methods of its own, which",
    ),
    "hook of a GCNConv": (
        lambda: lmc.GNN([hooked(GCNConv(5, 6))]),
        "layers[0] (GCNConv): has hooks or methods of its own, and no bipartite form to call it by",
    ),
    "hook of a GCN2Conv": (
        lambda: lmc.GNN([hooked(GCN2Conv(5, 0.1))]),
        "layers[0] (GCN2Conv): has hooks or methods of its own, and no bipartite form to call it by",
    ),
    "hook of a PNAConv": (
        lambda: lmc.GNN([hooked(make("PNA").convs[0])]),
        "PNAConv: has hooks or methods of its own, which would not run",
    ),
    "hook of a chain": (
        lambda: lmc.GNN([hooked(nn.Sequential(nn.ReLU(), SAGEConv(5, 6)))]),
        "layers[0] (Sequential): has hooks",
    ),
    "a method": (
        lambda: (lambda model: (a_method(model), lmc.from_pyg(model)))(make("GCN")),
        "layers[0] (GCNConv): has hooks or methods of its own",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_run_is_refused(case):
    made, message = REFUSED[case]
    with pytest.raises(lmc.ArgumentError) as error:
        made()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


LATER = {
    "a convolution": lambda model: hooked(model.convs[1]),
    "messages": lambda model: model.convs[0].register_message_forward_hook(halved),
    "a map": lambda model: hooked(model.convs[0].lin),
    "a norm of weights": lambda model: weight_norm(model.convs[0].lin),
    "another map": lambda model: setattr(model.convs[0], "lin", LoRA(model.convs[0].lin)),
    "a norm": lambda model: hooked(model.norms[0]),
    "a norm within": lambda model: hooked(model.norms[0].module),
    "an activation": lambda model: hooked(model.act),
    "dropout": lambda model: hooked(model.dropout),
    "the model": hooked,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("what", LATER)
def test_what_comes_after_wrapping_is_refused(what):
    graph, model = graph_of("undirected"), make("GCN", norm="BatchNorm", dropout=0.5)
    wrapped = lmc.from_pyg(model)
    lmc.predict(graph, wrapped)
    LATER[what](model)
    for use in (lambda: lmc.predict(graph, wrapped), lambda: lmc.LMC().bind(wrapped, graph)):
        with pytest.raises(
            lmc.ArgumentError, match=r"has hooks or methods|was (changed|replaced) after it was wrapped"
        ):
            use()


def test_hooks_of_what_is_called_may_come_later():
    graph, model = graph_of("undirected"), make("SAGE max")
    wrapped = lmc.from_pyg(model)
    for conv in model.convs:
        hooked(conv)
    with torch.no_grad():
        expected = by_pyg(model.eval(), graph)
    assert torch.allclose(lmc.predict(graph, wrapped), expected, rtol=1e-9)


def test_a_subclass_of_a_fused_module_is_called():
    class Shifted(nn.ReLU):
        def forward(self, x):
            return super().forward(x) + 1

    graph, conv = graph_of("undirected"), SAGEConv(5, 3).double()
    plain, shifted = (lmc.GNN([copy.deepcopy(conv)], head=act).double() for act in (nn.ReLU(), Shifted()))
    assert torch.allclose(lmc.predict(graph, shifted), lmc.predict(graph, plain) + 1)


def test_a_network_of_gin_with_a_hook_is_called():
    graph = graph_of("undirected")
    conv = GINConv(hooked(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))).double()
    data = graph.to_pyg()
    assert torch.allclose(lmc.predict(graph, lmc.GNN([conv])), conv(data.x, data.edge_index), rtol=1e-9)


def sage():
    return models.GraphSAGE(8, 6, 2, 4)


@pytest.mark.parametrize(
    ("make", "change", "line"),
    [
        (sage, lambda model: model.convs.__setitem__(-1, SAGEConv(6, 4)), "GraphSAGE.convs.1: was replaced"),
        (sage, lambda model: setattr(model, "act", nn.Tanh()), "GraphSAGE.act: was replaced"),
        (sage, lambda model: setattr(model.convs[0], "normalize", True), "layers[0] (SAGEConv): was changed"),
        (
            sage,
            lambda model: setattr(model.convs[1], "root_weight", False),
            "layers[1] (SAGEConv): was changed",
        ),
        (
            lambda: models.GCN(8, 6, 2, 4),
            lambda model: setattr(model.convs[0], "add_self_loops", False),
            "layers[0] (GCNConv): was changed",
        ),
    ],
)
def test_a_model_that_changes_after_it_was_wrapped_is_refused(make, change, line):
    """What is computed would be the model as it was, and what is trained parts that it no longer has."""
    graph, model = lmc.synthetic(nodes=100, features=8, classes=4), make()
    wrapped = lmc.from_pyg(model)
    lmc.predict(graph, wrapped)
    change(model)
    rule = re.escape(line) + " after it was wrapped; wrap it again"
    with pytest.raises(lmc.ArgumentError, match=rule):
        lmc.predict(graph, wrapped)
    with pytest.raises(lmc.ArgumentError, match=rule):
        lmc.fit(graph, wrapped, lmc.LMC(), parts=4, epochs=1)
    lmc.fit(graph, lmc.from_pyg(model), lmc.LMC(), parts=4, epochs=1)
