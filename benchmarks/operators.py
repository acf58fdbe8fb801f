"""Compare two PyTorch on the CPU: `python benchmarks/operators.py PYTHON PYTHON`.

Each PYTHON is an interpreter, or a script that starts one, with torch and numpy. Prints seconds of operators with one
thread and their ratio, best of three processes each in turn, and the losses of a small network after each step of the
same training. conv2d is measured with oneDNN and without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 3
SECONDS = 1.0  #: the shortest measurement of one operator
STEPS = 20


def best_time(operate: Callable[[], object]) -> float:
    """Return the seconds of the fastest call."""
    operate()
    best, ended = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < ended:
        began = time.perf_counter()
        operate()
        best = min(best, time.perf_counter() - began)
    return best


def time_operators() -> dict[str, float]:
    """Return the seconds of each operator."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    matrix, doubles = torch.rand(1024, 1024), torch.rand(512, 512, dtype=torch.float64)
    images, filters = torch.rand(8, 64, 56, 56), torch.rand(64, 64, 3, 3)
    rows, values = torch.rand(4096, 1024), torch.rand(1_000_000)

    def convolve() -> Any:
        return torch.nn.functional.conv2d(images, filters, padding=1)

    with torch.no_grad():
        seconds = {
            "matmul, float32": best_time(lambda: matrix @ matrix),
            "matmul, float64": best_time(lambda: doubles @ doubles),
            "conv2d": best_time(convolve),
            "softmax": best_time(lambda: torch.softmax(rows, 1)),
            "sort": best_time(lambda: torch.sort(values)),
            "exp": best_time(lambda: torch.exp(rows)),
            "sum": best_time(lambda: rows.sum(0)),
        }
        with torch.backends.mkldnn.flags(enabled=False):
            seconds["conv2d without oneDNN"] = best_time(convolve)
    return seconds


def train() -> list[float]:
    """Train a small network on drawn images and return the loss of each step."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = torch.rand(64, 3, 16, 16), torch.randint(10, (64,))
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 14 * 14, 10),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def measure() -> dict[str, Any]:
    """Measure the PyTorch of this interpreter."""
    import torch

    return {"version": torch.__version__, "seconds": time_operators(), "losses": train()}


def main() -> None:
    """Run the interpreters in turn and print the two tables."""
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure()))
        return
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} PYTHON PYTHON")
    results: list[list[dict[str, Any]]] = [[], []]
    program = Path(__file__).read_text()
    for _ in range(ROUNDS):
        for python, answers in zip(sys.argv[1:], results, strict=True):
            done = subprocess.run(
                [python, "-", "--measure"],  # from stdin: PYTHON may enter a root without this file
                input=program,
                # OpenBLAS's threads are its own: torch.set_num_threads does not change them
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            answers.append(json.loads(done.stdout.splitlines()[-1]))
    first, second = results
    print(f"| operator | {first[0]['version']}, ms | {second[0]['version']}, ms | ratio |\n|---|---|---|---|")
    for name in first[0]["seconds"]:
        times = [min(answer["seconds"][name] for answer in answers) for answers in results]
        print(f"| {name} | {times[0] * 1e3:.2f} | {times[1] * 1e3:.2f} | {times[1] / times[0]:.2f} |")
    print("\n| step | loss | loss | difference |\n|---|---|---|---|")
    for step, losses in enumerate(zip(first[0]["losses"], second[0]["losses"], strict=True), 1):
        print(f"| {step} | {losses[0]:.6f} | {losses[1]:.6f} | {abs(losses[0] - losses[1]):.1e} |")


if __name__ == "__main__":
    main()
