"""Test scatter, segment and gather operations against loops over the elements, with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close
from torch_scatter import (
    gather_coo,
    gather_csr,
    scatter,
    scatter_log_softmax,
    scatter_logsumexp,
    scatter_max,
    scatter_min,
    scatter_softmax,
    scatter_std,
    segment_coo,
    segment_csr,
)

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "mul": lambda rows: rows.prod(0),
    "mean": lambda rows: rows.mean(0),
    "min": lambda rows: rows.min(0).values,
    "max": lambda rows: rows.max(0).values,
}
INDEX = [2, 0, 2, 5, 0, 2, 4, 5]  # unsorted; groups 1 and 3 are empty
SIZES = [3, 0, 2, 1, 2]
SORTED_INDEX = [0, 0, 0, 2, 2, 3, 4, 4]  # groups of these sizes
GROUPS = 6


def brute_force(reduce: str, src: Tensor, index: list[int], groups: int) -> Tensor:
    """Reduce the rows of every group; an empty group gives zero, for a product one."""
    empty = torch.zeros_like(src[0])
    if reduce == "mul":
        empty = torch.ones_like(src[0])
    result = []
    for group in range(groups):
        rows = [row for row, at in zip(src, index, strict=True) if at == group]
        if rows:
            result.append(REDUCTIONS[reduce](torch.stack(rows)))
        else:
            result.append(empty)
    return torch.stack(result)


def values(device: torch.device, rows: int = 8, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return distinct values away from zero, so that extremes are unique and products differentiable."""
    return (torch.randperm(rows * 3).reshape(rows, 3).to(dtype) / 5 - 2.03).to(device)


def test_scatter_in_every_reduction(device: torch.device) -> None:
    src = values(device)
    index = torch.tensor(INDEX, device=device)
    for reduce in REDUCTIONS:
        found = scatter(src, index, dim=0, dim_size=GROUPS, reduce=reduce)
        assert_close(
            found, brute_force(reduce, src, INDEX, GROUPS), msg=lambda text, at=reduce: f"{at}: {text}"
        )


def test_scatter_in_every_floating_type_and_along_the_last_dimension(device: torch.device) -> None:
    index = torch.tensor(INDEX, device=device)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64):
        src = torch.randint(-4, 5, (3, 8), device=device).to(dtype)
        found = scatter(src, index.expand(3, 8), dim=-1, dim_size=GROUPS, reduce="sum")
        assert found.dtype == dtype
        assert_close(found, brute_force("sum", src.t(), INDEX, GROUPS).t())


def test_scatter_says_where_an_extreme_came_from(device: torch.device) -> None:
    src = values(device)
    index = torch.tensor(INDEX, device=device)
    for function, reduce in ((scatter_min, "min"), (scatter_max, "max")):
        found, where = function(src, index, dim=0, dim_size=GROUPS)
        assert_close(found, brute_force(reduce, src, INDEX, GROUPS))
        for group in set(INDEX):
            assert_close(src.gather(0, where[group : group + 1])[0], found[group])


def test_scatter_gradients(device: torch.device) -> None:
    src = values(device).requires_grad_()
    index = torch.tensor(INDEX, device=device)
    for reduce in REDUCTIONS:
        weights = torch.randn(GROUPS, 3, dtype=src.dtype, device=device)
        found = torch.autograd.grad(
            (scatter(src, index, dim=0, dim_size=GROUPS, reduce=reduce) * weights).sum(), src
        )
        expected = torch.autograd.grad((brute_force(reduce, src, INDEX, GROUPS) * weights).sum(), src)
        assert_close(found, expected)
        assert gradcheck(
            lambda at, kind=reduce: scatter(at, index, dim=0, dim_size=GROUPS, reduce=kind), (src,)
        )


def test_segments_by_pointers_and_by_sorted_indices(device: torch.device) -> None:
    src = values(device).requires_grad_()
    pointers = torch.tensor([0, *torch.tensor(SIZES).cumsum(0).tolist()], device=device)
    sorted_index = torch.tensor(SORTED_INDEX, device=device)
    for reduce in ("sum", "mean", "min", "max"):
        expected = brute_force(reduce, src, SORTED_INDEX, len(SIZES))
        weights = torch.randn_like(expected)
        wanted = torch.autograd.grad((expected * weights).sum(), src)
        for found in (
            segment_csr(src, pointers, reduce=reduce),
            segment_coo(src, sorted_index, dim_size=len(SIZES), reduce=reduce),
        ):
            assert_close(found, expected)
            assert_close(torch.autograd.grad((found * weights).sum(), src), wanted)


def test_gather_undoes_segments(device: torch.device) -> None:
    src = torch.randn(len(SIZES), 3, dtype=torch.float64, device=device, requires_grad=True)
    index = torch.tensor(SORTED_INDEX, device=device)
    pointers = torch.tensor([0, *torch.tensor(SIZES).cumsum(0).tolist()], device=device)
    assert_close(gather_coo(src, index), src[index])
    assert_close(gather_csr(src, pointers), src[index])
    assert gradcheck(lambda at: gather_coo(at, index), (src,))
    assert gradcheck(lambda at: gather_csr(at, pointers), (src,))


def test_composites(device: torch.device) -> None:
    src = values(device)[:, 0].clone().requires_grad_()
    index = torch.tensor(INDEX, device=device)
    softmax = scatter_softmax(src, index)
    log_softmax = scatter_log_softmax(src, index)
    logsumexp = scatter_logsumexp(src, index)
    deviation = scatter_std(src, index)
    for group in set(INDEX):
        at = index == group
        assert_close(softmax[at], torch.softmax(src[at], 0))
        assert_close(log_softmax[at], torch.log_softmax(src[at], 0))
        assert_close(logsumexp[group], torch.logsumexp(src[at], 0))
        if int(at.sum()) > 1:
            assert math.isclose(float(deviation[group].detach()), float(src[at].detach().std()), rel_tol=1e-5)
    assert gradcheck(lambda at: scatter_softmax(at, index), (src,))
