"""Products by oneDNN: beside float64, with any number of threads, and only those that are asked for."""

import pytest
import torch

import test_threads
from lmc.nn import products
from test_threads import equal_with_any_threads, threads_as_before

__all__ = ["threads_as_before"]

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch is built without oneDNN"
)
HAS_BF16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
TYPES = [
    torch.float32,
    pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not HAS_BF16, reason="the processor has no bf16")),
]
ROWS = [1, 2, 17, 100, 511, 512, 513, 1700, 8192, 17_003]


@pytest.fixture(autouse=True)
def by_onednn(monkeypatch):
    """Also where torch's own would serve as well."""
    monkeypatch.setattr(products, "_has_onednn", lambda dtype: True)


def given(rows, width, out, dtype, seed=0):
    torch.manual_seed(seed)
    weight, bias = torch.randn(out, width) / width**0.5, torch.randn(out)
    tensors = torch.randn(rows, width), weight, bias, torch.randn(rows, out)
    return [tensor.to(dtype) for tensor in tensors]


def value_and_derivatives(function, z, weight, bias, derivative):
    inputs = [tensor.detach().clone().requires_grad_() for tensor in (z, weight, bias)]
    value = function(*inputs)
    return [value.detach(), *torch.autograd.grad(value, inputs, derivative)]


def relative(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("width", "out"), [(33, 40), (64, 1), (1, 7)])
def test_value_and_derivatives_are_those_of_float64(rows, width, out, dtype):
    tensors = given(rows, width, out, dtype)
    exact = value_and_derivatives(lambda z, w, b: z @ w.T + b, *(tensor.double() for tensor in tensors))
    found = value_and_derivatives(products.linear, *tensors)
    error = {torch.float32: 2e-6, torch.bfloat16: 8e-3}[dtype]
    assert [tensor.dtype for tensor in found] == [dtype] * 4
    assert max(relative(a, b) for a, b in zip(found, exact, strict=True)) < error


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("width", "out"), [(256, 256), (34, 10), (64, 1), (128, 40)])
def test_the_bits_do_not_depend_on_the_number_of_threads(width, out, dtype, monkeypatch):
    monkeypatch.setattr(test_threads, "THREADS", (1, 2, 3, 4, 8))
    for rows in (3, 200, 2001, 20_000):
        tensors = given(rows, width, out, dtype)
        assert equal_with_any_threads(
            lambda tensors=tensors: value_and_derivatives(products.linear, *tensors)
        )


@pytest.mark.skipif(not HAS_BF16, reason="the processor has no bf16")
def test_under_autocast_parameters_keep_float32():
    z, weight, bias, derivative = given(700, 33, 40, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = value_and_derivatives(products.linear, z, weight, bias, derivative.bfloat16())
    assert [tensor.dtype for tensor in found] == [torch.bfloat16, *[torch.float32] * 3]
    exact = value_and_derivatives(
        lambda z, w, b: z @ w.T + b, *(t.double() for t in (z, weight, bias, derivative))
    )
    assert 1e-4 < max(relative(a, b) for a, b in zip(found, exact, strict=True)) < 8e-3


def test_only_what_is_asked_for_is_computed(monkeypatch):
    z, weight, bias, derivative = given(700, 33, 40, torch.float32)
    z, weight = z.requires_grad_(), weight.requires_grad_()
    value = products.linear(z, weight, bias)
    computed = []
    for name in ("_in_blocks", "_sum_of_products"):
        function = getattr(products, name)
        monkeypatch.setattr(
            products,
            name,
            lambda *args, name=name, function=function: computed.append(name) or function(*args),
        )
    torch.autograd.grad(value, z, derivative, retain_graph=True)
    torch.autograd.grad(value, weight, derivative, retain_graph=True)
    assert computed == ["_in_blocks", "_sum_of_products"]


def test_other_shapes_types_and_strides_are_taken():
    torch.manual_seed(1)
    for z in (torch.randn(3, 5, 8), torch.randn(8), torch.randn(0, 8), torch.randn(9, 16)[:, ::2]):
        weight = torch.randn(8, 4).T
        torch.testing.assert_close(products.linear(z, weight), z @ weight.T)
    z, weight = torch.randn(600, 8).requires_grad_(), torch.randn(4, 8).requires_grad_()
    products.linear(z, weight).sum().backward()  # a derivative that is one number, spread out
    torch.testing.assert_close(weight.grad, z.detach().sum(0).expand(4, 8), rtol=1e-4, atol=1e-4)
    doubles = torch.randn(600, 8).double(), torch.randn(4, 8).double()
    assert torch.equal(products.linear(*doubles), torch.nn.functional.linear(*doubles))


def test_what_does_not_fit_is_said_by_torch():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(10x6 and 7x3\)"):
        products.linear(torch.ones(10, 6), torch.ones(3, 7))
