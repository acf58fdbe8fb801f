"""Programs of the system (make, git, ...) as packages that start them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from megabuild.files import sha256
from megabuild.providers.local.package import Package

_PATH = "/usr/local/bin:/usr/bin:/bin"


def installed(name: str) -> str | None:
    """Return where the system has a program."""
    return shutil.which(name, path=_PATH)


def packages(names: Iterable[str], platform: str) -> list[Package]:
    """Describe a package for each of `names` that is installed on this machine."""
    found = {name: program for name in sorted(set(names)) if (program := installed(name))}
    return [
        Package(
            name=name,
            version=_version(program),
            platform=platform,
            inputs={"program": program, "sha256": sha256(Path(program).resolve())},
            fill=partial(_fill, name, program),
            summary=f"Starts the system's {program}",
        )
        for name, program in found.items()
    ]


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "0"
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else "0"


def _fill(name: str, program: str, prefix: Path) -> None:
    launcher = prefix / "bin" / name
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    launcher.chmod(0o755)
