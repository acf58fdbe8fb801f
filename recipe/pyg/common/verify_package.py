"""Test an extension's package: ``verify_package.py torch_scatter --accelerator cuda130 --archs "9.0;12.0"``.

Inspects every library of the installed module, without a GPU and without importing it. Fails if a CUDA package has a
CPU library, if an architecture is missing, if a library is for another Python, or if one needs torch's C++ symbols in
a package for every later torch.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from cuda_code.judge import Judgement, Wanted, empty, judge, judge_abi
from cuda_code.kernels import KERNELS
from cuda_code.library_facts import LibraryFacts, read

_CPU = "cpu"  # an accelerator
_STABLE = "stable"  # a pin on PyTorch
_NO_ARCH = ("", "None")


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
    unreadable: dict[str, Judgement] = {}
    for file in _libraries(folder / module):
        path = str(file.relative_to(folder))
        try:
            facts = read(file, path)
        except ValueError as error:
            unreadable[path] = Judgement(str(error), "build it again")
            continue
        if facts:
            libraries.append(facts)
            print(_describe(facts))
    if not libraries and not unreadable:
        return [_fault(module, empty(module))]
    wanted = _wanted(module, accelerator, archs, python)
    judged = judge(module, libraries, wanted, unread=list(unreadable))
    faults = [_fault(path, judgement) for path, judgement in unreadable.items()]
    faults += [_fault(path, judgement) for path, judgement in judged.items() if not judgement.ok]
    if torch_pin == _STABLE:
        for facts in libraries:
            if judgement := judge_abi(facts):
                faults.append(_fault(facts.path, judgement))
    return faults


def _libraries(folder: Path) -> list[Path]:
    """Return the libraries below a folder; raises OSError if one there cannot be read: it would pass for empty."""
    found: list[Path] = []
    for here, _, names in os.walk(folder, onerror=_refuse):
        for name in names:
            if name.endswith(".so"):
                found.append(Path(here, name))
    return sorted(found)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _describe(facts: LibraryFacts) -> str:
    code = " ".join([*facts.archs, *facts.ptx]) or "no device code"
    abi = "torch's stable ABI only" if facts.stable_abi else "torch's C++"
    return f"{facts.path}: {code}, {abi}"


def _wanted(module: str, accelerator: str, archs: Sequence[str], python: str) -> Wanted:
    """Return the requirements on a module's libraries."""
    of_python = python if KERNELS[module].flavours else None  # pyg-lib: one library for all Pythons
    if accelerator == _CPU:
        return Wanted(cuda=False, cuda_major=None, archs=(), python=of_python)
    major = int(accelerator.removeprefix("cuda")) // 10
    return Wanted(cuda=True, cuda_major=major, archs=tuple(archs), python=of_python)


def _fault(path: str, judgement: Judgement) -> str:
    return f"{path}: {judgement.reason}\n  {judgement.remedy}"


def _python() -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"{version}t" if sysconfig.get_config_var("Py_GIL_DISABLED") else version


def main() -> None:
    """Run the command line; exit with 1 and the faults if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", choices=sorted(KERNELS))
    parser.add_argument("--accelerator", required=True, help="cpu or cuda130")
    parser.add_argument("--archs", default="", help="as in TORCH_CUDA_ARCH_LIST")
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("platlib")))
    parser.add_argument("--python", default=_python(), help="such as 3.12  [default: the running Python]")
    parser.add_argument("--torch-pin", choices=("exact", "minor", _STABLE), default="exact")
    arguments = parser.parse_args()
    archs = [arch for arch in re.split("[; ]", arguments.archs) if arch not in _NO_ARCH]
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
