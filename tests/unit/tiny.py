"""A megabuild of seconds: a recipe whose "compiler" copies files, and a channel of empty packages."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rattler.index import index_fs
from rattler_build import assemble_package
from small_files import write

from command_line.run_command import end_process
from groundwork.channel import Channel
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.isolation.engine import Engine
from megabuild.plan import planning
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.provider import Provider
from megabuild.run.outlook import Outlook, look_ahead
from megabuild.run.session import execute
from megabuild.run.summary import Summary
from megabuild.status.status import Status, logger
from megabuild.store import published

if TYPE_CHECKING:
    import pytest  # a driver's process, which runs this file, starts faster without it

ROOT = Path(__file__).resolve().parent.parent / "data" / "tiny"
DECISIONS = {
    "built from scratch": "fresh",
    "is reused": "reuse",
    "continues where": "resume",
    "compiled completely": "resume",
    "rebuilt": "recompile",
}
PACKAGES = (("tool", "1.0", "0"), ("python", "3.11.7", "0_cpython"), ("python", "3.12.1", "0_cpython"))


def make_package(
    folder: Path,
    name: str,
    version: str,
    build: str,
    files: Mapping[str, str | bytes] | None = None,
    depends: Sequence[str] = (),
) -> Path:
    """Write a package file, empty but for ``files``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = folder / f".content-{name}-{version}-{build}"
    for path, text in (files or {f"share/{name}/note": version}).items():
        write(content / path, text)
    made = assemble_package(
        name=name, version=version, build_string=build, target_platform="linux-64", output_dir=folder,
        files_dir=content, compression_level=1, detect_prefix=False, depends=list(depends), license="MIT",
    )  # fmt: skip
    return Path(str(made.path if hasattr(made, "path") else made))


def make_channel(folder: Path, packages: tuple[tuple[str, str, str], ...] = PACKAGES) -> Path:
    """Make a channel of empty packages."""
    for name, version, build in packages:
        make_package(folder / "linux-64", name, version, build)
    (folder / "noarch").mkdir(exist_ok=True)
    asyncio.run(index_fs(folder, force=True, write_shards=False))
    return folder


def publish(channel: Path, packages: Sequence[Path]) -> None:
    """Publish package files in the channel of a config."""
    archives, fingerprints = [archive.read(path) for path in packages], {path.name: "f" for path in packages}
    published.publish(channel, archives, platform="linux-64", fingerprints=fingerprints, seconds={})


@dataclass
class Tiny:
    """One output folder with what it takes to run the tiny megabuild there."""

    output: Path
    channel: Path
    root: Path = ROOT
    seen: list[logging.LogRecord] = field(default_factory=list)  #: sentences of the last run
    status: Status | None = None  #: of the last run

    def options(self, **choices: Any) -> Options:
        """Options of a rehearsal."""
        values: dict[str, Any] = {"rehearse": True, "cache": self.output / "cache", **choices}
        return Options(config=load(self.root, "tiny"), root=self.root, output=self.output, **values)

    def plan(self, **choices: Any) -> Plan:
        """Plan a run."""
        return planning.make_plan(self.options(**choices), lambda text: None)

    def outlook(self, **choices: Any) -> Outlook:
        """Plan a run, and look at what exists."""
        return look_ahead(self.plan(**choices), os.environ, lambda text: None)

    def run(self, **choices: Any) -> Summary:
        """Plan and execute a run; its sentences and its status are kept."""
        outlook = self.outlook(**choices)
        with kept_sentences() as self.seen:
            self.status = Status(outlook.options.run_name, outlook.options.state)
            return execute(outlook, self.status)

    def sentences(self, level: int = logging.DEBUG) -> list[str]:
        """Sentences of the last run, of this level alone where one is named."""
        return [one.getMessage() for one in self.seen if level in (logging.DEBUG, one.levelno)]

    def warnings(self) -> list[str]:
        """Warnings of the last run."""
        return self.sentences(logging.WARNING)

    def decisions(self) -> list[tuple[str, str]]:
        """What the last run has decided on the former compile, and why, each time."""
        found = [(word, text) for text in self.sentences() for key, word in DECISIONS.items() if key in text]
        return [(word, text.partition("(")[2].rstrip(")")) for word, text in found]

    def phases(self) -> list[str]:
        """Phases of the last run, in words."""
        return [one.getMessage() for one in self.seen if hasattr(one, "begins_phase")]

    def log_text(self) -> str:
        """The last run's log."""
        return (self.options().state / "logs" / "latest.log").read_text()


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def kept_sentences(of: logging.Logger = logger) -> Iterator[list[logging.LogRecord]]:
    """Keep what is logged meanwhile."""
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign, assignment]
    of.addHandler(handler)
    try:
        yield kept
    finally:
        of.removeHandler(handler)


@dataclass(frozen=True)
class Made(Provider):
    """A provider that has made its environment already."""

    environment: Environment

    def provide(self) -> Environment:
        """Return the environment."""
        return self.environment


def provider(channel: Path | str, **changes: Any) -> Callable[[ProviderRequest], Provider]:
    """Return a choice of a provider that has made its environment already; a path is a channel of this machine."""
    if isinstance(channel, Path):
        made = Channel.of_folder(channel, this_machine=True)
    else:
        made = Channel.parse(channel)
    environment = Environment(channels=(made,), **{"pythons": ("3.11", "3.12"), **changes})
    return lambda request: Made(request, environment)


def build_with(channel: Path, patch: pytest.MonkeyPatch) -> None:
    """Have runs of this process build with a channel, and without settings of the environment."""
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        patch.delenv(name, raising=False)
    patch.setattr(planning, "choose_provider", provider(channel))


@contextmanager
def driver(tiny: Tiny, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run the tiny megabuild in a driver process of its own, killed at the end if it still runs."""
    program = str(sys.modules[type(tiny).__module__].__file__)
    command = [sys.executable, program, str(tiny.output), str(tiny.channel), str(tiny.root)]
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
    setattr(planning, "choose_provider", provider(here.channel))  # noqa: B010
    engine = os.environ.get("TINY_ENGINE")
    outlook = here.outlook(engine=Engine(engine) if engine else None)
    execute(outlook, Status(outlook.options.run_name, outlook.options.state))
    end_process(0)  # the threads of rattler may abort a process that ends in the usual way
