"""Test pyg-lib's operators against dense or brute-force references, with gradients."""

from __future__ import annotations

from typing import Any

import pyg_lib
import torch
from pyg_lib import ops
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close


def test_it_is_made_for_the_processor_that_torch_is_made_for(device: torch.device) -> None:
    cuda = torch.version.cuda
    expected = -1
    if cuda is not None:
        major, minor, *_ = cuda.split(".")
        expected = int(major) * 1000 + int(minor) * 10
    assert pyg_lib.cuda_version() == expected


def test_grouped_products_with_gradients(device: torch.device) -> None:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float32, device=device, requires_grad=True)

    left = [random(5, 16), random(3, 32)]
    right = [random(16, 24), random(32, 8)]
    found = ops.grouped_matmul(left, right)
    expected = [a @ b for a, b in zip(left, right, strict=True)]
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
    factors = [torch.randn_like(part) for part in expected]

    def gradients(parts: list[Tensor]) -> Any:
        total = sum((part * factor).sum() for part, factor in zip(parts, factors, strict=True))
        return torch.autograd.grad(total, [*left, *right])

    assert_close(gradients(found), gradients(expected), rtol=1e-4, atol=1e-4)


def test_segment_products_with_gradients(device: torch.device) -> None:
    inputs = torch.randn(8, 16, device=device, requires_grad=True)
    other = torch.randn(2, 16, 32, device=device, requires_grad=True)
    found = ops.segment_matmul(inputs, torch.tensor([0, 5, 8]), other)
    expected = torch.cat([inputs[:5] @ other[0], inputs[5:] @ other[1]])
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
    factors = torch.randn_like(expected)
    assert_close(
        torch.autograd.grad((found * factors).sum(), (inputs, other)),
        torch.autograd.grad((expected * factors).sum(), (inputs, other)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_sampled_sums_and_products(device: torch.device) -> None:
    left = torch.randn(6, 4, device=device, dtype=torch.float64, requires_grad=True)
    right = torch.randn(5, 4, device=device, dtype=torch.float64, requires_grad=True)
    at_left = torch.tensor([0, 5, 5, 2], device=device)
    at_right = torch.tensor([4, 4, 0, 1], device=device)
    assert_close(ops.sampled_add(left, right, at_left, at_right), left[at_left] + right[at_right])
    assert_close(ops.sampled_mul(left, right, at_left, at_right), left[at_left] * right[at_right])
    assert gradcheck(lambda a, b: ops.sampled_mul(a, b, at_left, at_right), (left, right))


def test_softmax_of_groups_with_gradients(device: torch.device) -> None:
    src = torch.randn(9, 3, device=device, requires_grad=True)
    try:
        found = ops.softmax_csr(src, torch.tensor([0, 4, 4, 9], device=device))
    except NotImplementedError:
        assert device.type == "cuda"  # 0.8.0 has no kernel for GPUs; a version that has one is tested with it
        return
    expected = torch.cat([torch.softmax(src[:4], 0), torch.softmax(src[4:], 0)])
    assert_close(found, expected)
    factors = torch.randn_like(expected)
    assert_close(
        torch.autograd.grad((found * factors).sum(), src),
        torch.autograd.grad((expected * factors).sum(), src),
    )


def test_scatter_and_segments_with_gradients(device: torch.device) -> None:
    index = torch.tensor([0, 0, 2, 2, 2, 3], device=device)
    pointers = torch.tensor([0, 2, 2, 5, 6], device=device)
    src = torch.randn(6, 3, device=device, dtype=torch.float64, requires_grad=True)
    expected = torch.stack([src[:2].sum(0), torch.zeros_like(src[0]), src[2:5].sum(0), src[5]])
    expanded = index[:, None].expand(6, 3)
    for found in (
        ops.scatter_sum(src, expanded, 0, None, 4),
        ops.segment_sum_csr(src, pointers),
        ops.segment_sum_coo(src, index, None, 4),
    ):
        assert_close(found, expected)
        factors = torch.randn_like(expected)
        assert_close(
            torch.autograd.grad((found * factors).sum(), src),
            torch.autograd.grad((expected * factors).sum(), src),
        )
    assert gradcheck(lambda at: ops.scatter_mean(at, expanded, 0, None, 4), (src,))
    largest, where = ops.scatter_max(src, expanded, 0, None, 4)
    assert_close(largest[2], src[2:5].max(0).values)
    assert_close(src.gather(0, where[2:3])[0], largest[2])


def test_sorted_indices(device: torch.device) -> None:
    values = torch.randint(0, 1000, (5000,), device=device)
    found, order = ops.index_sort(values, 1000)
    assert_close(found, values.sort().values)
    assert_close(values[order], found)


def test_neighbours_and_farthest_points(device: torch.device) -> None:
    x = torch.rand(40, 3, device=device)
    y = torch.rand(12, 3, device=device)
    all_of_x = torch.tensor([0, 40], device=device)
    all_of_y = torch.tensor([0, 12], device=device)
    apart = (y[:, None].double() - x[None].double()).norm(dim=-1)
    query, point = ops.knn(x, y, 4, all_of_x, all_of_y)
    assert_close(
        apart[query, point].reshape(12, 4).sort().values,
        apart.topk(4, largest=False).values,
        check_dtype=False,
    )
    query, point = ops.radius(x, y, 0.4, all_of_x, all_of_y, 40)
    expected = (apart <= 0.4).nonzero().tolist()
    assert sorted(zip(query.tolist(), point.tolist(), strict=True)) == sorted(map(tuple, expected))
    chosen = [0]
    while len(chosen) < 10:
        to_chosen = (x[:, None] - x[None, chosen]).norm(dim=-1)
        chosen.append(int(to_chosen.min(1).values.argmax()))
    assert ops.fps(x, all_of_x, 0.25, False).tolist() == chosen


def cliques() -> tuple[Tensor, Tensor, Tensor]:
    """Return matrix, row pointers and columns of two complete graphs of eight nodes with one edge between them."""
    adjacent = torch.block_diag(torch.ones(8, 8), torch.ones(8, 8)) - torch.eye(16)
    adjacent[0, 8] = adjacent[8, 0] = 1
    row, column = adjacent.nonzero().unbind(1)
    pointers = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(row, minlength=16).cumsum(0)])
    return adjacent, pointers, column


def test_partitions_cut_where_it_is_cheapest(device: torch.device) -> None:
    _, pointers, column = cliques()
    for recursive in (False, True):
        part = pyg_lib.partition.metis(pointers, column, 2, recursive=recursive).tolist()
        assert sorted([part[:8], part[8:]]) == [[0] * 8, [1] * 8]


def test_samples_are_neighbours(device: torch.device) -> None:
    adjacent, pointers, column = cliques()
    row, target, nodes, edges = pyg_lib.sampler.neighbor_sample(
        pointers, column, torch.tensor([3, 11]), [4, 2], csc=False, replace=False
    )[:4]
    assert nodes[:2].tolist() == [3, 11]
    assert bool((adjacent[nodes[row], nodes[target]] == 1).all())
    assert_close(column[edges], nodes[target])
    walk = pyg_lib.sampler.random_walk(pointers, column, torch.arange(16), 10)
    assert bool((adjacent[walk[:, :-1], walk[:, 1:]] == 1).all())
