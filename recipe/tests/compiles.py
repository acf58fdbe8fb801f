"""Test a C++ extension and torch.compile on the CPU: both need headers of the environment, outside torch/include.

All compiled files stay in the current folder.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["TORCH_EXTENSIONS_DIR"] = str(Path("extensions").resolve())
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path("inductor").resolve())
# torch puts precompiled headers into the temporary folder anyway (_HEADER_DIR in torch/_inductor/codecache.py)
os.environ["TMPDIR"] = str(Path().resolve())

import torch
from torch._inductor import cpu_vec_isa
from torch.utils import cpp_extension

Path("extensions").mkdir(exist_ok=True)
source = "torch::Tensor twice(const torch::Tensor& x) { return x + x; }"
pool = ThreadPoolExecutor(1)  # the extension compiles while torch.compile does
loading = pool.submit(cpp_extension.load_inline, "twice_in_cpp", source, functions="twice", verbose=True)


def waves(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 2 * torch.exp(x)


x = torch.linspace(0, 1, 1000)
assert torch.allclose(torch.compile(waves)(x), waves(x), atol=1e-5)
assert list(Path("inductor").rglob("*.so")), "torch.compile compiled nothing"
# torch.compile tests vector code with a small program; without sleef.h it silently falls back to scalar code
assert not torch.cpu._is_avx2_supported() or cpu_vec_isa.pick_vec_isa(), (
    "torch.compile uses no vector instructions"
)


def sums(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.zeros(4, 64).index_add(0, rows, x)


# without patches/debian/0006, PyTorch 2.6 stores the last rows in place of sums, with one thread only
torch.set_num_threads(1)
rows = torch.arange(12) % 4
parts = torch.ones(12, 64)
assert torch.allclose(torch.compile(sums)(parts, rows), sums(parts, rows)), "torch.compile: wrong sums"

extension = loading.result()
assert extension.twice(torch.ones(3)).tolist() == [2.0] * 3
# if the system has these headers, the compile works although the environment lacks them
folders = [Path(folder) for folder in cpp_extension.include_paths()]
for header in ("pybind11/pybind11.h", "sleef.h"):
    assert any((folder / header).is_file() for folder in folders), f"{header} is not in {folders}"
