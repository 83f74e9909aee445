"""What is known of a graph, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.filesize import decimal
from rich.table import Table

from lmc.report.inspection import Holding, Inspection, PerBatch


def tables_of(inspection: Inspection) -> list[Table]:
    """The graph, its features and labels, its batches.

    >>> import lmc
    >>> from lmc.report.inspection import inspect
    >>> [table.title for table in tables_of(inspect(lmc.synthetic(nodes=200)))]
    ['Graph', 'Features and labels', 'What a batch holds: mean (largest)']
    """
    return [_graph_table(inspection), _node_table(inspection), _batch_table(inspection)]


def _graph_table(found: Inspection) -> Table:
    degrees = found.degrees
    return _facts(
        "Graph",
        {
            "nodes": f"{found.nodes:,}",
            "edges": f"{found.edges:,}, {'directed' if found.directed else 'undirected (both ways counted)'}",
            "self-loops": f"{found.self_loops:,}",
            "repeated edges": f"{found.repeated:,}",
            "weights": "yes" if found.weighted else "no",
            "neighbours, smallest to largest": f"{degrees.smallest:,} to {degrees.largest:,}",
            "neighbours, median and mean": f"{degrees.median:,g} and {degrees.mean:,.1f}",
            "isolated nodes": f"{degrees.isolated:,}",
            "connected components": f"{found.components:,}, the largest {_percent(found.largest_component)}",
            "homophily (edges within a class)": _percent(found.homophily),
        },
    )


def _node_table(found: Inspection) -> Table:
    features, labels, split = found.features, found.labels, found.split
    empty = features.smallest is None
    facts = {
        "features": f"{features.width:,}, {features.dtype}",
        "smallest to largest": "-" if empty else f"{features.smallest:.4g} to {features.largest:.4g}",
        "zeros": _percent(features.zeros),
        "task": labels.task if labels.classes else "none: there are no labels",
        {"multiclass": "classes", "multilabel": "labels", "regression": "targets"}[
            labels.task
        ]: f"{labels.classes:,}",
    }
    if labels.counts:
        ends = (min(labels.counts), max(labels.counts))
        sizes = (f"{count:,} nodes ({_percent(count / labels.labelled)})" for count in ends)
        facts["smallest and largest class"] = " and ".join(sizes)
    facts["train, val, test"] = f"{split.train:,}, {split.val:,}, {split.test:,}"
    facts["in no split"] = f"{split.unused:,}"
    return _facts("Features and labels", facts)


def _batch_table(found: Inspection) -> Table:
    hidden, layers = found.model
    caption = f"Memory is an estimate: LMC at alpha 0, a GCN of {layers} layers, width {hidden:,}"
    if found.holdings:
        caption += f"; histories take {decimal(found.holdings[0].need.histories)} besides"
    caption += f". A run without --parts has batches of {found.choice.reason}"
    # A column for each way to make batches, and large numbers in two lines: it fits into 60 columns.
    table = Table(title="What a batch holds: mean (largest)", caption=caption)
    table.add_column("clusters")
    for holding in found.holdings:
        table.add_column(f"{holding.parts_per_batch:,} of {holding.parts:,}", justify="right")
    for name, values in _by_row(found.holdings).items():
        table.add_row(name, *values)
    return table


def _by_row(holdings: Sequence[Holding]) -> dict[str, list[str]]:
    """What batches hold, row by row, a value for each way to make them."""

    def both(of: Callable[[Holding], PerBatch]) -> list[str]:
        return [f"{of(each).mean:,.0f}\n({of(each).largest:,})" for each in holdings]

    return {
        "batches": [f"{each.batches:,}" for each in holdings],
        "nodes": both(lambda each: each.nodes),
        "halo": both(lambda each: each.halo),
        "messages": both(lambda each: each.messages),
        "inside": [_percent(each.inside) for each in holdings],
        "a step": [decimal(each.need.step) for each in holdings],
    }


def _facts(title: str, facts: dict[str, str]) -> Table:
    table = Table(title=title, show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
