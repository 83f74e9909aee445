"""The library against `oracle.py`."""

import numpy as np
import pytest
import torch

import lmc
import oracle
from estimating import bound, clusters_of, gcn, gcnii, graph_of, mostly_long

pytestmark = pytest.mark.usefixtures("_either_kernels")


def numbers(graph):
    """What the oracle needs of a graph, dense."""
    n = graph.num_nodes
    data = graph.to_pyg()
    weights = data.edge_weight.numpy() if graph.edge_weight is not None else np.ones(graph.num_edges)
    a, neighbours = np.zeros((n, n)), [set() for _ in range(n)]
    for (source, target), weight in zip(data.edge_index.T.tolist(), weights, strict=True):
        a[target, source] += weight
        if source != target:
            neighbours[target].add(source)
            neighbours[source].add(target)
    loops = {i for i, j in data.edge_index.T.tolist() if i == j}
    a += np.diag([0.0 if i in loops else 1.0 for i in range(n)])
    root = 1 / np.sqrt(a.sum(1))
    a = root[:, None] * a * root[None, :]
    return a, neighbours, data.x.numpy(), data.y.numpy(), data.train_mask.numpy()


def weights_of(model, part="linear"):
    return [getattr(layer, part).weight.detach().numpy().T.copy() for layer in model.layers]


def dense_gcn(model, graph, **mixed):
    biases = [layer.linear.bias.detach().numpy().copy() for layer in model.layers]
    dense = oracle.DenseGCN(weights_of(model), biases, *numbers(graph), **mixed)
    dense.residual = model.layers[1].residual
    names = {"W": dense.W, "b": dense.b}

    def found():
        linear = [layer.linear for layer in model.layers]
        return {"W": [part.weight.grad.T for part in linear], "b": [part.bias.grad for part in linear]}

    return dense, names, found


def dense_gcnii(model, graph, **mixed):
    encoder, head = (
        tuple(p.detach().numpy().copy() for p in (part.weight.T, part.bias))
        for part in (model.encoder.parts[1], model.head.parts[1])
    )
    weights, shared = weights_of(model), model.layers[0].linear_initial is None
    others = weights if shared else weights_of(model, "linear_initial")
    dense = oracle.DenseGCNII(encoder, weights, others, head, 0.1, 0.5, *numbers(graph), **mixed)
    dense.residual = model.layers[0].residual
    names = {"E": dense.E, "e": dense.e, "W": dense.W, "U": [] if shared else dense.U}
    names |= {"O": dense.O, "o": dense.o}

    def found():
        encoder, head = model.encoder.parts[1], model.head.parts[1]
        weights = [layer.linear.weight.grad.T for layer in model.layers]
        others = [] if shared else [layer.linear_initial.weight.grad.T for layer in model.layers]
        first = {"E": encoder.weight.grad.T, "e": encoder.bias.grad, "W": weights}
        return first | ({} if shared else {"U": others}) | {"O": head.weight.grad.T, "o": head.bias.grad}

    return dense, names, found


def each(tree):
    for value in tree.values():
        yield from value if isinstance(value, list) else [value]


MADE = [
    (gcn, dense_gcn, {"depth": 2}),
    (gcn, dense_gcn, {"depth": 4, "residual": True}),
    (gcnii, dense_gcnii, {"depth": 3}),
    (gcnii, dense_gcnii, {"depth": 5, "residual": True, "shared_weights": False}),
]
NAMES = ["GCN 2", "GCN 4 residual", "GCNII 3", "GCNII 5 residual, separate"]


def thirty_steps(made, estimator, kind, mix=None, **mixed):
    make, dense, options = made
    graph, model = graph_of(kind, nodes=24), make(**options)
    rate = 0.3
    reference, parameters, gradients = dense(model, graph, **mixed)
    reference.mix = mix(reference) if mix else reference.mix
    bound(estimator, model, graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    clusters = clusters_of(graph, parts=6)
    steps = 0
    while steps < 30:
        for batch in lmc.batches(graph, clusters, parts_per_batch=2, epoch=steps):
            expected = reference.estimate(batch.nodes.tolist(), batch.scale)
            expected = {name: value for name, value in expected.items() if len(parameters[name])}
            optimizer.zero_grad()
            estimator.backward(batch)
            for found, wanted in zip(each(gradients()), each(expected), strict=True):
                assert np.allclose(found, wanted, rtol=1e-8, atol=1e-10), f"step {steps}"
            optimizer.step()
            for parameter, wanted in zip(each(parameters), each(expected), strict=True):
                parameter -= rate * wanted
            steps += 1
    return reference


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["undirected", "directed weighted"])
@pytest.mark.parametrize("score", mostly_long(["2x-x^2", "sin", "x^2", "x", "1"], every=5))
@pytest.mark.parametrize("made", MADE, ids=NAMES)
def test_thirty_steps_of_sgd_step_for_step(made, score, kind):
    thirty_steps(made, lmc.LMC(alpha=0.7, score=score), kind, alpha=0.7, score=score)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(["directed weighted", "undirected"], every=2))
@pytest.mark.parametrize("made", MADE, ids=NAMES)
def test_thirty_steps_with_the_beta_that_is_found(made, kind):
    """And it is found: most tenths of x have told something, and β differs from what it began with."""
    mix = thirty_steps(made, lmc.LMC(), kind, lambda model: oracle.MixOfSums(model, finds=True)).mix
    found = [mix.told[key][0] / mix.told[key][1] for key in mix.told if mix.told[key][1] > 0]
    assert len(found) > 5
    assert min(found) < 0.9 * max(found)


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["values", "sums"])
@pytest.mark.parametrize("made", MADE[1:3], ids=NAMES[1:3])
def test_thirty_steps_with_a_score_for_each_direction(made, mix):
    scores = {"alpha": 0.7, "score": "x^2", "backward_score": "2x^2"}
    of_sums = (lambda model: oracle.MixOfSums(model, finds=False)) if mix == "sums" else None
    thirty_steps(made, lmc.LMC(**scores, mix=mix), "directed weighted", of_sums, **scores)


# -- errors of estimates ----------------------------------------------------------------------------


def test_gradient_error_equals_its_definition_by_hand():
    """The three numbers from their definition, with estimates taken through the public way."""
    graph, model = graph_of("undirected"), gcn(3)
    batches = list(lmc.batches(graph, clusters_of(graph)))
    estimator = bound(lmc.GAS(), model, graph)
    for batch in batches:
        estimator.backward(batch)

    def flat(estimator, batch):
        return torch.cat([g.flatten() for g in estimator.estimate(batch)[1].values()])

    full = flat(bound(lmc.FullBatch(), model, graph), batches[0])
    reference = bound(lmc.BackwardSGD(), model, graph)
    with estimator.frozen():
        e = torch.stack([flat(estimator, b) for b in batches])
    g = torch.stack([flat(reference, b) for b in batches])
    errors = lmc.gradient_error(graph, model, estimator, iter(batches))
    size = full.norm()
    assert errors["total"] == pytest.approx(float(((e - full).norm(dim=1) / size).mean()))
    assert errors.bias["total"] == pytest.approx(float(((e - g).norm(dim=1) / size).mean()))
    deviation = (g - full).norm(dim=1).square().mean().sqrt() / size
    assert errors.variance["total"] == pytest.approx(float(deviation))
    assert list(errors) == ["layers.0", "layers.1", "layers.2", "total"]
    assert all(errors[p] <= errors.bias[p] + errors.variance[p] + 1e-12 for p in errors)


@pytest.mark.parametrize("estimator", [lmc.LMC(), lmc.GraphFM()])
def test_gradient_error_changes_nothing(estimator):
    graph = graph_of("undirected")
    model = gcn(3, norm="batch", dropout=0.5)
    bound(estimator, model, graph)
    batches = list(lmc.batches(graph, clusters_of(graph)))
    estimator.backward(batches[0])
    before = [t.clone() for t in (*model.state_dict().values(), *estimator.state_dict().values())]
    gradients_before = [p.grad.clone() for p in model.parameters()]
    first = lmc.gradient_error(graph, model, estimator, batches)
    assert first == lmc.gradient_error(graph, model, estimator, batches)
    after = (*model.state_dict().values(), *estimator.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients_before, model.parameters(), strict=True))
    assert all(module.training for module in model.modules())
    with pytest.raises(lmc.ArgumentError, match="not bound to this model and graph"):
        lmc.gradient_error(graph, gcn(3), estimator, batches)


def test_gradient_error_is_measured_without_dropout():
    graph = graph_of("undirected")
    batches = list(lmc.batches(graph, clusters_of(graph)))
    errors = []
    for dropout in (0.0, 0.5):
        model = gcn(3, dropout=dropout)
        estimator = bound(lmc.LMC(alpha=0), model, graph, init="exact")
        errors.append(lmc.gradient_error(graph, model, estimator, batches))
    assert errors[0] == errors[1]
    assert errors[1].bias["total"] < 1e-12
