"""Functions at given inputs, with the way back of their derivatives: vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Computed:
    """A function at given inputs: its value, and vector-Jacobian products on demand.

    Only what is asked for is computed, so rows whose parameters are not asked for leave no trace in a
    parameter.

    Attributes:
        value: what the function gives, without a graph; `forget_value` gives back its memory.
        inputs: what it was given, to be asked for in `vjp`.

    >>> square = Computed(lambda x: x**2, torch.tensor([3.0]))
    >>> square.value.tolist(), square.vjp(torch.tensor([1.0]), *square.inputs)[0].tolist()
    ([9.0], [6.0])
    """

    def __init__(self, function: Callable[..., Tensor], *inputs: Tensor) -> None:
        self.inputs = [x.detach().requires_grad_() for x in inputs]
        self._derivative: list[Tensor] = []
        with torch.enable_grad():
            output = function(*self.inputs)
            self._end: Tensor = _End.apply(output, self._derivative)  # type: ignore[no-untyped-call]
        self.value = output.detach()

    def vjp(self, derivative: Tensor, *wanted: Tensor) -> list[Tensor]:
        """The derivative at the output, carried back to each of `wanted`; None where nothing arrives."""
        self._derivative.append(derivative)
        try:
            return list(torch.autograd.grad(self._end, wanted, retain_graph=True, allow_unused=True))
        finally:
            self._derivative.clear()

    def forget_value(self) -> None:
        """Keep the shape and type of the value alone; what is read of it from now on is no number."""
        self.value = self.value.new_full((), torch.nan).expand(self.value.shape)


class _End(Function):
    """Where derivatives come from: whatever the list has goes back to the output, which is not held.

    Given a derivative, `torch.autograd.grad` would load sympy to compare shapes, half a second and 40 MB.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, derivative: list[Tensor]) -> Tensor:
        ctx.derivative = derivative
        return output.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, one: Tensor) -> tuple[Tensor, None]:
        return ctx.derivative[0], None


class ParameterGradients:
    """Sums of derivatives over batch rows, by parameter: equations (6) and (7).

    Args:
        weights: (batch,) how much each batch row counts, or None where all count the same.
        wanted: whether parameters are asked for at all; some passes are after values only.
    """

    def __init__(self, weights: Tensor | None = None, wanted: bool = True) -> None:
        self.of: dict[nn.Parameter, Tensor] = {}
        self._weights, self._wanted = weights, wanted

    def vjp(
        self, computed: Computed, derivative: Tensor, parameters: Iterable[nn.Parameter], *wanted: Tensor
    ) -> list[Tensor]:
        """`computed.vjp`, which on its way adds to each parameter what the derivative gives to it.

        Args:
            computed: a function of batch rows, row by row.
            derivative: (batch, ...) at its output.
            parameters: those that it reads.
            wanted: inputs whose derivatives are given back.
        """
        trained = [p for p in parameters if p.requires_grad] if self._wanted else []
        if not trained and not wanted:
            return []
        if self._weights is None:
            found = computed.vjp(derivative, *wanted, *trained)
        else:  # derivatives travel on without the weights: those are of the sum over rows alone
            found = computed.vjp(derivative, *wanted) if wanted else []
            weights = self._weights.reshape(-1, *[1] * (derivative.ndim - 1))
            found += computed.vjp(weights * derivative, *trained) if trained else []
        for parameter, gradient in zip(trained, found[len(wanted) :], strict=True):
            if gradient is not None:
                known = self.of.get(parameter)
                self.of[parameter] = gradient if known is None else known + gradient
        return found[: len(wanted)]


@overload
def add(one: Tensor, /, *others: Tensor | None) -> Tensor: ...


@overload
def add(one: None, /, *others: Tensor | None) -> Tensor | None: ...


def add(one: Tensor | None, /, *others: Tensor | None) -> Tensor | None:
    """The sum of those that are there; None where none is."""
    there = [each for each in (one, *others) if each is not None]
    return sum(there[1:], start=there[0]) if there else None
