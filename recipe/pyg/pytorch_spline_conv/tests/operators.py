"""Test the spline convolution against B-splines (Cox and de Boor's recursion) and a dense product, with gradients."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close
from torch_spline_conv import spline_basis, spline_conv, spline_weighting


def cardinal(at: Tensor, degree: int) -> Tensor:
    """Return the B-spline over the knots 0, 1, …, degree + 1."""
    if degree == 0:
        return ((at >= 0) & (at < 1)).to(at.dtype)
    rising = cardinal(at, degree - 1)
    falling = cardinal(at - 1, degree - 1)
    return (at * rising + (degree + 1 - at) * falling) / degree


def one_dimension(at: Tensor, knots: int, is_open: bool, degree: int) -> Tensor:
    """Return the values of all basis functions at points in [0, 1], one row per point."""
    scaled = at * knots
    if is_open:
        scaled = at * (knots - degree)
    columns = []
    for knot in range(knots):
        column = cardinal(scaled - knot + degree, degree)
        if not is_open:  # a closed spline continues at its beginning
            column = column + cardinal(scaled - knot - knots + degree, degree)
        columns.append(column)
    return torch.stack(columns, dim=1)


def dense_basis(pseudo: Tensor, kernel_size: list[int], is_open: list[bool], degree: int) -> Tensor:
    """Return products over the dimensions, the first one fastest, as a matrix: edges x kernel."""
    result = torch.ones(len(pseudo), 1, dtype=pseudo.dtype, device=pseudo.device)
    for dimension, knots in enumerate(kernel_size):
        column = one_dimension(pseudo[:, dimension], knots, is_open[dimension], degree)
        result = (column[:, :, None] * result[:, None, :]).flatten(1)
    return result


CASES = [
    ([5], [True], 1),
    ([5, 4], [True, False], 1),
    ([5, 6], [False, True], 2),
    ([5, 5, 4], [True, False, True], 3),
]


def test_basis_is_that_of_b_splines(device: torch.device) -> None:
    for kernel_size, is_open, degree in CASES:
        pseudo = torch.rand(20, len(kernel_size), dtype=torch.float64, device=device)
        basis, where = spline_basis(
            pseudo,
            torch.tensor(kernel_size, device=device),
            torch.tensor(is_open, device=device).byte(),
            degree,
        )
        found = basis.new_zeros(20, prod(kernel_size)).scatter_add_(1, where, basis)
        assert_close(found, dense_basis(pseudo, kernel_size, is_open, degree))
        assert_close(basis.sum(1), torch.ones_like(basis[:, 0]))


def test_weighting_is_a_product_with_the_basis(device: torch.device) -> None:
    x = torch.randn(7, 3, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.randn(10, 3, 4, dtype=torch.float64, device=device, requires_grad=True)
    basis = torch.rand(7, 2, dtype=torch.float64, device=device, requires_grad=True)
    where = torch.randint(0, 10, (7, 2), device=device)
    expected = torch.einsum("es,ei,esio->eo", basis, x, weight[where])
    assert_close(spline_weighting(x, weight, basis, where), expected)
    assert gradcheck(lambda *inputs: spline_weighting(*inputs, where), (x, weight, basis))


def test_convolution_with_gradients(device: torch.device) -> None:
    rows = [0, 0, 1, 2, 3, 3]
    columns = [1, 2, 3, 0, 0, 1]
    edges = torch.tensor([rows, columns], device=device)
    for kernel_size, is_open, degree in CASES:
        sizes = torch.tensor(kernel_size, device=device)
        opened = torch.tensor(is_open, device=device).byte()
        x = torch.randn(5, 2, dtype=torch.float64, device=device, requires_grad=True)
        weight = torch.randn(prod(kernel_size), 2, 3, dtype=torch.float64, device=device, requires_grad=True)
        pseudo = torch.rand(6, len(kernel_size), dtype=torch.float64, device=device, requires_grad=True)
        root = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
        inputs = (x, weight, pseudo, root)

        messages = torch.einsum(
            "ek,ei,kio->eo", dense_basis(pseudo, kernel_size, is_open, degree), x[columns], weight
        )
        received = torch.zeros(5, 3, dtype=torch.float64, device=device)
        for node in set(rows):
            received[node] = messages[edges[0] == node].mean(0)
        expected = received + x @ root
        found = spline_conv(x, edges, pseudo, weight, sizes, opened, degree, True, root)
        assert_close(found, expected)

        factors = torch.randn_like(expected)
        assert_close(
            torch.autograd.grad((found * factors).sum(), inputs),
            torch.autograd.grad((expected * factors).sum(), inputs),
        )
