"""Test sparse matrix operations against dense ones, with gradients, and METIS if the build has it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.testing import assert_close
from torch_sparse import SparseTensor, coalesce, matmul, random_walk, sample_adj, spspmm, transpose

#: The build writes "64", "none", or "wheel" for a prebuilt wheel, which may or may not have METIS.
METIS = Path(__file__).parent.parent / "checks" / "metis.txt"
WITH_METIS = "64"
WITHOUT_METIS = "none"


def compiled_metis() -> str:
    """Return the width of the indices of the build's METIS; see :data:`METIS`."""
    if not METIS.exists():
        return WITH_METIS
    return METIS.read_text().strip()


def sparse(device: torch.device, rows: int = 6, columns: int = 5) -> tuple[SparseTensor, Tensor]:
    """Return a differentiable matrix with an empty row, sparse and dense."""
    dense = torch.randn(rows, columns, dtype=torch.float64, device=device)
    dense = torch.where(torch.rand_like(dense) < 0.5, dense, torch.zeros_like(dense))
    dense[2] = 0
    dense[0, :2] = torch.tensor([1.5, -2.5])
    row, column = dense.nonzero().unbind(1)
    values = dense[row, column].clone().requires_grad_()
    return SparseTensor(row=row, col=column, value=values, sparse_sizes=(rows, columns)), values


def dense_product(matrix: Tensor, present: Tensor, other: Tensor, reduce: str) -> Tensor:
    """Reduce each row over its stored entries; an empty row gives zero."""
    rows = []
    for row, at in zip(matrix, present, strict=True):
        terms = row[at][:, None] * other[at]
        if len(terms) == 0:
            rows.append(torch.zeros_like(other[0]))
        elif reduce in ("min", "max"):
            rows.append(getattr(terms, reduce)(0).values)
        else:
            rows.append(getattr(terms, reduce)(0))
    return torch.stack(rows)


def test_products_with_dense_matrices_and_their_gradients(device: torch.device) -> None:
    for reduce in ("sum", "mean", "min", "max"):
        matrix, values = sparse(device)
        other = torch.randn(5, 3, dtype=torch.float64, device=device, requires_grad=True)
        row, column, _ = matrix.coo()
        full = torch.zeros(6, 5, dtype=torch.float64, device=device).index_put((row, column), values)
        present = torch.zeros(6, 5, dtype=torch.bool, device=device).index_put(
            (row, column), torch.ones_like(row) > 0
        )
        found = matmul(matrix, other, reduce)
        expected = dense_product(full, present, other, reduce)
        assert_close(found, expected)
        factors = torch.randn_like(expected)
        assert_close(
            torch.autograd.grad((found * factors).sum(), (values, other)),
            torch.autograd.grad((expected * factors).sum(), (values, other)),
        )


def test_products_of_sparse_matrices(device: torch.device) -> None:
    left, _ = sparse(device)
    right, _ = sparse(device, 5, 7)
    product = matmul(left, right)
    assert_close(product.to_dense(), left.to_dense() @ right.to_dense())
    index, values = spspmm(
        torch.stack(left.coo()[:2]),
        left.storage.value(),
        torch.stack(right.coo()[:2]),
        right.storage.value(),
        6,
        5,
        7,
    )
    found = torch.zeros(6, 7, dtype=torch.float64, device=device).index_put(
        tuple(index), values, accumulate=True
    )
    assert_close(found, left.to_dense() @ right.to_dense())


def test_reductions_slices_and_transposition(device: torch.device) -> None:
    matrix, _ = sparse(device)
    dense = matrix.to_dense()
    assert_close(matrix.sum(dim=1), dense.sum(1))
    assert_close(matrix.t().to_dense(), dense.t())
    assert_close(matrix[1:4, 2:].to_dense(), dense[1:4, 2:])
    index = torch.tensor([3, 0, 2], device=device)
    assert_close(matrix[index].to_dense(), dense[index])
    row, column, values = matrix.coo()
    at, transposed = transpose(torch.stack([row, column]), values, 6, 5)
    assert_close(
        torch.zeros(5, 6, dtype=torch.float64, device=device).index_put(tuple(at), transposed), dense.t()
    )


def test_coalescing_adds_up_duplicates(device: torch.device) -> None:
    index = torch.tensor([[3, 0, 3, 1, 0], [1, 2, 1, 0, 0]], device=device)
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], device=device)
    at, added = coalesce(index, values, 4, 3)
    assert at.tolist() == [[0, 0, 1, 3], [0, 2, 0, 1]]
    assert added.tolist() == [16.0, 2.0, 8.0, 5.0]


def cliques(device: torch.device) -> SparseTensor:
    """Return two complete graphs of eight nodes, shuffled together, with one edge between them."""
    adjacent = torch.block_diag(torch.ones(8, 8), torch.ones(8, 8)) - torch.eye(16)
    adjacent[0, 8] = adjacent[8, 0] = 1
    order = torch.randperm(16)
    return SparseTensor.from_dense(adjacent[order][:, order].to(device))


def test_walks_go_along_edges(device: torch.device) -> None:
    graph = cliques(device)
    dense = graph.to_dense()
    walk = random_walk(graph, torch.arange(16, device=device), 20)
    assert walk.shape == (16, 21)
    assert bool((dense[walk[:, :-1], walk[:, 1:]] == 1).all())


def test_samples_are_neighbours(device: torch.device) -> None:
    graph = cliques(torch.device("cpu"))
    start = torch.tensor([3, 11])
    sampled, nodes = sample_adj(graph, start, 4)
    assert nodes[:2].tolist() == [3, 11]
    assert sampled.storage.rowcount().tolist() == [4, 4]
    row, column, _ = sampled.coo()
    assert bool((graph.to_dense()[start[row], nodes[column]] == 1).all())


def test_partitions_cut_where_it_is_cheapest(device: torch.device) -> None:
    compiled = compiled_metis()
    graph = cliques(device)
    parts = []
    refused = ""
    try:
        for recursive in (False, True):
            parts.append(graph.partition(2, recursive=recursive))
    except RuntimeError as error:
        refused = str(error)
    if refused:
        assert compiled != WITH_METIS, f"compiled with METIS, but: {refused}"
        assert "METIS" in refused, refused
    else:
        assert compiled != WITHOUT_METIS, "a METIS that this build was not given"
    for permuted, pointers, order in parts:
        assert pointers.tolist() == [0, 8, 16]
        assert sorted(order.tolist()) == list(range(16))
        # only one edge in each direction leads to the other part
        assert int(permuted.to_dense()[:8, 8:].sum()) == 1


def test_partitions_of_a_grid_are_balanced(device: torch.device) -> None:
    if compiled_metis() != WITH_METIS:
        return
    side = 40
    node = torch.arange(side * side).reshape(side, side)
    edges = torch.cat(
        [
            torch.stack([node[1:].flatten(), node[:-1].flatten()]),
            torch.stack([node[:, 1:].flatten(), node[:, :-1].flatten()]),
        ],
        dim=1,
    )
    row, column = torch.cat([edges, edges.flip(0)], dim=1)
    graph = SparseTensor(row=row, col=column, sparse_sizes=(side * side, side * side)).to(device)
    permuted, pointers, _ = graph.partition(4)
    sizes = pointers.diff()
    assert int(sizes.max()) < 1.1 * side * side / 4, sizes
    part = torch.bucketize(torch.arange(side * side), pointers.cpu()[1:], right=True)
    left, right, _ = permuted.cpu().coo()
    # four squares cut 80 edges, counted twice; a random partition cuts 4,680
    assert int((part[left] != part[right]).sum()) < 400
