"""A convolution tried on five rows: everything that is outside of a row's own messages is changed in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lmc.data.batch import Edges

TARGETS, SOURCES, MESSAGES = 5, 10, 15
WATCHED = (0, 1, 2)
"""The rows that must stay what they are. 3 and 4 are targets too, and 4, 5 and 9 send nothing to those."""

_SENDERS = ((1, 6, 7), (3, 7, 8), (0, 6, 2), (9, 6, 4), (3, 9, 7))
"""By target; 3, 6 and 7 send to rows that are watched and to others, and 2 to itself."""


@dataclass(frozen=True)
class Trial:
    """What a convolution is given.

    Attributes:
        sources: (sources, in) messages; those of the targets come first.
        targets: how many they are.
        edges: in the order of the targets.
        watched: (watched,) where the rows that are compared are.
        growth: by how much other values may be larger, so that they are the largest of all; 1 if the messages
            are real, and should stay so.
    """

    sources: Tensor
    targets: int
    edges: Edges
    watched: Tensor
    growth: float

    @staticmethod
    def of(message: Tensor, weight: Tensor | None, attr: Tensor | None, kind: Tensor, growth: float) -> Trial:
        """The first one, of (10, in) messages and of weights, features and types of 15 edges."""
        ends = [[source, target] for target, senders in enumerate(_SENDERS) for source in senders]
        edges = Edges(torch.tensor(ends).T, weight, attr, kind)
        return Trial(message, TARGETS, edges, torch.tensor(WATCHED), growth)

    @property
    def to_others(self) -> Tensor:
        """(edges,) bool: which go to rows that are not watched."""
        return ~torch.isin(self.edges.ends[1], self.watched)

    def with_edges(self, ends: Tensor, kept: Tensor) -> Trial:
        """With other ends, (2, edges), each with what the edge `kept` has besides."""
        return replace(self, edges=replace(self.edges.where(kept), ends=ends))

    def renumbered(self, order: Tensor, targets: int) -> Trial:
        """With rows in another order, (sources,), of which the first are the targets."""
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        ends = place[self.edges.ends]
        kept = torch.argsort(ends[1], stable=True)
        moved = self.with_edges(ends[:, kept], kept)
        return replace(moved, sources=self.sources[order], targets=targets, watched=place[self.watched])


def changes(first: Trial) -> Iterator[tuple[str, Trial]]:
    """What is outside of the watched rows' messages, by name, and the trial with another such.

    Values are those of other rows and edges, and may be larger.
    """
    if first.edges.weight is not None:
        weight = torch.where(first.to_others, 3 * first.edges.weight, first.edges.weight)
        yield "the weights of other edges", replace(first, edges=replace(first.edges, weight=weight))
    if first.edges.attr is not None:
        other = first.growth * first.edges.attr.roll(4, 0)
        attr = torch.where(first.to_others[:, None], other, first.edges.attr)
        yield "the features of other edges", replace(first, edges=replace(first.edges, attr=attr))
    assert first.edges.type is not None
    kind = torch.where(first.to_others, first.edges.type.flip(0), first.edges.type)
    yield "the types of other edges", replace(first, edges=replace(first.edges, type=kind))
    for name, change in CHANGES.items():
        yield name, change(first)


def _other_values(first: Trial) -> Trial:
    sources = first.sources.clone()
    sources[[4, 5, 9]] = first.growth * first.sources[[0, 7, 2]]
    return replace(first, sources=sources)


def _other_order(first: Trial) -> Trial:
    """Each row's messages from the last to the first."""
    kept = torch.arange(len(first.edges.ends[1])).view(TARGETS, -1).flip(1).flatten()
    return first.with_edges(first.edges.ends[:, kept], kept)


def _other_senders(first: Trial) -> Trial:
    """As many to each row, from others."""
    source, target = first.edges.ends
    source = torch.where(first.to_others, (source + 2) % SOURCES, source)
    return first.with_edges(torch.stack([source, target]), torch.arange(len(source)))


def _more_messages(first: Trial) -> Trial:
    """None to row 3, and eight to row 4."""
    kept = torch.cat([torch.arange(9), torch.arange(8)])
    ends = first.edges.ends[:, kept]
    ends[1, 9:] = 4
    return first.with_edges(ends, kept)


def _more_sources(first: Trial) -> Trial:
    return replace(first, sources=torch.cat([first.sources, first.sources[:7]]))


def _fewer_targets(first: Trial) -> Trial:
    """Rows 3 and 4 are sources only."""
    kept = (~first.to_others).nonzero()[:, 0]
    return replace(first.with_edges(first.edges.ends[:, kept], kept), targets=len(WATCHED))


def _other_numbers(first: Trial) -> Trial:
    return first.renumbered(torch.tensor([0, 1, 2, 3, 4, 8, 9, 5, 7, 6]), TARGETS)


def _other_rows(first: Trial) -> Trial:
    return first.renumbered(torch.tensor([4, 2, 0, 3, 1, 5, 6, 7, 8, 9]), TARGETS)


CHANGES: dict[str, Callable[[Trial], Trial]] = {
    "the order of edges": _other_order,
    "the values of other nodes": _other_values,
    "what other rows receive": _other_senders,
    "the number of other edges": _more_messages,
    "the numbering of the sources": _other_numbers,
    "the numbering of the targets": _other_rows,
    "the number of sources": _more_sources,
    "the number of targets": _fewer_targets,
}
