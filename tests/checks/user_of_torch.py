"""What a user does first with a fresh PyTorch: run inside an environment that holds the package and a compiler.

Prints one line per check, and leaves with the first failure.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import torch
from torch._inductor import cpu_vec_isa
from torch.utils import cpp_extension

SOURCE = """
#include <torch/extension.h>

torch::Tensor scaled_sum(const torch::Tensor& values, double factor) {
  TORCH_CHECK(values.dim() == 2, "values must be a matrix, not of ", values.dim(), " dimensions");
  return values.sum(1) * factor;
}
"""

#: recipe/cmake_test
PROJECT = "/opt/megabuild/cmake_test"


def autograd() -> None:
    weights = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(7, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda w: torch.tanh(inputs @ w).pow(2).sum(), (weights,))


def linear_solve() -> None:
    matrix = torch.randn(50, 50, dtype=torch.float64) + 50 * torch.eye(50, dtype=torch.float64)
    wanted = torch.randn(50, 4, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.solve(matrix, matrix @ wanted), wanted)


@contextlib.contextmanager
def raises(words: str) -> Iterator[None]:
    """Expect a RuntimeError with these words; there is no pytest where this runs."""
    try:
        yield
    except RuntimeError as raised:
        if words not in str(raised):
            raise
    else:
        raise AssertionError(f"nothing was raised; expected {words!r}")


class Recurrence(torch.nn.Module):
    """Control flow that depends on the data: tracing could not express it."""

    def forward(self, value: torch.Tensor, steps: int) -> torch.Tensor:
        for step in range(steps):
            value = value - step if bool(value.sum() > 0) else value * 2.0
        return value


def script() -> None:
    module = Recurrence()
    value = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(torch.jit.script(module)(value, 5), module(value, 5))


def extension() -> None:
    built = cpp_extension.load_inline("scaled", SOURCE, functions=["scaled_sum"], with_cuda=False)
    values = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(built.scaled_sum(values, 0.5), torch.tensor([1.5, 6.0]))
    with raises("must be a matrix"):
        built.scaled_sum(torch.ones(3), 1.0)


def compiled() -> None:
    def waves(values: torch.Tensor) -> torch.Tensor:
        return torch.sin(values) + 2 * torch.exp(values)

    values = torch.linspace(0, 1, 1000)
    torch.testing.assert_close(torch.compile(waves)(values), waves(values))
    # without sleef.h or libsleef, torch.compile silently falls back to scalar code
    assert not torch.cpu._is_avx2_supported() or cpu_vec_isa.pick_vec_isa()


def cmake_project() -> None:
    with tempfile.TemporaryDirectory() as build:
        paths = f"-DCMAKE_PREFIX_PATH={sys.prefix};{torch.utils.cmake_prefix_path}"
        configure = ["cmake", "-G", "Ninja", "-S", PROJECT, "-B", build, paths, "-DWITH_PYTHON=ON"]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", build], check=True)
        subprocess.run([f"{build}/torch_user"], check=True)


def main() -> None:
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    torch.manual_seed(0)
    for check in (autograd, linear_solve, script, extension, compiled, cmake_project):
        start = time.monotonic()
        check()
        print(f"ok {check.__name__} {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
