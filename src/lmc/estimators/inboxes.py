"""What shards read of each other's histories: copied into inboxes before a step, or during the one before.

With `overlap`, what the next step of the epoch will read is taken when a step begins, sent while it computes,
and put into inboxes when it ends: values of other shards' nodes are then one step older. The first step of an
epoch, whose batches may depend on what the epoch before has shown, reads them as they are when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from lmc.batching.shard_sampler import Turn
from lmc.device import on_host
from lmc.estimators.estimator import Estimator
from lmc.estimators.shard_places import NOTHING, Exchange, ShardPlaces
from lmc.processes import Processes

MESSAGE = 1 << 27
"""Bytes that a process says to another at once, at most, as far as layers can be said one by one."""
Arriving = list[tuple[list[Tensor], Callable[[], Tensor]]]
"""Histories, some at a time, and what waits for the message with the rows that they get."""


class OnTheWay(NamedTuple):
    """What will be in inboxes when a step has ended.

    Attributes:
        exchange: which rows.
        arriving: the rows.
    """

    exchange: Exchange
    arriving: Arriving


class Inboxes:
    """The inboxes of one process's shards.

    Args:
        inner: whose histories; bound with `places`.
        places: where historical values are.
        processes: that share the shards.
        overlap: whether rows are sent during the step before.

    Attributes:
        ahead: the places whose rows, one step older, wait for the next step; None where it will fetch them.
    """

    def __init__(
        self, inner: Estimator, places: ShardPlaces, processes: Processes, overlap: bool = False
    ) -> None:
        self._inner, self._places, self._processes = inner, places, processes
        self.overlap = overlap
        self.ahead: Tensor | None = None

    # -- a step --------------------------------------------------------------------------------------

    @contextmanager
    def of_step(self, turn: Turn) -> Iterator[Exchange]:
        """The step's rows are in the inboxes in this context; at its end, those of the next one are."""
        exchange = self._places.exchange(turn.groups)
        if self.ahead is None:
            self._put(exchange, self._begun(exchange))
        self.ahead, coming = None, None
        if self.overlap and turn.then is not None:
            following = self._places.exchange(turn.then)
            coming = OnTheWay(following, self._begun(following, aside=True))
        yield exchange
        if coming is not None:
            self._put(*coming)
            self.ahead = coming.exchange.targets

    @contextmanager
    def of_frozen_step(self, turn: Turn) -> Iterator[Exchange]:
        """The rows in the inboxes are as they are now; at the end of this context, inboxes are as before."""
        waiting = [] if self.ahead is None else [store[self.ahead] for store in self._all()]
        exchange = self._places.exchange(turn.groups)
        self._put(exchange, self._begun(exchange))
        yield exchange
        for store, rows in zip(self._all(), waiting, strict=False):
            store[self.ahead] = rows

    def return_written(self, exchange: Exchange, written: dict[int, Tensor]) -> None:
        """Have what shards wrote of others' nodes land there, in the order of shards.

        Args:
            exchange: how it came there.
            written: by shard, the places that it wrote itself: what shards before it wrote there is lost.
        """
        counts = [len(part.places) for part in exchange.parts]
        lands = [
            ~torch.isin(part.places, written[part.shows] if part.reads < part.shows else NOTHING)
            for part in exchange.parts
        ]
        for stored in self._stored():
            message = packed_rows(stored, exchange.targets, exchange.received)
            arrived = self._carried(stored, message, exchange.received, exchange.sent)()
            rows = [on_host(each[:0]).new_empty(sum(counts), each.shape[1]) for each in stored]
            unpack_rows(arrived, rows, torch.arange(sum(counts)), exchange.sent)
            for each, found in zip(stored, rows, strict=True):
                for part, values, kept in zip(exchange.parts, torch.split(found, counts), lands, strict=True):
                    each[part.places[kept]] = values[kept].to(each.device)

    # -- what waits for the next step ------------------------------------------------------------------

    def waiting(self, shard: int) -> Tensor:
        """(rows,) where in a shard's inbox rows wait for the next step; none of another process's shard."""
        inbox = self._places.inboxes.get(shard, range(0))
        ahead = NOTHING if self.ahead is None else self.ahead
        return ahead[(ahead >= inbox.start) & (ahead < inbox.stop)].sort()[0] - inbox.start

    def wait_again(self, shard: int, waiting: Tensor) -> Tensor:
        """The places of rows that wait in a shard's inbox; ValueError where it has no such rows."""
        inbox = self._places.inboxes[shard]
        if bool(((waiting < 0) | (waiting >= len(inbox))).any()):
            raise ValueError(f"shard {shard}: ahead must be rows of its {len(inbox)} neighbours in others")
        places = inbox.start + waiting
        self.ahead = torch.cat([NOTHING if self.ahead is None else self.ahead, places])
        return places

    # -- rows ----------------------------------------------------------------------------------------

    def _begun(self, exchange: Exchange, aside: bool = False) -> Arriving:
        """Rows as they are now, on their way."""
        begun: Arriving = []
        for stored in self._stored():
            message = packed_rows(stored, exchange.sources, exchange.sent)
            counts = exchange.sent, exchange.received
            begun.append((stored, self._carried(stored, message, *counts, aside)))
        return begun

    def _put(self, exchange: Exchange, arriving: Arriving) -> None:
        """Wait for rows, and have them in the inboxes."""
        for stored, arrived in arriving:
            unpack_rows(arrived(), stored, exchange.targets, exchange.received)

    def _all(self) -> list[Tensor]:
        """(places, entries) each history as it is in use."""
        return [store.snapshot() for store in self._inner.stores.values()]

    def _stored(self) -> Iterator[list[Tensor]]:
        """(places, entries) each, as many histories as a message may carry."""
        together, size = list[Tensor](), 0
        for each in self._all():
            bytes_of_row = each.shape[1] * each.itemsize
            if together and (size + bytes_of_row) * self._most_rows > MESSAGE:
                yield together
                together, size = [], 0
            together.append(each)
            size += bytes_of_row
        if together:
            yield together

    @cached_property
    def _most_rows(self) -> int:
        """More rows than this go to no process, and come from none, at a step."""
        return max(map(int, self._processes.gather(torch.tensor(len(self._places)))))

    def _carried(
        self,
        stored: Sequence[Tensor],
        message: Tensor,
        sent: list[int],
        received: list[int],
        aside: bool = False,
    ) -> Callable[[], Tensor]:
        """What waits for a message of others, with so many rows of each history from each of them."""
        width = sum(each.shape[1] for each in stored)
        sizes = ([width * count for count in counts] for counts in (sent, received))
        if aside:
            return self._processes.start_exchange(message, *sizes)
        arrived = self._processes.exchange(message, *sizes)
        return lambda: arrived


def packed_rows(stored: Sequence[Tensor], places: Tensor, counts: list[int]) -> Tensor:
    """(entries,) the rows of histories at some places, so many for each process, as one message.

    >>> stored = [torch.tensor([[1], [2]]), torch.tensor([[3, 4], [5, 6]])]
    >>> message = packed_rows(stored, torch.tensor([1, 0]), [1, 1])
    >>> message.tolist()
    [2, 5, 6, 1, 3, 4]
    >>> unpack_rows(message, stored, torch.tensor([0, 1]), [1, 1])
    >>> stored[0].tolist(), stored[1].tolist()
    ([[2], [1]], [[5, 6], [3, 4]])
    """
    widths = [each.shape[1] for each in stored]
    message = on_host(stored[0][:0]).new_empty(len(places) * sum(widths))
    for number, rows, part in _pieces(widths, counts):
        message[part] = on_host(stored[number][places[rows]]).flatten()
    return message


def unpack_rows(message: Tensor, stored: Sequence[Tensor], places: Tensor, counts: list[int]) -> None:
    """Write the rows of a message, so many of each process, to places of histories."""
    widths = [each.shape[1] for each in stored]
    for number, rows, part in _pieces(widths, counts):
        into = stored[number]
        into[places[rows]] = message[part].view(-1, widths[number]).to(into.device)


def _pieces(widths: list[int], counts: list[int]) -> Iterator[tuple[int, slice, slice]]:
    """Of a message: which history, which of all rows, and which entries."""
    row = entry = 0
    for count in counts:
        for number, width in enumerate(widths):
            yield number, slice(row, row + count), slice(entry, entry := entry + count * width)
        row += count
