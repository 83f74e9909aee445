"""PyG's convolutions of several hops: a linear layer for each hop, with a boundary right after its sum.

With A the normalised adjacency and x the message into the first hop, all but GatedGraphConv are polynomials

    z = x W_0 + A x W_1 + .. + Aᴷ x W_K + b

and take Horner's form: each hop multiplies by A, once and in the width of the output, and adds what it takes
of x. A node has its own x at hand: histories keep z alone. Each hop keeps the very module that it was
given, and reads its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from lmc.data.normalization import Norm
from lmc.errors import ArgumentError
from lmc.nn.activation import Activation
from lmc.nn.convolution import CONVOLUTION
from lmc.nn.dropout import Dropout
from lmc.nn.hooks import is_changed, is_linear, is_plain
from lmc.nn.linear_convolutions import ReadConvolution, is_read
from lmc.nn.model import MOST_LAYERS, LinearLayer
from lmc.nn.node_wise import Identity, NodeWise, NodeWiseModule
from lmc.nn.rows import Rows


class Hop(ReadConvolution):
    """A hop of a convolution: z = step(A h, x), with h the z of the hop before, at first x.

    Args:
        conv: the convolution.
        message: what comes before the hop, node by node.
        place: of the hop, from 1 to `hops`.
        hops: of the convolution.
    """

    reads_x: bool = True

    def __init__(self, conv: Any, message: NodeWise, place: int, hops: int) -> None:
        super().__init__(conv, message)
        self.place, self.hops, self.left = place, hops, hops - place
        self.aggregation = _normalization(conv)
        self.opens = place == 1
        self.reads_own = self.reads_x and self.opens
        self.reads = (place - 1,) if self.reads_x and not self.opens else ()

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether a call of the convolution would give the same."""
        return _why_not(conv) is None

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        z = self.step(aggregated, own if self.opens else initial)
        bias = None if self.left else self.bias
        return z if bias is None else z + bias

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, out) of the sums and of x, without the bias."""
        return received

    @property
    def bias(self) -> Tensor | None:
        """(out,) what the last hop adds."""
        return None


class LGConvHop(Hop):
    """z = A x."""

    reads_x = False


class SGConvHop(Hop):
    """z = Aᴷ x W + b."""

    reads_x = False

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or out) to (rows, out)."""
        return linear(received, self.conv.lin.weight) if self.opens else received

    @property
    def bias(self) -> Tensor | None:
        """(out,) or None."""
        bias: Tensor | None = self.conv.lin.bias
        return bias


class SSGConvHop(SGConvHop):
    """z = alpha y + (1 - alpha) / K (A y + .. + Aᴷ y) + b, with y = x W."""

    reads_x = True

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or out) to (rows, out)."""
        received, y, alpha = super().step(received, x), linear(x, self.conv.lin.weight), self.conv.alpha
        return received + y if self.left else (1 - alpha) / self.hops * received + alpha * y


class APPNPHop(Hop):
    """z = (1 - alpha) A h + alpha x."""

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, width) to (rows, width)."""
        alpha: float = self.conv.alpha
        return (1 - alpha) * received + alpha * x


class _OfWeights(Hop):
    """What polynomials with a matrix for every power share."""

    def first(self, received: Tensor) -> Tensor:
        """(rows, out) what arrives, through the matrix of the highest power if that is still to come."""
        return self.times(self.hops, received) if self.opens else received

    def times(self, power: int, x: Tensor) -> Tensor:
        """(rows, out) x W of this power."""
        out: Tensor = self.conv.lins[power](x)
        return out

    @property
    def bias(self) -> Tensor | None:
        """(out,) or None."""
        bias: Tensor | None = self.conv.bias
        return bias


class TAGConvHop(_OfWeights):
    """z = A h + x W, with W that of the hops that are left."""

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or out) to (rows, out)."""
        return self.first(received) + self.times(self.left, x)


class MixHopConvHop(_OfWeights):
    """z = [A h | x W], with W that of the hops that are left, if that power is wanted."""

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or columns so far) to (rows, columns)."""
        powers = self.conv.powers
        z = [self.first(received)] + ([self.times(self.left, x)] if self.left in powers else [])
        if self.left:
            return torch.cat(z, dim=1)
        falling = sorted(set(powers), reverse=True)
        of_power = dict(zip(falling, torch.cat(z, dim=1).chunk(len(falling), dim=1), strict=True))
        return torch.cat([of_power[power] for power in powers], dim=1)


class ChebConvHop(_OfWeights):
    """b_k = 2 L b_(k+1) - b_(k+2) + x W_k, at last z = L b_1 - b_2 + x W_0: Clenshaw's form.

    L is the Laplacian, scaled and shifted. b_(k+2) is the message into the hop before, at first x W.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.place > 2:
            self.reads = (*self.reads, 1)

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or out) to (rows, out); for x also [x | b_(k+2)]."""
        z = (2 if self.left else 1) * self.first(received)
        if self.opens:
            return z + self.times(self.left, x)
        if self.place == 2:
            return z + self.times(self.left, x) - self.times(self.hops, x)
        width = x.shape[1] - z.shape[1]
        return z + self.times(self.left, x[:, :width]) - x[:, width:]


class ARMAConvHop(Hop):
    """z = A h W + dropout(x) V + b for each of the stacks, side by side; h = act(z) of the hop before."""

    def __init__(self, conv: Any, *given: Any) -> None:
        super().__init__(conv, *given)
        self.dropout = Dropout(conv.dropout)

    def update_at(self, rows: Rows, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in or stacks * out) to (rows, stacks * out), in training with a dropout of x of its own."""
        x = self.dropout(own if self.opens else initial, rows.within(CONVOLUTION))
        return self.update(aggregated, x, x)

    def step(self, received: Tensor, x: Tensor) -> Tensor:
        """(rows, in or stacks * out) to (rows, stacks * out)."""
        conv, t = self.conv, 0 if self.conv.shared_weights else self.place - 1
        root = x @ _side_by_side(conv.root_weight[t])
        if conv.bias is not None:
            root = root + conv.bias[t].flatten()
        if self.opens:
            return received @ _side_by_side(conv.init_weight) + root
        received = _stacked(received, conv.num_stacks) @ conv.weight[max(0, t - 1)]
        return _side_by_side(received) + root


class GatedGraphConvHop(Hop):
    """z = [A h W | h]; the cell that makes the next h of both works node by node, after the boundary."""

    reads_x = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reads_own = True

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, 2 out); what x lacks in width is zero."""
        weight = self.conv.weight[self.place - 1]
        lacking = len(weight) - own.shape[1]
        if lacking < 0:
            rule = f"must be at most {len(weight)}, which it gives"
            raise ArgumentError(f"GatedGraphConv: its input has {own.shape[1]} columns; {rule}")
        return torch.cat([aggregated @ weight[: own.shape[1]], pad(own, (0, lacking))], dim=1)


class Gate(nn.Module):
    """GatedGraphConv's cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, z: Tensor) -> Tensor:
        """(rows, 2 out) to (rows, out)."""
        h: Tensor = self.cell(*z.chunk(2, dim=1))
        return h


class OnStacks(nn.Module):
    """A function of ARMAConv's stacks, (stacks, rows, out), on stacks that are side by side."""

    def __init__(self, function: Callable[[Tensor], Tensor], stacks: int) -> None:
        super().__init__()
        self.function, self.stacks = function, stacks

    def forward(self, z: Tensor) -> Tensor:
        """(rows, stacks * out) to (rows, stacks * out)."""
        return _side_by_side(self.function(_stacked(z, self.stacks)))


class MeanOfStacks(nn.Module):
    """What ARMAConv does at its end."""

    def __init__(self, stacks: int) -> None:
        super().__init__()
        self.stacks = stacks

    def forward(self, z: Tensor) -> Tensor:
        """(rows, stacks * out) to (rows, out)."""
        return _stacked(z, self.stacks).mean(dim=0)


def _side_by_side(stacks: Tensor) -> Tensor:
    """(rows, stacks * out) of (stacks, rows, out)."""
    return stacks.transpose(0, 1).flatten(1)


def _stacked(z: Tensor, stacks: int) -> Tensor:
    """(stacks, rows, out) of (rows, stacks * out)."""
    return z.reshape(len(z), stacks, z.shape[1] // stacks).transpose(0, 1)


# -- from a convolution to its hops ---------------------------------------------------------------


class Hops(NamedTuple):
    """A convolution of several hops.

    Attributes:
        layers: one for each hop.
        after: the modules of the convolution that come after the last boundary.
    """

    layers: list[LinearLayer]
    after: list[nn.Module]


def hops_of(conv: Any, message: NodeWise, title: str) -> Hops | None:
    """The hops of a convolution; None if it is not one of several hops.

    Args:
        conv: the convolution.
        message: what comes before it, node by node.
        title: what errors call it.

    Raises:
        ArgumentError: where it has an option that has no such form, and why.
    """
    kinds = _kinds()
    if type(conv) not in kinds:
        return None
    kind, hops = kinds[type(conv)]
    if (reason := _why_not(conv)) is not None:
        raise ArgumentError(f"{title}: {reason}")
    count = hops(conv)
    between, after = _between(conv)
    messages = [message, *(between() for _ in range(count - 1))]
    return Hops([kind(conv, sent, place, count) for place, sent in enumerate(messages, start=1)], after)


def keeps_input(conv: nn.Module) -> bool:
    """Whether it keeps what it has once made of its input, as SGConv and SSGConv do if they are `cached`."""
    from torch_geometric import nn as pyg

    return type(conv) in (pyg.SGConv, pyg.SSGConv) and bool(conv.cached)


def _kinds() -> dict[type, tuple[type[Hop], Callable[[Any], int]]]:
    """By convolution, the layer of a hop, and how many there are."""
    from torch_geometric import nn as pyg

    return {
        pyg.LGConv: (LGConvHop, lambda conv: 1),
        pyg.SGConv: (SGConvHop, lambda conv: conv.K),
        pyg.SSGConv: (SSGConvHop, lambda conv: conv.K),
        pyg.APPNP: (APPNPHop, lambda conv: conv.K),
        pyg.TAGConv: (TAGConvHop, lambda conv: conv.K),
        pyg.ChebConv: (ChebConvHop, lambda conv: len(conv.lins) - 1),
        pyg.MixHopConv: (MixHopConvHop, lambda conv: len(conv.lins) - 1),
        pyg.ARMAConv: (ARMAConvHop, lambda conv: conv.num_layers),
        pyg.GatedGraphConv: (GatedGraphConvHop, lambda conv: conv.num_layers),
    }


def _why_not(conv: Any) -> str | None:
    """Why it has no such form; None if it has one."""
    from torch_geometric import nn as pyg

    _, hops = _kinds()[type(conv)]
    if not 1 <= hops(conv) <= MOST_LAYERS:
        return f"has {hops(conv)} hops; must be 1 to {MOST_LAYERS}"
    if getattr(conv, "aggr", None) not in ("add", "sum"):
        return f"aggr={conv.aggr!r}; hops are linear, and exact, for aggr='add' alone"
    if isinstance(conv, pyg.APPNP) and conv.dropout > 0:
        rule = "must be 0; an nn.Dropout before it is taken"
        return f"dropout={conv.dropout} drops edges, others at every hop; {rule}"
    for name, module in conv.named_modules():
        if is_changed(module):
            where = f" on {name}" if name else ""
            return f"has hooks or methods of its own{where}, which hop by hop would not be called"
    if isinstance(conv, pyg.SGConv | pyg.SSGConv) and not is_read(conv.lin):
        return f"its lin is a {type(conv.lin).__name__}; must be a Linear, of which weight and bias are taken"
    for power, lin in enumerate(getattr(conv, "lins", ())):
        # A sum of messages is mapped in place of each only by what is linear, without a bias.
        if not isinstance(lin, nn.Identity) and not (is_linear(lin) and lin.bias is None):
            kind = f"{type(lin).__name__} with a bias" if is_linear(lin) else type(lin).__name__
            return f"lins[{power}] is a {kind}; must be a Linear without a bias"
    return None


def _between(conv: Any) -> tuple[Callable[[], NodeWise], list[nn.Module]]:
    """What makes the message into every hop but the first, and the modules after the last."""
    from torch_geometric import nn as pyg

    if isinstance(conv, pyg.GatedGraphConv):
        gate = Gate(conv.rnn)
        return lambda: NodeWiseModule(gate), [gate]
    if not isinstance(conv, pyg.ARMAConv):
        return Identity, []
    mean: list[nn.Module] = [MeanOfStacks(conv.num_stacks)] if conv.num_stacks > 1 else []
    if conv.act is None:
        return Identity, mean
    if is_plain(conv.act, nn.ReLU):
        return lambda: Activation(nn.Identity(), 0.0), [nn.ReLU(), *mean]
    act = OnStacks(conv.act, conv.num_stacks)
    return lambda: NodeWiseModule(act), [act, *mean]


def _normalization(conv: Any) -> Norm:
    """Which normalisation of the whole graph a convolution of several hops asks for."""
    from torch_geometric import nn as pyg

    if isinstance(conv, pyg.ChebConv):
        kinds: dict[str | None, Norm] = {"sym": "chebyshev sym", "rw": "chebyshev rw", None: "chebyshev"}
        return kinds[conv.normalization]
    if isinstance(conv, pyg.GatedGraphConv) or not getattr(conv, "normalize", True):
        return "sum"
    with_loops = getattr(conv, "add_self_loops", False)
    return "gcn" if with_loops else "gcn without loops"
