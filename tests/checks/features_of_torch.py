"""Tries what people do with a PyTorch environment, one feature per call; run by its interpreter, without a GPU."""

from __future__ import annotations

import os
import sys
import tempfile

import torch


def autograd() -> None:
    """Fit a line."""
    x = torch.linspace(-1, 1, 64).reshape(-1, 1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(60):
        loss = ((model(x) - (3 * x + 1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3, loss


def jit() -> None:
    """Script a function with a loop, save and load it."""

    @torch.jit.script  # type: ignore[untyped-decorator]
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.ones_like(x)
        for _ in range(n):
            y = y * x
        return y

    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(power, f"{folder}/power.pt")
        assert torch.jit.load(f"{folder}/power.pt")(torch.tensor(2.0), 10) == 1024


def compile_cpu() -> None:
    """Let Inductor make C++ of a function, compile it, and compare."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softmax(x.sin() @ x.T, dim=-1).sum(0)

    x = torch.randn(32, 32)
    torch.testing.assert_close(torch.compile(function)(x), function(x))


def compile_gpu() -> None:
    """Let Triton compile a kernel for sm_120, from Python to machine code; that needs no GPU."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def double(source, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(source + at, 2 * tl.load(source + at, mask=at < count), mask=at < count)

    source = ASTSource(
        fn=triton.jit(double),
        signature={"source": "*fp32", "count": "i32", "block": "constexpr"},
        constexprs={(2,): 128},
    )
    assert triton.compile(source, target=GPUTarget("cuda", 120, 32)).asm["cubin"][:4] == b"\x7fELF"


def extensions() -> None:
    """Compile a C++ extension, load and call it."""
    from torch.utils.cpp_extension import load_inline

    source = "torch::Tensor plus_one(torch::Tensor x) { return x + 1; }"
    with tempfile.TemporaryDirectory() as folder:
        module = load_inline("plus", source, functions=["plus_one"], build_directory=folder)
        assert module.plus_one(torch.ones(3)).sum() == 6


def distributed() -> None:
    """Reduce over a group of one, with Gloo."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/s", rank=0, world_size=1)
        x = torch.ones(3)
        torch.distributed.all_reduce(x)
        assert x.sum() == 3
        torch.distributed.destroy_process_group()


def profiler() -> None:
    """Record a product's trace; CUPTI is loaded for that, GPU or not."""
    with torch.profiler.profile() as trace:
        torch.ones(64, 64) @ torch.ones(64, 64)
    assert any("mm" in event.key for event in trace.key_averages())


if __name__ == "__main__":
    assert torch.ones(3).sum() == 3
    if sys.argv[1] != "import":
        globals()[sys.argv[1].replace("-", "_")]()
    sys.stdout.flush()
    os._exit(0)  # Triton's and Inductor's threads
