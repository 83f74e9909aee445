"""Node-wise functions with the way back of their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Traced:
    """A function at given inputs: its value, and vector-Jacobian products on demand.

    What is asked of `pull` is all that is computed, so rows whose parameters are not asked for leave no
    trace in a parameter.

    >>> square = Traced(lambda x: x**2, torch.tensor([3.0]))
    >>> square.value.tolist(), square.pull(torch.tensor([1.0]), *square.inputs)[0].tolist()
    ([9.0], [6.0])
    """

    def __init__(self, function: Callable[..., Tensor], *inputs: Tensor) -> None:
        self.inputs = [x.detach().requires_grad_() for x in inputs]
        with torch.enable_grad():
            self._output = function(*self.inputs)
        self.value = self._output.detach()

    def forget_inputs(self) -> None:
        """Keep the value alone: nothing can be pulled any more."""
        del self.inputs, self._output

    def pull(self, derivative: Tensor, *wanted: Tensor) -> list[Tensor]:
        """The derivative at the output, carried back to each of `wanted`; None where nothing arrives."""
        return list(
            torch.autograd.grad(self._output, wanted, derivative, retain_graph=True, allow_unused=True)
        )


class Gradients:
    """Sums of derivatives by parameter."""

    def __init__(self) -> None:
        self.of: dict[nn.Parameter, Tensor] = {}

    def pull(
        self, traced: Traced, derivative: Tensor, parameters: Iterable[nn.Parameter], *wanted: Tensor
    ) -> list[Tensor]:
        """`traced.pull`, which on its way adds to each parameter what the derivative gives to it."""
        trained = self._trained(parameters)
        if not trained and not wanted:
            return []
        found = traced.pull(derivative, *wanted, *trained)
        for parameter, gradient in zip(trained, found[len(wanted) :], strict=True):
            if gradient is not None:
                known = self.of.get(parameter)
                self.of[parameter] = gradient if known is None else known + gradient
        return found[: len(wanted)]

    def _trained(self, parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        return [p for p in parameters if p.requires_grad]


class NoGradients(Gradients):
    """For passes that are after values only."""

    def _trained(self, parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        return []
