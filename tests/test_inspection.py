import io
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import lmc
from lmc.report.inspection import PerBatch, inspect
from lmc.report.inspection_tables import tables_of
from lmc.training.memory_need import need
from strategies import graphs


def components_of(pattern):
    """Node sets, by walking from every node that was not reached yet."""
    either = pattern | pattern.T
    left, found = set(range(len(pattern))), []
    while left:
        reached, border = set(), {min(left)}
        while border:
            reached |= border
            border = {int(j) for i in border for j in either[i].nonzero()[0]} - reached
        found.append(reached)
        left -= reached
    return found


@given(graphs())
def test_counts_of_the_graph_equal_those_by_hand(example):
    found, n, pattern = inspect(example.graph, parts=[1]), example.graph.num_nodes, example.pattern
    assert (found.nodes, found.edges) == (n, len(example.edges))
    assert found.directed == (not example.is_symmetric)
    assert found.self_loops == sum(i == j for i, j in example.edges)
    assert found.repeated == len(example.edges) - len(set(example.edges))
    assert found.weighted == (example.weights is not None)

    others = [{j for e in example.edges for j in e if i in e} - {i} for i in range(n)]
    degrees = [len(each) for each in others]
    assert found.degrees.smallest == min(degrees)
    assert found.degrees.median == statistics.median(degrees)
    assert found.degrees.mean == pytest.approx(statistics.fmean(degrees))
    assert found.degrees.largest == max(degrees)
    assert found.degrees.isolated == degrees.count(0)

    parts = components_of(pattern)
    assert found.components == len(parts)
    assert found.largest_component == max(map(len, parts)) / n


@given(graphs(), st.data())
def test_homophily_and_class_counts_equal_those_by_hand(example, data):
    n = example.graph.num_nodes
    y = data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    y[data.draw(st.integers(0, n - 1))] = 0
    known = torch.tensor(y) != -1
    edge_index = np.array(example.edges, dtype=np.int64).reshape(-1, 2).T
    found = inspect(lmc.Graph(edge_index, torch.ones(n, 1), y, known, num_classes=4), parts=[1])
    ends = [(y[i], y[j]) for i, j in example.edges if i != j and y[i] != -1 and y[j] != -1]
    wanted = sum(a == b for a, b in ends) / len(ends) if ends else None
    assert found.homophily == wanted
    labels = found.labels
    assert (labels.task, labels.classes) == ("multiclass", 4)
    assert labels.counts == tuple(y.count(c) for c in range(4))
    assert labels.labelled == n - y.count(-1)


@given(graphs())
def test_features_and_split_equal_those_by_hand(example):
    graph = example.graph
    roles = [graph.train_mask.tolist(), graph.val_mask.tolist(), graph.test_mask.tolist()]
    sizes = [sum(role) for role in roles]
    found = inspect(graph, parts=[1])
    assert tuple(found.split) == (*sizes, graph.num_nodes - sum(sizes))
    entries = graph.x.flatten().tolist()
    assert found.features == (3, "float64", 0.0, min(entries), max(entries))


@given(st.lists(st.sampled_from([0.0, -0.0, -1.5, 2.0, 7.0]), min_size=6, max_size=6))
def test_zeros_in_features_are_counted(entries):
    graph = lmc.Graph([[0], [1]], torch.tensor(entries).view(3, 2), [0, 0, 0], [True] * 3)
    found = inspect(graph).features
    assert found == (2, "float32", pytest.approx(entries.count(0.0) / 6), min(entries), max(entries))


@given(graphs(), st.lists(st.integers(1, 20), min_size=1, max_size=2), st.integers(1, 4), st.integers(1, 9))
def test_what_batches_hold_equals_a_count_by_hand(example, parts, layers, hidden):
    graph, n = example.graph, example.graph.num_nodes
    received = np.where(np.eye(n, dtype=bool), 1, example.count)
    either = example.pattern | example.pattern.T
    found = list(inspect(graph, parts, hidden, layers).holdings)
    for number in parts:
        clusters = lmc.partition(graph, number)
        count = len(clusters.unique())
        for size in sorted({max(1, round(count / k)) for k in (2, 8, 40)}, reverse=True):
            nodes, halo, messages, inside, steps = [], [], [], 0, []
            for batch in lmc.batches(graph, clusters, size, balance="labels"):
                own = batch.nodes.tolist()
                outside = {j for i in own for j in range(n) if either[i, j]} - set(own)
                nodes.append(len(own))
                halo.append(len(outside))
                messages.append(int(received[own].sum()))
                inside += int(received[np.ix_(own, own)].sum())
                widths, reach = [hidden] * (layers - 1) + [3], [*own, *outside]
                read = messages[-1] + int(received[np.ix_([*outside], reach)].sum())
                read *= 1 if graph.is_undirected else 2
                given = (widths, 3, len(own), len(outside), n, 8)
                steps.append(need(*given, messages=read, computes_halo=True).step)
            holding = found.pop(0)
            assert (holding.parts, holding.parts_per_batch, holding.batches) == (count, size, len(nodes))
            measured = {"nodes": nodes, "halo": halo, "messages": messages}
            for name, numbers in measured.items():
                assert getattr(holding, name) == (pytest.approx(statistics.fmean(numbers)), max(numbers))
            assert holding.inside == pytest.approx(inside / sum(messages))
            assert holding.need.step == max(steps)
            per_node = hidden * (layers - 1) + hidden * max(0, layers - 3) + (3 if layers > 2 else 0)
            between = sum((either[i] & (clusters != clusters[i]).numpy()).any() for i in range(n))
            assert holding.need.histories == 8 * between * per_node
    assert found == []


@pytest.mark.parametrize(
    ("nodes", "choices"),
    [
        (10, [(2, 1), (1, 1)]),
        (50, [(2, 1)]),
        (250, [(14, 7), (10, 5), (10, 1)]),
        (2000, [(32, 16), (80, 40), (80, 10)]),
        (4000, [(62, 31), (80, 40), (80, 10)]),
    ],
)
def test_the_choices_follow_the_size_of_the_graph(nodes, choices):
    found = inspect(lmc.synthetic(nodes=nodes, degree=5))
    assert [(holding.parts, holding.parts_per_batch) for holding in found.holdings] == choices
    for holding in found.holdings:
        assert holding.nodes.mean == nodes / holding.batches


def two_nodes(y, **options):
    return lmc.Graph([[0, 1], [1, 0]], torch.ones(2, 1), y, [True, False], **options)


def shown(graph, width=200):
    console = Console(width=width, file=io.StringIO())
    console.print(*tables_of(inspect(graph)))
    return console.file.getvalue()


def test_multilabel_counts_the_nodes_in_a_mask():
    y = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [-1.0, -1.0, -1.0], [float("nan"), 1.0, 1.0]])
    mask = torch.tensor([True, True, True, False])
    graph = lmc.Graph([[0], [1]], torch.ones(4, 1), y, mask, task="multilabel")
    found = inspect(graph)
    assert found.labels == ("multilabel", 3, 2, (2, 1, 0))
    assert found.homophily is None
    assert tuple(found.split) == (2, 0, 0, 2)
    assert "multilabel" in shown(graph)


def test_regression_has_targets_and_no_classes():
    graph = two_nodes(torch.tensor([[0.5, 2.0], [1.5, 3.0]]))
    found = inspect(graph)
    assert found.labels == ("regression", 2, 1, ())
    assert found.homophily is None
    text = shown(graph)
    assert "targets" in text
    assert "largest class" not in text


def test_one_node_can_be_inspected():
    graph = lmc.Graph(torch.empty(2, 0), torch.zeros(1, 2), [0], [True])
    found = inspect(graph)
    assert (found.nodes, found.edges, found.directed, found.homophily) == (1, 0, False, None)
    assert found.degrees == (0, 0.0, 0.0, 0, 1)
    assert (found.components, found.largest_component) == (1, 1.0)
    (holding,) = found.holdings
    assert (holding.nodes, holding.halo, holding.messages, holding.inside) == ((1, 1), (0, 0), (1, 1), 1.0)
    assert "isolated" in shown(graph)


def test_a_graph_without_edges_features_and_val_nodes_can_be_inspected():
    graph = lmc.Graph(torch.empty(2, 0), None, [0, 1] * 50, [True] * 60 + [False] * 40)
    found = inspect(graph)
    assert found.components == found.degrees.isolated == 100
    assert found.largest_component == 0.01
    assert found.features == (0, "float32", None, None, None)
    assert tuple(found.split) == (60, 0, 0, 40)
    assert {holding.parts for holding in found.holdings} == {4, 6}
    assert all(holding.inside == 1.0 and holding.halo.largest == 0 for holding in found.holdings)
    assert "in no split" in shown(graph)


def test_tables_say_what_was_found():
    graph = lmc.synthetic(nodes=2000, seed=1)
    found = inspect(graph, hidden=32, layers=4)
    text = " ".join(shown(graph).split())
    halo = found.holdings[0].halo.largest
    for number in (found.nodes, found.edges, found.degrees.largest, found.split.val, halo):
        assert f"{number:,}" in text
    smallest_class = min(found.labels.counts) / found.labels.labelled
    for share in (found.homophily, found.largest_component, smallest_class, found.holdings[2].inside):
        assert f"{share:.1%}" in text
    assert "undirected" in text
    assert "A run without --parts has batches of 16 of 32 clusters each (50 % of the graph, 62 nodes" in text
    assert "clusters ┃ 16 of 32 ┃ 40 of 80 ┃ 10 of 80" in text
    assert "batches │ 2 │ 2 │ 8 │ │ nodes │ 1,000 │ 1,000 │ 250 │" in text
    assert "a GCN of 3 layers, width 256" in text
    assert "a GCN of 4 layers, width 32" in str(tables_of(found)[2].caption)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_cut_where_the_terminal_is_narrow(width):
    """For a graph of the size of ogbn-products, whose numbers are the longest there are."""
    found = inspect(lmc.synthetic(nodes=2000, seed=1))
    large = PerBatch(61_859_140.4, 123_718_280)
    holdings = [replace(each, nodes=large, halo=large, messages=large) for each in found.holdings]
    console = Console(width=width, file=io.StringIO())
    console.print(*tables_of(replace(found, holdings=tuple(holdings))))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("61,859,140 ") == text.count("(123,718,280) ") == 9


def test_without_parts_there_are_no_batches():
    found = inspect(lmc.synthetic(nodes=50), parts=[])
    assert found.holdings == ()
    assert len(tables_of(found)[2].columns) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": [4, 0]}, "parts[1]=0: must be 1 or more"),
        ({"hidden": 0}, "hidden=0: must be 1 or more"),
        ({"layers": 1.5}, "layers=1.5: must be an integer"),
    ],
)
def test_wrong_arguments_are_one_line(options, message):
    with pytest.raises(lmc.ArgumentError) as error:
        inspect(two_nodes([0, 1]), **options)
    assert str(error.value) == message


@pytest.mark.slow
def test_arxiv_is_as_published_and_as_measured(real):
    found = inspect(real("arxiv"))
    assert (found.nodes, found.edges, found.labels.classes) == (169_343, 2_315_598, 40)
    assert found.homophily == pytest.approx(0.655, abs=0.001)  # as published
    assert (found.holdings[0].parts, found.holdings[0].parts_per_batch) == (1280, 80)
    for holding, measured in zip(found.holdings[1:], (753e6, 319e6), strict=True):
        assert 1 < holding.need.step / measured < 1.25
