"""A megabuild of seconds: a recipe whose "compiler" copies files, and a channel of empty packages."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rattler.index import index_fs
from rattler_build import assemble_package

from groundwork import events
from megabuild.configs.config import load
from megabuild.plan import planning
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.providers.environment import Environment
from megabuild.run.session import execute
from megabuild.run.summary import Summary

ROOT = Path(__file__).resolve().parent.parent / "data" / "tiny"
PACKAGES = (("tool", "1.0", "0"), ("python", "3.11.7", "0_cpython"), ("python", "3.12.1", "0_cpython"))


def make_package(
    folder: Path,
    name: str,
    version: str,
    build: str,
    files: Mapping[str, str] | None = None,
    depends: Sequence[str] = (),
) -> Path:
    """Write a package file, empty but for ``files``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = folder / f".content-{name}-{version}-{build}"
    for path, text in (files or {f"share/{name}/note": version}).items():
        (content / path).parent.mkdir(parents=True, exist_ok=True)
        (content / path).write_text(text)
    made = assemble_package(
        name=name, version=version, build_string=build, target_platform="linux-64", output_dir=folder,
        files_dir=content, compression_level=1, detect_prefix=False, depends=list(depends),
    )  # fmt: skip
    return Path(str(made.path if hasattr(made, "path") else made))


def make_channel(folder: Path, packages: tuple[tuple[str, str, str], ...] = PACKAGES) -> Path:
    """Make a channel of empty packages."""
    for name, version, build in packages:
        make_package(folder / "linux-64", name, version, build)
    (folder / "noarch").mkdir(exist_ok=True)
    asyncio.run(index_fs(folder, force=True, write_shards=False))
    return folder


@dataclass
class Tiny:
    """One output folder with what it takes to run the tiny megabuild there."""

    output: Path
    channel: Path
    root: Path = ROOT
    environment: dict[str, Any] = field(default_factory=dict)
    seen: list[events.Event] = field(default_factory=list)

    def options(self, **choices: Any) -> Options:
        """Options of a rehearsal."""
        values: dict[str, Any] = {"rehearse": True, "cache": self.output / "cache", **choices}
        return Options(config=load(self.root, "tiny"), root=self.root, output=self.output, **values)

    def plan(self, **choices: Any) -> Plan:
        """Plan a run."""
        return planning.make_plan(self.options(**choices), lambda text: None)

    def run(self, **choices: Any) -> Summary:
        """Plan and execute a run; its events are kept in ``seen``."""
        self.seen = []
        return execute(self.plan(**choices), self.seen.append)

    def of(self, kind: type[Any]) -> list[Any]:
        """Events of one kind of the last run."""
        return [event for event in self.seen if isinstance(event, kind)]

    def log_text(self) -> str:
        """The last run's log."""
        return (self.options().state / "logs" / "latest.log").read_text()


def provider(channel: Path, **changes: Any) -> Callable[..., Environment]:
    """A provider that has made its environment already."""
    values: dict[str, Any] = {"pythons": ("3.11", "3.12"), **changes}
    return functools.partial(_environment, channel, values)


def _environment(channel: Path, values: Mapping[str, Any], *_: Any, **__: Any) -> Environment:
    return Environment(channels=(channel,), **values)


@contextmanager
def driver(tiny: Tiny, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run the tiny megabuild in a driver process of its own, killed at the end if it still runs."""
    command = [sys.executable, __file__, str(tiny.output), str(tiny.channel), str(tiny.root)]
    paths = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths, **environ}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until something is true; say whether it came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


if __name__ == "__main__":
    here = Tiny(output=Path(sys.argv[1]), channel=Path(sys.argv[2]), root=Path(sys.argv[3]))
    setattr(planning, "provide", provider(here.channel))  # noqa: B010
    execute(here.plan(engine=os.environ.get("TINY_ENGINE")), lambda event: None)
