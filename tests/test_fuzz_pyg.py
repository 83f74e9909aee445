"""Random models of PyG on random graphs: PyG's own predictions and gradients, to rounding."""

from contextlib import contextmanager
from inspect import Parameter, signature

import pytest
import torch
from hypothesis import assume, event, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import lmc
from estimating import perturbed
from fuzz_graphs import examples, numbers
from fuzz_pyg import MAY_BE_REFUSED, pyg_models, stacks

pytestmark = pytest.mark.fuzz

ESTIMATORS = [lmc.FullBatch(), lmc.BackwardSGD(), lmc.GAS(), lmc.GraphFM(), lmc.LMC(0.0), lmc.LMC(0.4)]


def taken_by(convolution, known):
    """What a convolution takes beside the edges."""
    takes, given = signature(convolution.forward).parameters, {}
    if "edge_weight" in takes:
        ones = torch.ones(known.ends.shape[1]).double()
        needs = takes["edge_weight"].default is Parameter.empty
        given["edge_weight"] = ones if known.weight is None and needs else known.weight
    if "edge_attr" in takes and getattr(convolution, "edge_dim", "any") is not None:
        given["edge_attr"] = known.attr
    return given


def has_repeated_loops(ends):
    loops = ends[0][ends[0] == ends[1]]
    return len(loops.unique()) < len(loops)


@contextmanager
def in_double():
    """Some convolutions of PyG count in torch's usual type, whatever the type of their features."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def compare(data, known, original, wrapped, forward):
    """Predictions in evaluation mode; gradients and statistics of the batch of all nodes in training mode.

    Args:
        original: the module of PyG.
        wrapped: the same as a model of ours.
        forward: from nothing to PyG's own predictions, as `original` is now.
    """
    graph, n = known.graph(), len(known.x)
    # Before there is something to be different from.
    start = {name: value.clone() for name, value in original.state_dict().items()}
    original.train()
    try:
        out = forward()
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        assume(False)  # a batch norm of one row
    assume(out.isfinite().all())
    original.zero_grad()
    objective = cross_entropy(out[known.labelled], known.y[known.labelled])
    objective.backward()
    full_loss = objective.item()
    expected = {name: p.grad for name, p in original.named_parameters() if p.grad is not None}
    assume(all(g.isfinite().all() for g in expected.values()))
    moved = {name: value.clone() for name, value in original.state_dict().items()}

    original.load_state_dict(start)
    wrapped.train()
    estimator = data.draw(st.sampled_from(ESTIMATORS))
    estimator.bind(wrapped, graph)
    original.zero_grad()
    loss = estimator.backward(graph.batch(torch.randperm(n)))
    assert loss == pytest.approx(full_loss, rel=1e-9)
    total = max(float(torch.stack([g.norm() for g in expected.values()]).norm()), 1e-12)
    for name, p in original.named_parameters():
        found = torch.zeros_like(p) if p.grad is None else p.grad
        error = float((found - expected.get(name, torch.zeros_like(p))).norm())
        assert error <= 1e-8 * total, f"gradient of {name}: off by {error} where the whole has {total}"
    for name, value in original.state_dict().items():
        if name.endswith("num_batches_tracked"):  # PyG also counts a batch of no edges
            continue
        torch.testing.assert_close(value, moved[name], rtol=1e-9, atol=1e-12, msg=name)

    original.eval()
    with torch.no_grad():
        expected = forward()
    found = lmc.predict(graph, wrapped, rows_at_once=data.draw(st.integers(1, n)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    some = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3))
    torch.testing.assert_close(lmc.predict(graph, wrapped, nodes=some), expected[some], rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:model. predicts")  # some are wider than there are classes
@examples(12)
@given(numbers(attributed=True, repeated=True), pyg_models(), st.data())
def test_a_model_of_pyg_is_itself(known, model, data):
    perturbed(model.double())
    event(type(model).__name__)
    wrapped = lmc.from_pyg(model)

    @in_double()
    def forward():
        given = {}
        if model.supports_edge_weight:
            given["edge_weight"] = known.weight
        if model.supports_edge_attr and getattr(model.convs[0], "edge_dim", None) is not None:
            given["edge_attr"] = known.attr
        return model(known.x, known.ends, **given)

    compare(data, known, model, wrapped, forward)


@examples(12)
@given(numbers(attributed=True, repeated=True), stacks(), st.data())
def test_a_stack_of_convolutions_is_itself(known, stack, data):
    kinds, original = stack
    # Of several self-loops of a node PyG's PDNConv reads the last, and derives by all.
    assume("PDN" not in kinds or not has_repeated_loops(known.ends))
    perturbed(original.double())
    try:
        wrapped = lmc.GNN(original.layers(), original.encoder, original.head, original.jump)
        wrapped.widths(known.graph())
    except lmc.ArgumentError:
        assert set(kinds) & MAY_BE_REFUSED.keys(), kinds
        event("refused")
        return
    event("accepted")

    @in_double()
    def forward():
        return original(known.x, known.ends, lambda convolution: taken_by(convolution, known))

    compare(data, known, original, wrapped, forward)
