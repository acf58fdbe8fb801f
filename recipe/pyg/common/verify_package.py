"""Test an extension's package: ``verify_package.py torch_scatter --accelerator cuda130 --archs "9.0;12.0"``.

Inspects every library of the installed module, without a GPU and without importing it. Fails if a CUDA package has a
CPU library, if an architecture is missing, if a library is for another Python, or if one needs torch's C++ symbols in
a package for every later torch.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from cuda_code.judge import Judgement, Wanted, empty, judge, judge_abi
from cuda_code.kernels import KERNELS
from cuda_code.library_facts import LibraryFacts, read


def check(
    folder: Path,
    module: str,
    accelerator: str,
    archs: Sequence[str],
    python: str,
    *,
    torch_pin: str = "exact",
) -> list[str]:
    """Return the faults of a module, each with its remedy on a second line.

    `folder`: contains the module: ``site-packages``, or an unpacked wheel. `torch_pin`: the package's pin on PyTorch,
    ``exact``, ``minor`` or ``stable``.
    """
    libraries: list[LibraryFacts] = []
    judged: list[tuple[str, Judgement]] = []
    for file in sorted((folder / module).rglob("*.so")):
        path = str(file.relative_to(folder))
        try:
            if facts := read(file, path):
                libraries.append(facts)
        except ValueError as error:
            judged.append((path, Judgement(str(error), "build it again")))
    cuda = accelerator != "cpu"
    wanted = Wanted(
        cuda=cuda,
        cuda_major=int(accelerator.removeprefix("cuda")) // 10 if cuda else None,
        archs=tuple(archs) if cuda else (),
        python=python if KERNELS[module].flavours else None,  # pyg-lib: one library for all Pythons
    )
    for facts in libraries:
        abi = "torch's stable ABI only" if facts.stable_abi else "torch's C++"
        print(f"{facts.path}: {' '.join([*facts.archs, *facts.ptx]) or 'no device code'}, {abi}")
    if libraries or judged:
        judged += judge(module, libraries, wanted, unread=[path for path, _ in judged]).items()
    else:
        judged.append((module, empty(module)))
    if torch_pin == "stable":
        judged += [(facts.path, fault) for facts in libraries if (fault := judge_abi(facts))]
    return [f"{path}: {fault.reason}\n  {fault.remedy}" for path, fault in judged if not fault.ok]


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}" + (
        "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    )


def main() -> None:
    """Run the command line; exit with 1 and the faults if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", choices=sorted(KERNELS))
    parser.add_argument("--accelerator", required=True, help="cpu or cuda130")
    parser.add_argument("--archs", default="", help="as in TORCH_CUDA_ARCH_LIST")
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("platlib")))
    parser.add_argument("--python", default=_python(), help="such as 3.12  [default: the running Python]")
    parser.add_argument("--torch-pin", choices=("exact", "minor", "stable"), default="exact")
    arguments = parser.parse_args()
    archs = [arch for arch in arguments.archs.replace(" ", ";").split(";") if arch and arch != "None"]
    faults = check(
        arguments.folder,
        arguments.module,
        arguments.accelerator,
        archs,
        arguments.python,
        torch_pin=arguments.torch_pin,
    )
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
