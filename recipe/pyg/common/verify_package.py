"""The test of an extension's package: ``verify_package.py torch_scatter --accelerator cuda130 --archs "9.0;12.0"``.

Looks into every library of the installed module and fails where one is not what the config asked for: a CPU library
in a CUDA package, an architecture that is missing, a library of another Python, one that needs torch's C++ in a package
for every later torch. Needs no GPU and does not import the module.
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
    """Return what is wrong with a module, one line per fault.

    `folder`: where modules lie: ``site-packages``, or an unpacked wheel. `torch_pin`: of the package: ``exact``,
    ``minor`` or ``stable``.
    """
    libraries: list[LibraryFacts] = []
    unread: dict[str, str] = {}
    for file in sorted((folder / module).rglob("*.so")):
        path = str(file.relative_to(folder))
        try:
            if facts := read(file, path):
                libraries.append(facts)
        except ValueError as error:
            unread[path] = str(error)
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
    judged = [Judgement(path=path, reason=why, remedy="build it again") for path, why in unread.items()]
    judged += (
        judge(module, libraries, wanted, unread=list(unread)) if libraries or unread else [empty(module)]
    )
    if torch_pin == "stable":
        judged += filter(None, map(judge_abi, libraries))
    return [f"{found.path}: {found.reason}\n  {found.remedy}" for found in judged if not found.ok]


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}" + (
        "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    )


def main() -> None:
    """Check, and exit with 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", choices=sorted(KERNELS))
    parser.add_argument("--accelerator", required=True, help="cpu or cuda130")
    parser.add_argument("--archs", default="", help="as in TORCH_CUDA_ARCH_LIST")
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("platlib")))
    parser.add_argument("--python", default=_python(), help="3.12; by default the one that runs this")
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
