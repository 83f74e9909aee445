"""What may be cut into batches: the verdict on a convolution against what is known of its pieces."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

import lmc
from estimating import full_gradient, mostly_long
from fuzz_convolutions import AFTER, LOCAL, LOCAL_AFTER, MODES, NOT_LOCAL_AFTER, PIECES, Composed, Recipe
from fuzz_graphs import examples
from pyg_models import graph_with


def first_use(recipe, graph):
    """A model of the convolution that has met a graph: a step of every kind, and predictions.

    Raises ArgumentError where the library refuses it, whenever that is.
    """
    torch.manual_seed(0)
    model = lmc.GNN([Composed(recipe, 5, 6).double()], head=nn.Linear(6, 3).double())
    for estimator in (lmc.LMC(0.4), lmc.FullBatch()):
        estimator.bind(model, graph)
        estimator.backward(graph.batch(range(12), scale=3.0))
    lmc.predict(graph, model, rows_at_once=7)
    return model


def check(recipe):
    """Refused in one line if a piece looks beyond; else PyG's own numbers, in whatever pieces."""
    graph = graph_with()
    if not recipe.is_local:
        with pytest.raises(lmc.ArgumentError) as refused:
            first_use(recipe, graph)
        assert len(str(refused.value).splitlines()) == 1
        return
    model = first_use(recipe, graph)
    convolution, data = model.layers[0].conv, graph.to_pyg()

    def by_itself():
        x, given = data.x, (data.edge_index, data.edge_weight.double(), data.edge_attr)
        return model.head.module(convolution((x, x), *given))

    model.eval()
    expected = by_itself()
    for rows in (5, graph.num_nodes):
        torch.testing.assert_close(
            lmc.predict(graph, model, rows_at_once=rows), expected, rtol=1e-9, atol=1e-9
        )
    model.train()
    _, found = full_gradient(model, graph)
    model.zero_grad()
    cross_entropy(by_itself()[graph.train_mask], graph.y[graph.train_mask]).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("piece", "mode"), mostly_long([*product(PIECES, MODES)], every=7))
def test_the_verdict_on_one_piece(piece, mode):
    check(Recipe(((piece, mode),)))


@pytest.mark.parametrize("after", NOT_LOCAL_AFTER)
def test_the_verdict_on_what_follows(after):
    check(Recipe((), after=after))


def recipes(pieces, most, after):
    chosen = st.lists(st.tuples(st.sampled_from([*pieces]), st.sampled_from(MODES)), max_size=most).map(tuple)
    aggr = st.sampled_from(["add", "mean", "max", "min"])
    return st.builds(Recipe, chosen, aggr, st.booleans(), st.sampled_from([*after]))


@pytest.mark.fuzz
@examples(20)
@given(recipes(LOCAL, 4, LOCAL_AFTER) | recipes(PIECES, 2, AFTER))
def test_the_verdict_on_any_pieces(recipe):
    check(recipe)
