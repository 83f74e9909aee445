from functools import partial

import pytest
import torch

import lmc
from lmc.training.memory_check import RunNeeds
from lmc.training.memory_need import Need, need

WIDTHS, FEATURES, NODES = [256, 256, 40], 128, 169_343

MESSAGES = 2 * 1_157_799 + NODES

# Peaks of a step above data and histories on ogbn-arxiv, in MB; with the share of all nodes that a batch has.
MEASURED = [
    (2_180, 20_082, 1 / 80, 54),
    (21_200, 27_000, 1 / 8, 197),
    (85_000, 39_000, 1 / 2, 604),
    (NODES, 0, 1, 1124),
]


@pytest.mark.parametrize(("nodes", "halo", "share", "megabytes"), MEASURED)
def test_estimates_are_near_the_measured_peaks(nodes, halo, share, megabytes):
    messages = int(2 * share * MESSAGES) if halo else MESSAGES  # and the transposed block, if it is another
    step = need(WIDTHS, FEATURES, nodes, halo, NODES, messages=messages).step
    assert step / 1e6 == pytest.approx(megabytes, rel=0.13)
    assert step - need(WIDTHS, FEATURES, nodes, halo, NODES).step == 2 * 8 * messages


# The same of a halo that is computed, with the entries of all blocks.
COMPUTED = [
    (2_180, 20_082, 627_614, 113),
    (10_585, 36_596, 1_082_523, 234),
    (21_436, 36_200, 1_201_402, 319),
    (84_720, 41_384, 2_132_772, 753),
]


@pytest.mark.parametrize(("nodes", "halo", "messages", "megabytes"), COMPUTED)
def test_estimates_of_a_computed_halo_are_near_the_measured_peaks(nodes, halo, messages, megabytes):
    given = (WIDTHS, FEATURES, nodes, halo, NODES)
    estimate = need(*given, messages=messages, computes_halo=True).step / 1e6
    assert 1 < estimate / megabytes < 1.33
    assert estimate > need(*given, messages=messages).step / 1e6 or nodes > halo


# The same of TOP, whose steps read no halo.
MAPPED = [(21_168, [64, 64], 183), (21_168, [256, 256], 288), (84_672, [64, 64], 700)]


@pytest.mark.parametrize(("nodes", "ranks", "megabytes"), MAPPED)
def test_estimates_of_a_halo_that_is_a_map_are_near_the_measured_peaks(nodes, ranks, megabytes):
    estimate = need(WIDTHS, FEATURES, nodes, 36_000, NODES, ranks=ranks).step
    assert estimate / 1e6 == pytest.approx(megabytes, rel=0.08)
    assert estimate == need(WIDTHS, FEATURES, nodes, 0, NODES, ranks=ranks).step


@pytest.mark.parametrize("on_top", [lambda inner: inner, lmc.Spider])
def test_bases_are_kept_of_every_node(on_top):
    graph = lmc.synthetic(nodes=50, classes=4, features=6)
    model = lmc.GCN(6, 8, 4, layers=3)
    given = (model.widths(graph)[:-1], 6, 10, 5, 50)
    for estimator, remembered, ranks in ((lmc.GAS(), 20, []), (lmc.TOP(7), 50, [7, 7])):
        needs = RunNeeds(graph, model, on_top(estimator), remembered_nodes=20, precision="full")
        kept = sum(ranks) if ranks else 2 * 8
        expected = need(*given, kept=kept, messages=30, remembered_nodes=remembered, ranks=ranks)
        assert needs.bytes_for(10, 5, 30) == expected.total


def paper(**options):
    """The paper's method, whose histories are of values."""
    return lmc.LMC(alpha=0.4, **options)


@pytest.mark.parametrize("hidden", [[], [7], [7, 5, 3]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("precision", ["full", "half"])
@pytest.mark.parametrize("kind", [lmc.LMC, paper, lmc.GAS, lmc.TOP, partial(lmc.TOP, basis="history")])
def test_histories_are_those_of_the_estimators(hidden, dtype, precision, kind):
    data = lmc.synthetic(nodes=50, classes=4, features=6).to_pyg()
    data.x = data.x.to(dtype)
    graph = lmc.Graph.from_pyg(data, num_classes=4)
    model = lmc.GCN(6, hidden, 4, layers=len(hidden) + 1).to(dtype)
    estimator = kind(precision=precision)
    estimator.bind(model, graph)
    expected = sum(
        values.numel() * values.element_size()
        for name, values in estimator.state_dict().items()
        if name.startswith(("embeddings", "auxiliaries", "bases"))
    )
    estimate = need(
        model.widths(graph)[:-1],
        graph.num_features,
        10,
        5,
        graph.num_nodes,
        itemsize=dtype.itemsize,
        kept=estimator.remembered(model, model.all_widths(graph).layers).width,
        history_itemsize=2 if precision == "half" else None,
    )
    assert estimate.histories == expected
    if kind is paper and precision == "full":
        same = need(model.widths(graph)[:-1], 6, 10, 5, 50, itemsize=dtype.itemsize)
        assert same.histories == expected


def test_it_grows_with_all_that_it_depends_on():
    given = {"features": 16, "batch_nodes": 100, "halo_nodes": 200, "num_nodes": 1000, "messages": 5}
    least = need([8, 8, 4], **given)
    for name in ("features", "batch_nodes", "halo_nodes", "messages"):
        assert need([8, 8, 4], **given | {name: 2 * given[name]}).step > least.step
    assert need([8, 8, 4], **given | {"num_nodes": 2000}) == Need(2 * least.histories, least.step)
    assert need([8, 16, 4], **given).step > least.step
    assert need([8, 8, 8, 4], **given).step > least.step
    assert need([8, 8, 4], **given, itemsize=8).histories == 2 * least.histories
    assert least.total == least.histories + least.step


def test_one_layer_keeps_what_it_receives_and_its_losses():
    assert need([4], 16, 10, 20, 100).step == 4 * (10 * (16 + 4 * 4) + 20 * 4 * 4)


def test_two_layers_and_a_large_halo_peak_forward():
    """After the hidden layer, all rows have their value and message; batch rows know what got through."""
    assert need([64, 10], 32, 1, 1000, 2000).step == 4 * ((32 + 2.25 * 64) + 1000 * 2 * 64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"widths": []}, "widths=[]: must be one width per layer, one or more"),
        ({"widths": [8, 0]}, "widths[1]=0: must be 1 or more"),
        ({"features": -1}, "features=-1: must be 0 or more"),
        ({"batch_nodes": 0}, "batch_nodes=0: must be 1 or more"),
        ({"batch_nodes": 101}, "batch_nodes=101: must be at most 100"),
        ({"halo_nodes": 91}, "halo_nodes=91: must be at most 90"),
        ({"messages": 1.5}, "messages=1.5: must be an integer"),
        ({"kept": -1}, "kept=-1: must be 0 or more"),
    ],
)
def test_wrong_arguments_are_one_line(changed, message):
    given = {"widths": [8, 4], "features": 16, "batch_nodes": 10, "halo_nodes": 20, "num_nodes": 100}
    with pytest.raises(lmc.ArgumentError) as error:
        need(**given | changed)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("options", "auxiliaries"),
    [({}, {2}), ({"input_dropout": 0.5}, {2}), ({"linear_in": True}, {1, 2})],
)
def test_auxiliaries_of_the_first_layer_are_kept_for_what_comes_before_it(options, auxiliaries):
    graph = lmc.synthetic(nodes=50, classes=4, features=6)
    model = lmc.GCN(6, 8, 4, layers=3, **options)
    estimator = paper()
    estimator.bind(model, graph)
    assert (set(estimator.embeddings), set(estimator.auxiliaries)) == ({1, 2, 3}, auxiliaries)
    found = lmc.LMC()
    found.bind(model, graph)
    first = set() if options else {1}  # sums of features are known
    assert (set(found.embeddings), set(found.auxiliaries)) == ({1, 2, 3} - first, auxiliaries)
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)  # and may be trained again
    estimator.bind(model, graph)
    assert set(estimator.auxiliaries) == auxiliaries
