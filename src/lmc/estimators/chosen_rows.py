"""Some rows of a matrix, whose derivatives are written where they are from: none is there twice."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lmc.kernels import kernels_for


def chosen_rows(z: Tensor, rows: Tensor) -> Tensor:
    """(rows, width) of (all, width), by distinct numbers; `z[rows]`, whose way back torch goes in one thread.

    >>> import torch
    >>> z = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    >>> chosen = chosen_rows(z, torch.tensor([2, 0]))
    >>> chosen.backward(torch.tensor([[5.0], [7.0]]))
    >>> chosen.tolist(), z.grad.tolist()
    ([[3.0], [1.0]], [[7.0], [0.0], [5.0]])
    """
    chosen: Tensor = _Chosen.apply(z, rows)  # type: ignore[no-untyped-call]
    return chosen


class _Chosen(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.count = len(z)
        return z.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        of_all = derivative.new_zeros(ctx.count, derivative.shape[1])
        kernels_for(of_all).put_rows(rows, derivative, of_all)
        return of_all, None
