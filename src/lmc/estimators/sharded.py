"""A step over shards: a batch of each, all from the same state, and the sum of what they say.

All shards of a step begin with what there was when it began: parameters, histories, the running statistics of
batch norms, and what β was found from. Their estimates are added up in the order of shards. Historical values
of a shard's own nodes are then those that it wrote. The few numbers that all shards share change by the mean
of what each shard would have changed in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lmc.batching.shard_sampler import ShardedSampler, Turn, shards_of
from lmc.data.batch import Batch
from lmc.device import on_host
from lmc.estimators.estimator import Estimator, Reference
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.inboxes import Inboxes
from lmc.estimators.shard_places import NOTHING, Exchange, ShardPlaces
from lmc.processes import Processes

AHEAD = "ahead"
"""In a state, whether rows of other shards wait for the next step; in a shard's, which, and their values."""
Said = tuple[float, dict[nn.Parameter, Tensor]]
"""A loss, and an estimate of every parameter's gradient."""


class Sharded(Estimator):
    """Estimates of whole steps, by an estimator that is bound with the places of its shards.

    Args:
        inner: whose estimates of batches.
        sampler: what yields the batches.
        places: where historical values are; None where there are none.
        processes: that share the shards.
        overlap: whether what a step reads of other shards is sent during the step before.
    """

    def __init__(
        self,
        inner: Estimator,
        sampler: ShardedSampler,
        places: ShardPlaces | None = None,
        processes: Processes | None = None,
        overlap: bool = False,
    ) -> None:
        self.inner, self._sampler, self._places = inner, sampler, places
        self._processes = processes or Processes()
        self._inboxes = None if places is None else Inboxes(inner, places, self._processes, overlap)
        self.precision, self.model, self.graph = inner.precision, inner.model, inner.graph
        self.loss, self.placement = inner.loss, inner.placement

    # -- the estimate --------------------------------------------------------------------------------

    def estimate(self, turn: Turn) -> Said:  # type: ignore[override]
        """The sum of the estimates of all shards' batches, in the order of shards."""
        with self._read(turn) as exchange:
            return self._estimate(turn, exchange)

    def _read(self, turn: Turn) -> AbstractContextManager[Exchange | None]:
        """What a step reads of other shards is in inboxes in this context."""
        if self._inboxes is None:
            return nullcontext()
        return self._inboxes.of_frozen_step(turn) if self.inner.is_frozen else self._inboxes.of_step(turn)

    def _estimate(self, turn: Turn, exchange: Exchange | None) -> Said:
        inner, first, shared = self.inner, self.inner._step, self._shared()
        began = [each.clone() for each in shared]
        said, ended, written = list[Said](), list[list[Tensor]](), dict[int, Tensor]()
        for batch in turn.batches:
            assert batch.shard is not None
            inner._step = first + batch.shard
            put(shared, began)
            said.append(inner.estimate(batch))
            ended.append([each.clone() for each in shared])
            if inner.writes_halo and self._places is not None:
                written[batch.shard] = self._places.places(batch.members, batch.shard)
        put(shared, began)
        loss, gradients, changed = self._together(said, ended, began)
        if inner.is_frozen:
            inner._step = first
            return loss, gradients
        inner._step = first + self._sampler.shards
        put(shared, changed)
        if exchange is not None and self._inboxes is not None and inner.writes_halo:
            self._inboxes.return_written(exchange, written)
        return loss, gradients

    def _shared(self) -> list[Tensor]:
        """What all shards read and change: running statistics, and what the method has found."""
        return [*self.model.buffers(), *self.inner.learned()]

    def _together(
        self, said: list[Said], ended: list[list[Tensor]], began: list[Tensor]
    ) -> tuple[float, dict[nn.Parameter, Tensor], list[Tensor]]:
        """Sums of what all shards say, and what becomes of `began`, on every process alike.

        Of what is counted, such as steps, all shards make the same.
        """
        parameters = list(said[0][1])
        like = [torch.zeros((), dtype=torch.float64), *said[0][1].values(), *began]
        own = [
            packed([torch.tensor(loss, dtype=torch.float64), *(gradients[p] for p in parameters), *after])
            for (loss, gradients), after in zip(said, ended, strict=True)
        ]
        rows = [row for part in self._processes.gather(torch.stack(own)) for row in part]
        each = list(zip(*(unpacked(row, like) for row in rows), strict=True))
        loss, *gradients_of = each[: 1 + len(parameters)]
        sums = {p: in_order(of_p) for p, of_p in zip(parameters, gradients_of, strict=True)}
        changed = [
            before + in_order([after - before for after in found]) / len(rows)
            if before.is_floating_point()
            else found[0]
            for before, found in zip(began, each[1 + len(parameters) :], strict=True)
        ]
        return float(in_order(loss)), sums, changed

    # -- its state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """That of `inner`, without histories: those are of shards."""
        inner = self.inner.state_dict()
        found = {name: value for name, value in inner.items() if name not in self.inner.stores}
        if self._inboxes is not None and self._inboxes.overlap:
            found[AHEAD] = torch.tensor(self._inboxes.ahead is not None)
        return found

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken; histories stay as they are."""
        state = dict(state)
        waits = bool(state.pop(AHEAD, False))
        if self._inboxes is not None:
            self._inboxes.ahead = NOTHING if waits else None
        histories = {name: store.snapshot() for name, store in self.inner.stores.items()}
        self.inner.load_state_dict(histories | state)

    def states(self) -> Iterator[dict[str, Tensor]]:
        """Of each shard, the histories of its own nodes by name, if there are any: on the first process.

        With them, rows of other shards that wait for its next step. Other processes call this together with
        the first one, and have no use for what they get.
        """
        waiting = self._of_each(lambda shard: len(self._waiting(shard)))
        for shard in range(self.kept_shards):
            own = {name: self._own(name, shard) for name in self.inner.stores}
            state = {name: self._moved(rows, self._rows[shard], shard) for name, rows in own.items()}
            if self._inboxes is not None and self._inboxes.ahead is not None:
                ahead = {AHEAD: self._waiting(shard)[:, None]} | {
                    f"{AHEAD}.{name}": store.snapshot()[self._inbox(shard).start + self._waiting(shard)]
                    for name, store in self.inner.stores.items()
                }
                state |= {name: self._moved(rows, waiting[shard], shard) for name, rows in ahead.items()}
            yield state

    @property
    def kept_shards(self) -> int:
        """Of how many shards there is something to keep: of all, or of none."""
        return self._sampler.shards if self.inner.stores else 0

    def load_state_of(self, shard: int, read: Callable[[], dict[str, Tensor]]) -> None:
        """Take the histories of a shard's own nodes that the first process has; ValueError for others."""
        state = read() if self._processes.rank == 0 else {}
        for name in self.inner.stores:
            own = self._own(name, shard)
            found = self._given(state, name, own[:0], self._rows[shard], shard)
            if shard in self._sampler.mine:
                own.copy_(found)
        if self._inboxes is None or self._inboxes.ahead is None:
            return
        count = int(self._processes.share(torch.tensor(len(state.get(AHEAD, NOTHING)))))
        which = self._given(state, AHEAD, NOTHING[:, None], count, shard)
        mine = shard in self._sampler.mine
        places = self._inboxes.wait_again(shard, which[:, 0]) if mine else NOTHING
        for name, store in self.inner.stores.items():
            each = store.snapshot()
            found = self._given(state, f"{AHEAD}.{name}", each[:0], count, shard)
            if mine:
                each[places] = found.to(each.device)

    def _given(self, state: dict[str, Tensor], name: str, like: Tensor, count: int, shard: int) -> Tensor:
        """(count, entries) of a shard that the first process has in a state, on the process of the shard."""
        given = state.get(name, like)
        rows = count if self._processes.rank == 0 else 0
        if (len(given), *like.shape[1:]) != (rows, *given.shape[1:]) or given.dtype != like.dtype:
            raise ValueError(f"shard {shard}: {name} must be of {like.dtype} and of {rows} rows")
        return self._moved(given, count, shard, back=True)

    def _moved(self, rows: Tensor, number: int, shard: int, back: bool = False) -> Tensor:
        """(number, entries) of a shard, from its process to the first one, or back."""
        rows, here, count = on_host(rows), self._processes.rank, self._processes.count
        owner = next(r for r in range(count) if shard in shards_of(r, count, self._sampler.shards))
        source, target = (0, owner) if back else (owner, 0)
        size = number * rows.shape[1]
        sent = [size * (here == source and peer == target) for peer in range(count)]
        received = [size * (here == target and peer == source) for peer in range(count)]
        data = rows.flatten() if here == source else rows.new_zeros(0)
        return self._processes.exchange(data, sent, received).reshape(-1, rows.shape[1])

    @cached_property
    def _rows(self) -> list[int]:
        """How many rows each shard has."""
        assert self._places is not None
        own = self._places.own
        return self._of_each(lambda shard: len(own[shard]))

    def _of_each(self, number: Callable[[int], int]) -> list[int]:
        """A number of each shard, which its process has."""
        own = torch.tensor([number(shard) for shard in self._sampler.mine])
        return [int(each) for part in self._processes.gather(own) for each in part]

    def _own(self, name: str, shard: int) -> Tensor:
        """(rows, entries) of a shard, as they are in use; none of a shard of another process."""
        assert self._places is not None
        own = self._places.own.get(shard, range(0))
        return self.inner.stores[name].snapshot()[own.start : own.stop]

    def _waiting(self, shard: int) -> Tensor:
        return NOTHING if self._inboxes is None else self._inboxes.waiting(shard)

    def _inbox(self, shard: int) -> range:
        assert self._places is not None
        return self._places.inboxes.get(shard, range(0))

    # -- what is that of `inner` ---------------------------------------------------------------------

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Estimates in this context are what they would be outside of it, and leave no trace."""
        with super().frozen(), self.inner.frozen():
            yield

    @property
    def whole(self) -> Batch:
        """The batch of all nodes, with all that was built for it."""
        return self.inner.whole

    def estimate_with(self, batch: Batch, halo: HaloPolicy) -> Said:
        """The estimate of a batch with any policy."""
        return self.inner.estimate_with(batch, halo)

    def references(self) -> Reference:
        """Of a step, the sum of the exact estimates of its batches."""
        of_batch = self.inner.references()

        def reference(turn: Any) -> dict[nn.Parameter, Tensor]:
            said, shared = list[Said](), self._shared()
            began = [each.clone() for each in shared]
            for batch in turn.batches:
                said.append((0.0, of_batch(batch)))
                put(shared, began)  # running statistics: other processes do not see what this one changes
            return self._together(said, [[] for _ in said], [])[1]

        return reference


def put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give tensors that are in use these values."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def in_order(terms: Sequence[Tensor]) -> Tensor:
    """Their sum, from the first to the last.

    >>> in_order([torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)])
    tensor(6.)
    """
    total, *others = terms
    for each in others:
        total = total + each
    return total


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """(bytes,) uint8 tensors of any types, one after the other, on the host.

    >>> one, other = unpacked(packed([torch.ones(2), torch.tensor(3)]), [torch.zeros(2), torch.tensor(0)])
    >>> one.tolist(), int(other)
    ([1.0, 1.0], 3)
    """
    return torch.cat([on_host(each).detach().contiguous().flatten().view(torch.uint8) for each in tensors])


def unpacked(data: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What `packed` was given: tensors of the shapes and types of these, where these are."""
    parts = torch.split(data, [each.numel() * each.itemsize for each in like])
    return [
        part.clone().view(each.dtype).reshape(each.shape).to(each.device)
        for part, each in zip(parts, like, strict=True)
    ]
