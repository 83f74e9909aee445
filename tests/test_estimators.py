"""What must hold of the estimators: exact in float64, on every kind of graph and model."""

from itertools import product

import pytest
import torch

import lmc
from estimating import (
    EVERY,
    KINDS,
    MODELS,
    bound,
    clusters_of,
    distance,
    full_gradient,
    gcn,
    gcnii,
    gradient,
    graph_of,
    mean_gradient,
    mostly_long,
    settled,
)

pytestmark = pytest.mark.usefixtures("_either_kernels")

# -- 1. FullBatch is the gradient -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_full_batch_equals_finite_differences(name, kind):
    graph, model = graph_of(kind, seed=3), MODELS[name](2)
    _, found = full_gradient(model, graph)
    estimator = bound(lmc.FullBatch(), model, graph)
    everything = graph.batch(range(graph.num_nodes))
    generator = torch.Generator().manual_seed(0)
    for parameter_name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        step = 1e-5
        losses = []
        for sign in (1, -2, 1):  # there, across, and back
            with torch.no_grad():
                parameter += sign * step * direction
            losses.append(estimator.estimate(everything)[0])
        slope = (losses[0] - losses[1]) / (2 * step)
        assert slope == pytest.approx(float((found[parameter_name] * direction).sum()), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_full_batch_equals_autograd_of_the_mean_loss(task):
    graph, model = graph_of("undirected", task=task), gcn(3, linear_in=True, norm="batch")
    loss, found = full_gradient(model, graph)
    model.zero_grad()
    prediction, y = model(graph)[graph.train_mask], graph.y[graph.train_mask]
    losses = {
        "multiclass": torch.nn.functional.cross_entropy,
        "multilabel": torch.nn.functional.binary_cross_entropy_with_logits,
        "regression": torch.nn.functional.mse_loss,
    }
    expected = losses[task](prediction, y)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name], parameter.grad, rtol=1e-9, atol=1e-12)


def test_full_batch_equals_autograd_of_the_models_own_pass_also_in_its_dropout():
    """The pass draws a seed; from there on its masks have the addresses of an estimator's first step."""
    graph = graph_of("undirected")
    model = gcn(3, dropout=0.5, input_dropout=0.2, linear_in=True, linear_out=True)
    torch.manual_seed(3)
    seed = int(torch.randint(1 << 62, ()))
    _, found = full_gradient(model, graph, seed=seed)
    model.zero_grad()
    torch.manual_seed(3)
    prediction, y = model(graph)[graph.train_mask], graph.y[graph.train_mask]
    torch.nn.functional.cross_entropy(prediction, y).backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name], parameter.grad, rtol=1e-9, atol=1e-12)


def test_twice_the_loss_has_twice_the_gradient():
    graph, model = graph_of("undirected"), gcn(2)

    def doubled(prediction, y):
        return 2 * torch.nn.functional.cross_entropy(prediction, y, reduction="none")

    loss, found = full_gradient(model, graph)
    loss_2, found_2 = full_gradient(model, graph, loss=doubled)
    assert loss_2 == pytest.approx(2 * loss)
    assert all(torch.allclose(2 * found[name], found_2[name]) for name in found)


# -- 2. One batch that holds every node -------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "name", "depth", "kind"), mostly_long(product(EVERY, MODELS, (2, 5), KINDS), every=7)
)
def test_everything_in_one_batch_is_full_batch(estimator, name, depth, kind):
    graph, model = graph_of(kind), MODELS[name](depth)
    everything = graph.batch(range(graph.num_nodes))
    loss, expected = full_gradient(model, graph)
    found_loss, found = gradient(bound(EVERY[estimator](), model, graph), everything)
    assert found_loss == pytest.approx(loss, rel=1e-12)
    assert max(distance(found, expected).values()) < 1e-10


@pytest.mark.parametrize("estimator", EVERY)
def test_everything_in_one_batch_with_dropout_and_batch_norm(estimator):
    """Masks are a hash of (seed, step, place, node), so they agree too."""
    graph = graph_of("undirected")
    model = gcn(3, norm="batch", dropout=0.5, input_dropout=0.2, linear_out=True)
    everything = graph.batch(range(graph.num_nodes))
    _, expected = full_gradient(model, graph, seed=5)
    _, found = gradient(bound(EVERY[estimator](), model, graph, seed=5), everything)
    assert max(distance(found, expected).values()) < 1e-10
    _, other = full_gradient(model, graph, seed=6)
    assert max(distance(other, expected).values()) > 1e-2


# -- 3. Frozen parameters, settled histories --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [3, *(pytest.param(depth, marks=pytest.mark.long) for depth in (2, 5))])
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_of_lmc_is_the_gradient(name, depth, kind):
    graph, model = graph_of(kind), MODELS[name](depth)
    _, expected = full_gradient(model, graph)
    found = settled(bound(lmc.LMC(alpha=0), model, graph), graph)
    worst = max(distance(found, expected).values())
    assert worst < 1e-8
    for other in (lmc.GAS(), lmc.ClusterGCN()):
        assert max(distance(settled(bound(other, model, graph), graph), expected).values()) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), mostly_long(product(MODELS, KINDS), every=11))
def test_at_rest_the_mean_of_lmc_with_the_beta_it_finds_is_the_gradient(name, kind):
    """Histories become right, so β becomes zero where something is incomplete."""
    graph, model = graph_of(kind), MODELS[name](3)
    _, expected = full_gradient(model, graph)
    estimator = bound(lmc.LMC(), model, graph)
    first = settled(estimator, graph)
    for _ in range(8):
        found = settled(estimator, graph)
    assert max(distance(found, expected).values()) < 1e-8 < max(distance(first, expected).values())
    mixed = settled(bound(lmc.LMC(alpha=0.4), model, graph), graph)
    assert max(distance(mixed, expected).values()) > 1e-3


def test_the_mean_of_lmc_is_the_gradient_of_64_layers():
    graph, model = graph_of("undirected"), gcnii(64)
    _, expected = full_gradient(model, graph)
    estimator = bound(lmc.LMC(alpha=0), model, graph, init="exact")
    found = mean_gradient(estimator, list(lmc.batches(graph, clusters_of(graph))))
    assert max(distance(found, expected).values()) < 1e-8


# -- 4. Theorem 1 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_backward_sgd_is_unbiased(name, kind):
    graph, model = graph_of(kind), MODELS[name](3)
    _, expected = full_gradient(model, graph)
    unequal = torch.tensor([0] * 20 + [1] * 10 + [2] * 5 + [3])
    estimator = bound(lmc.BackwardSGD(), model, graph)
    found = mean_gradient(estimator, list(lmc.batches(graph, unequal)))
    assert max(distance(found, expected).values()) < 1e-10


def test_losses_average_to_the_loss():
    graph, model = graph_of("undirected"), gcn(3)
    loss, _ = full_gradient(model, graph)
    estimator = bound(lmc.BackwardSGD(), model, graph)
    losses = [gradient(estimator, batch)[0] for batch in lmc.batches(graph, clusters_of(graph))]
    assert sum(losses) / len(losses) == pytest.approx(loss, rel=1e-12)


# -- relatives --------------------------------------------------------------------------------------


def run(estimator, graph, model_seed=0, steps=8, **options):
    """Estimates along a short training run."""
    model = gcn(3, seed=model_seed, norm="layer")
    bound(estimator, model, graph, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    found = []
    clusters = clusters_of(graph)
    while len(found) < steps:
        for batch in lmc.batches(graph, clusters, 2, epoch=len(found)):
            optimizer.zero_grad()
            found.append(estimator.backward(batch))
            found += [p.grad.clone() for p in model.parameters()]
            optimizer.step()
    return found


def same(one, other):
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


def test_lmc_without_compensation_is_gas():
    graph = graph_of("directed weighted")
    assert same(run(lmc.LMC(alpha=0, compensate_backward=False), graph), run(lmc.GAS(), graph))
    assert same(run(lmc.GraphFM(momentum=0), graph), run(lmc.GAS(), graph))
    assert not same(run(lmc.LMC(alpha=0), graph), run(lmc.GAS(), graph))


def test_every_option_of_lmc_changes_the_estimate():
    graph = graph_of("undirected")
    options = [
        {"alpha": 0},
        {"alpha": 0.5},
        *({"alpha": 0.5, "score": score} for score in ("x^2", "x", "1", "sin")),
        {"alpha": 0.5, "compensate_forward": False},
        {"alpha": 0.5, "compensate_backward": False},
        {"alpha": 0.5, "precision": "half"},
    ]
    runs = [run(lmc.LMC(**chosen), graph) for chosen in options]
    for i, one in enumerate(runs):
        assert not any(same(one, other) for other in runs[:i])


def test_exact_start_has_no_bias():
    graph, model = graph_of("directed weighted"), gcnii(4)
    batches = list(lmc.batches(graph, clusters_of(graph)))
    estimator = bound(lmc.LMC(alpha=0), model, graph, init="exact")
    errors = lmc.gradient_error(graph, model, estimator, batches)
    assert max(errors.bias.values()) < 1e-12
    estimator = bound(lmc.LMC(alpha=0), model, graph, init="zero")
    assert lmc.gradient_error(graph, model, estimator, batches).bias["total"] > 1e-2
