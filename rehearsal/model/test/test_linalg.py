"""Tests of linear algebra, as PyTorch has them in the same folder."""

from __future__ import annotations

import unittest

import torch
from helpers import is_close


class TestLinalg(unittest.TestCase):
    def test_solve(self) -> None:
        matrix = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
        assert is_close(torch.linalg.solve(matrix, torch.tensor([9.0, 8.0])), [2.0, 3.0])


if __name__ == "__main__":
    unittest.main()
