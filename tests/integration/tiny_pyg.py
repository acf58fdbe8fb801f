"""A megabuild of seconds with extensions: real compiles by a real ninja, against empty packages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import Tiny, make_channel, provider

from megabuild.configs.config import load
from megabuild.plan import planning
from megabuild.plan.options import Options
from pyg_extensions import find_wheel

ROOT = Path(__file__).resolve().parent.parent / "data" / "tiny_pyg"
LOG = "compilers.log"


class TinyPyg(Tiny):
    """One output folder with what it takes to run the tiny megabuild with extensions there."""

    def options(self, **choices: Any) -> Options:
        """Options of a run for three compilers."""
        values: dict[str, Any] = {
            "cache": self.output / "cache",
            "engine": "host",
            "pyg": "source",
            "cpu_count": 3,
        }
        values.update(choices)
        return Options(config=load(self.root, "tiny_pyg"), root=self.root, output=self.output, **values)

    def most_compilers(self) -> int:
        """Most compilers that ran at once."""
        now = most = 0
        for line in self.compiles():
            now += 1 if line.startswith("begin") else -1
            most = max(most, now)
        return most

    def compiles(self) -> list[str]:
        """Lines of the compilers' log: ``begin pytorch_scatter-3.11``."""
        log = self.output.parent / LOG
        return log.read_text().splitlines() if log.exists() else []


def ninja() -> str:
    """Where ninja is, or an empty string."""
    return shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or ""


def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TinyPyg:
    """Make one in a folder; packages are not looked into, since they hold no real extensions."""
    program = ninja()
    if not program:
        pytest.skip("there is no ninja")
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TINY_NINJA", program)
    monkeypatch.setenv("TINY_LOG", str(folder / LOG))
    monkeypatch.setenv("TINY_SECONDS", "0.2")
    monkeypatch.setenv("TORCH_CCACHE", "no-such-cache")
    channel = make_channel(folder / "channel")
    monkeypatch.setattr(planning, "choose_provider", provider(channel))
    monkeypatch.setattr(find_wheel, "check_package", lambda package, **expected: None)
    root = folder / "root"
    shutil.copytree(ROOT, root)
    return TinyPyg(output=folder / "output", channel=channel, root=root)
