"""Run operations of every CUDA library of a PyTorch: `ENV/bin/python benchmarks/gpu_operations.py RESULTS [EARLIER]`.

Saves the results in the file RESULTS, and compares them with those of an EARLIER run: of the same environment before
`megabuild slim`, for example. Also prints milliseconds of five operations. Needs one GPU and PyTorch 2.6 or newer.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = Any  # type checkers run without torch
CALLS = 30  #: calls of a timed operation
#: Sums in another order differ by this much (relative, float32).
ROUNDING = 1e-5


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Return the same normally distributed numbers at every call, on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).cuda()


def product(size: int, dtype: torch.dtype) -> Tensor:
    """Multiply two square matrices."""
    return numbers(size, size, dtype=dtype) @ numbers(size, size, dtype=dtype, seed=2)


def doubles(*shape: int, seed: int = 1) -> Tensor:
    """Return numbers in double precision."""
    return numbers(*shape, dtype=torch.float64, seed=seed)


def symmetric(size: int) -> Tensor:
    """Return a positive definite matrix."""
    matrix = doubles(size, size)
    return matrix @ matrix.T + size * torch.eye(size, dtype=torch.float64).cuda()


def sparse(size: int) -> Tensor:
    """Return a matrix with one element of fifteen."""
    matrix = numbers(size, size)
    return torch.where(matrix > 1.5, matrix, 0)


def convolve() -> Tensor:
    """Run a convolution and the gradient of its filters."""
    images, filters = numbers(16, 32, 56, 56).requires_grad_(), numbers(64, 32, 3, 3, seed=2).requires_grad_()
    result = functional.conv2d(images, filters, padding=1)
    return torch.cat([result.flatten()[:1000], *torch.autograd.grad(result.sum(), [filters])[0].flatten(1)])


def run_lstm() -> Tensor:
    """Run a recurrent network of one layer."""
    torch.manual_seed(3)
    return torch.nn.LSTM(64, 64).cuda()(numbers(20, 8, 64))[0]


def attend(backend: SDPBackend, dtype: torch.dtype) -> Tensor:
    """Run attention and one gradient with one implementation."""
    query, key, value = (
        numbers(2, 8, 256, 64, dtype=dtype, seed=seed).requires_grad_() for seed in (1, 2, 3)
    )
    with sdpa_kernel(backend):
        result = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        (gradient,) = torch.autograd.grad(result.sum(), [value])
    return torch.cat([result.flatten(), gradient.flatten()])


def draw() -> Tensor:
    """Draw random numbers of four distributions."""
    torch.manual_seed(5)
    empty = torch.empty(1000).cuda()
    draws = [empty.uniform_().clone(), empty.normal_().clone(), empty.exponential_().clone()]
    return torch.cat([*draws, torch.poisson(torch.full((1000,), 4.0).cuda())])


def multiply_half_sparse() -> Tensor:
    """Multiply a matrix of which two of four elements are zero."""
    mask = torch.tensor([1, 1, 0, 0]).bool().tile(256, 64).cuda()
    torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = False
    matrix = torch.sparse.to_sparse_semi_structured(numbers(256, 256, dtype=torch.float16) * mask)
    return torch.mm(matrix, numbers(256, 128, dtype=torch.float16, seed=2))


def reduce_over_processes() -> Tensor:
    """Sum over a group of one process with NCCL."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("nccl")
    values = numbers(1000)
    torch.distributed.all_reduce(values)
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()
    return values


def replay_graph() -> Tensor:
    """Record a CUDA graph and replay it."""
    matrix, graph = numbers(256, 256), torch.cuda.CUDAGraph()
    result = matrix @ matrix
    with torch.cuda.graph(graph):
        torch.mm(matrix, matrix, out=result)
    result.zero_()
    graph.replay()
    return result


def compile_function() -> Tensor:
    """Compile a function with torch.compile, which uses Triton."""
    compiled = torch.compile(lambda left, right: (left @ right).relu().softmax(1) + left.sin())
    return compiled(numbers(256, 256), numbers(256, 256, seed=2))


def train() -> Tensor:
    """Train a small network for twenty steps and return the losses."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
    ]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(16 * 32 * 32, 10)).cuda()
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    images, labels, losses = numbers(64, 3, 32, 32), (torch.arange(64) % 10).cuda(), []
    for _ in range(20):
        loss = functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


OPERATIONS: dict[str, Callable[[], Tensor]] = {
    "cuBLAS float32": lambda: product(2048, torch.float32),
    "cuBLAS float64": lambda: product(1024, torch.float64),
    "cuBLAS bfloat16": lambda: product(4096, torch.bfloat16),
    "cuBLAS complex64": lambda: torch.view_as_real(product(256, torch.complex64)),
    "cuBLAS, many small": lambda: torch.bmm(numbers(64, 128, 64), numbers(64, 64, 128, seed=2)),
    "cuBLASLt int8": lambda: torch._int_mm(*[(numbers(256, 256) * 10).to(torch.int8)] * 2),
    "cuDNN convolution": convolve,
    "cuDNN convolution, float16": lambda: functional.conv2d(
        numbers(16, 64, 56, 56, dtype=torch.float16), numbers(128, 64, 3, 3, dtype=torch.float16)
    ),
    "cuDNN convolution, 3D": lambda: functional.conv3d(numbers(2, 8, 16, 16, 16), numbers(16, 8, 3, 3, 3)),
    "cuDNN LSTM": run_lstm,
    "cuDNN batch norm": lambda: functional.batch_norm(numbers(16, 32, 28, 28), None, None, training=True),
    "cuFFT": lambda: torch.view_as_real(torch.fft.fft(numbers(64, 1024))),
    "cuFFT, odd sizes": lambda: torch.view_as_real(torch.fft.rfft2(numbers(8, 243, 77))),
    "cuFFT, a prime": lambda: torch.view_as_real(torch.fft.fft(doubles(4, 4099))),
    "cuRAND": draw,
    "cuSOLVER solve": lambda: torch.linalg.solve(doubles(256, 256), doubles(256, 8, seed=2)),
    "cuSOLVER many small": lambda: torch.linalg.solve(doubles(100, 16, 16), doubles(100, 16, 2, seed=2)),
    "cuSOLVER Cholesky": lambda: torch.linalg.cholesky(symmetric(128)),
    "cuSOLVER QR": lambda: torch.linalg.qr(doubles(200, 100))[1].abs(),
    "cuSOLVER SVD": lambda: torch.linalg.svdvals(doubles(120, 80)),
    "cuSOLVER eigh": lambda: torch.linalg.eigvalsh(symmetric(150)),
    "linalg eig": lambda: torch.linalg.eigvals(doubles(100, 100)).abs().sort().values,
    "linalg LDL": lambda: torch.linalg.ldl_factor(symmetric(64))[0],
    "cuSPARSE CSR": lambda: sparse(300).to_sparse_csr() @ numbers(300, 20, seed=2),
    "cuSPARSE COO": lambda: torch.sparse.mm(sparse(300).to_sparse(), numbers(300, 20, seed=2)),
    "cuSPARSE two sparse": lambda: (sparse(200).to_sparse_csr() @ sparse(200).to_sparse_csr()).to_dense(),
    "cuSPARSELt": multiply_half_sparse,
    "flash attention": lambda: attend(SDPBackend.FLASH_ATTENTION, torch.float16),
    "memory-efficient attention": lambda: attend(SDPBackend.EFFICIENT_ATTENTION, torch.float32),
    "cuDNN attention": lambda: attend(SDPBackend.CUDNN_ATTENTION, torch.float16),
    "sort": lambda: torch.sort(numbers(100_000)).values,
    "topk": lambda: torch.topk(numbers(1000, 1000), 7).values,
    "unique": lambda: torch.unique((numbers(10_000) * 10).int()),
    "cumsum": lambda: torch.cumsum(doubles(1000, 1000), 1),
    "softmax": lambda: torch.softmax(numbers(1000, 1000), 1),
    "layer norm": lambda: functional.layer_norm(numbers(1000, 512), (512,)),
    "interpolate": lambda: functional.interpolate(numbers(2, 3, 32, 32), scale_factor=2, mode="bicubic"),
    "distances": lambda: torch.cdist(numbers(200, 16), numbers(300, 16, seed=2)),
    "NVRTC special": lambda: torch.special.airy_ai(doubles(1000)) + torch.special.bessel_j0(doubles(1000)),
    "NVRTC complex": lambda: torch.view_as_real(numbers(1000).to(torch.complex64).sqrt().tan()),
    "CUDA graph": replay_graph,
    "NCCL": reduce_over_processes,
    "Triton": compile_function,
    "training": train,
}


def median_time(operate: Callable[[], Tensor]) -> float:
    """Return the milliseconds of one call."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(CALLS):
        begin.record()
        operate()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(sorted(times)[CALLS // 2])


def difference(earlier: Tensor, result: Tensor) -> float:
    """Return the relative difference of two results; infinite if their shapes differ."""
    if earlier.shape != result.shape:
        return float("inf")
    return float((result.double() - earlier.double()).norm() / earlier.double().norm())


def compare(earlier: dict[str, Tensor], results: dict[str, Tensor]) -> str:
    """Return one line: how many results are the same, and the names of the others."""
    changed = {
        name: difference(earlier[name], result)
        for name, result in results.items()
        if not torch.equal(result, earlier[name])
    }
    rounded = [f"{name} ({error:.0e})" for name, error in changed.items() if error <= ROUNDING]
    wrong = [f"{name} ({error:.0e})" for name, error in changed.items() if not error <= ROUNDING]
    return (
        f"{len(results) - len(changed)} of {len(results)} results are the same; "
        f"rounded differently: {', '.join(rounded) or 'none'}; different: {', '.join(wrong) or 'none'}"
    )


def main() -> None:
    """Run, save and compare; exit with 1 if an operation that ran earlier fails."""
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} RESULTS [EARLIER]")
    warnings.simplefilter("ignore")
    results: dict[str, Tensor] = {}
    errors: dict[str, str] = {}
    began = time.perf_counter()
    for name, operate in OPERATIONS.items():
        try:
            results[name] = operate().detach().cpu()
        except Exception as error:  # a missing kernel or library can raise anything; the others still run
            errors[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    torch.save(results, sys.argv[1])
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{len(results)} of {len(OPERATIONS)} operations ran in {time.perf_counter() - began:.0f} s")
    for name, reason in errors.items():
        print(f"  {name}: {reason}")
    large, long = numbers(8192, 8192, dtype=torch.bfloat16), numbers(20_000_000)
    images, filters = numbers(64, 64, 56, 56, dtype=torch.float16), numbers(64, 64, 3, 3, dtype=torch.float16)
    timed: dict[str, Callable[[], Tensor]] = {
        "matmul": lambda: large @ large,
        "convolution": lambda: functional.conv2d(images, filters),
        "FFT": lambda: torch.fft.fft(long),
        "sort": lambda: torch.sort(long).values,
        "softmax": lambda: torch.softmax(large, 1),
    }
    print("ms:", ", ".join(f"{name} {median_time(operate):.3f}" for name, operate in timed.items()))
    if len(sys.argv) == 3:
        earlier = torch.load(sys.argv[2])
        print(compare(earlier, {name: results[name] for name in earlier if name in results}))
        if lost := [name for name in earlier if name not in results]:
            sys.exit(f"fails now: {', '.join(lost)}")


if __name__ == "__main__":
    main()
