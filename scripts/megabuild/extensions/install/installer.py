"""Puts extensions into an environment, each on its own: what is there and fits, a wheel, or a compile; then proof."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from megabuild.errors import IntegrityError, MegabuildError, ProviderError, UsageError
from megabuild.extensions.archives import unpacked
from megabuild.extensions.index import Index
from megabuild.extensions.install.compiling import Workshop
from megabuild.extensions.install.pip import Pip
from megabuild.extensions.install.user_environment import UserEnvironment, why_unfit
from megabuild.extensions.table import Extension, Release
from megabuild.extensions.wheels import Judge, Wanted, choose
from megabuild.resources.jobs import Jobs, bytes_per_compile, compile_jobs
from megabuild.resources.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Request:
    """One extension."""

    #: which
    extension: Extension
    #: only this one, or an empty string: the newest wheel that fits, or the matrix's version from source
    version: str
    #: what is compiled where there is no wheel
    release: Release


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one extension."""

    #: PyPI's name: ``torch_scatter``
    extension: str
    #: installed now; empty for nothing
    version: str = ""
    #: ``prebuilt``, ``source``, ``there``, or empty
    source: str = ""
    #: why it was not prebuilt, what was wrong with what was there
    notes: tuple[str, ...] = ()
    #: why it is not installed; empty where it is
    error: str = ""
    remedy: str = ""
    #: 0, or that of the error
    exit_code: int = 0
    #: wall time
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Installed and proved."""
        return not self.error


def archs_for(environment: UserEnvironment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return what to compile for: what was asked for, the machine's GPUs, else PyTorch's own list.

    A machine without a GPU may be preparing an environment for any: then what PyTorch runs on, extensions run on too.
    """
    if environment.cuda_version is None:
        return ()
    return tuple(asked) or environment.devices or environment.torch_archs


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def jobs_for(environment: UserEnvironment, machine: Machine, asked: int | None) -> Jobs:
    """Return how many compile jobs fit into the machine."""
    per_job = bytes_per_compile(cuda=environment.cuda_version is not None)
    return compile_jobs(machine, bytes_per_job=per_job, requested=asked, environ=os.environ)


@dataclass(frozen=True, kw_only=True)
class Installer:
    """Installs into one environment."""

    #: where to
    environment: UserEnvironment
    #: ``auto``, ``prebuilt`` or ``source``
    mode: str
    #: where wheels are looked for
    index: Index
    #: a folder with the extensions' sources, or None
    sources: Path | None
    #: the folder that configs share
    cache: Path
    #: ``recipe/pyg/common/build_wheel.py``
    wrapper: Path
    #: where logs of compiles go
    logs: Path
    #: CUDA archs to compile for and to ask of wheels; empty: those of the machine's GPUs, else PyTorch's own
    archs: tuple[str, ...]
    #: install what is there and works once more
    force: bool
    #: compile jobs at a time
    jobs: int
    #: looks inside a wheel, or into an environment
    judge: Judge
    #: takes a sentence for everything that takes time
    report: Callable[[str], None]

    @cached_property
    def _pip(self) -> Pip:
        return Pip(environment=self.environment, links=self.sources)

    def install(self, requests: Sequence[Request]) -> tuple[Row, ...]:
        """Install all of them; one that fails does not keep the others from being installed."""
        with tempfile.TemporaryDirectory(prefix="install-pyg-") as folder:
            return tuple(self._row(request, Path(folder)) for request in requests)

    def _row(self, request: Request, folder: Path) -> Row:
        started, name, notes = time.monotonic(), request.extension.name, list[str]()
        self.report(f"{name}:")
        try:
            version, source = self._one(request, folder, notes)
            row = Row(extension=name, version=version, source=source)
        except MegabuildError as error:
            self.report(f"  failed: {error.message}")
            row = Row(extension=name, error=error.message, remedy=error.remedy, exit_code=error.exit_code)
        return replace(row, notes=tuple(notes), seconds=time.monotonic() - started)

    def _one(self, request: Request, folder: Path, notes: list[str]) -> tuple[str, str]:
        """Return the version that is installed in the end, and where it is from."""
        if there := self._there(request, notes):
            return there, "there"
        if self.mode != "source" and (version := self._prebuilt(request, folder, notes)):
            return version, "prebuilt"
        if self.mode == "prebuilt":
            raise ProviderError(notes[-1], "allow compiling it: --pyg auto")
        self._compiled(request, folder)
        return request.release.version, "source"

    def _there(self, request: Request, notes: list[str]) -> str:
        """Return the version of what is there and fits, else nothing."""
        there = self.environment.distributions.get(request.extension.name)
        if there is None or self.force:
            return ""
        if request.version and there.partition("+")[0] != request.version:
            notes.append(f"{there} was there, {request.version} is asked for")
            return ""
        problem = self._unfit(request, self._wanted(request))
        if problem:
            notes.append(f"{there} was there, but {problem}")
            self.report(f"  {notes[-1]}")
        return "" if problem else there

    def _wanted(self, request: Request) -> Wanted:
        # A wheel, and what is there, must run on the GPUs that were named or are here. Where neither is known, the look
        # inside asks that it runs on whatever the PyTorch beside it runs on.
        archs = self.archs or self.environment.devices
        return Wanted(
            extension=request.extension,
            target=self.environment.target,
            archs=tuple(archs) if self.environment.cuda_version else (),
            beside=self.environment.prefix,
        )

    def _unfit(self, request: Request, wanted: Wanted) -> str:
        """Why what is installed is not what is wanted: it is looked into, and it is tried."""
        environment = self.environment
        return self.judge(environment.prefix, wanted) or why_unfit(request.extension, environment)

    def _prebuilt(self, request: Request, folder: Path, notes: list[str]) -> str:
        """Install a wheel; return its version, or nothing where none fits."""
        wanted = self._wanted(request)
        choice = choose(
            wanted,
            request.version,
            index=self.index,
            cache=self.cache,
            report=lambda sentence: self.report(f"  {sentence}"),
            judge=self.judge,
        )
        if choice.wheel is None:
            problem = f"no wheel: {choice.reason}"
        else:
            try:
                self._put(request, choice.wheel, wanted, folder)
                return choice.version
            except (IntegrityError, ProviderError) as error:
                problem = f"wheel: {error.message}"
        notes.append(problem)
        self.report(f"  {problem}")
        return ""

    def _compiled(self, request: Request, folder: Path) -> None:
        extension, version = request.extension, request.release.version
        archs = archs_for(self.environment, self.archs)
        archs = tuple(arch for arch in archs if _number(arch) >= _number(extension.oldest_arch))
        if self.environment.cuda_version is not None and not archs:
            raise UsageError(
                "it is not known what to compile for: there is no GPU here, and this PyTorch names no archs",
                'name them: --arch-list "9.0;12.0"',
            )
        workshop = Workshop(
            environment=self.environment,
            wrapper=self.wrapper,
            jobs=self.jobs,
            archs=archs,
            tools=folder / "tools",
        )
        work = folder / extension.name
        work.mkdir()
        environ = workshop.environ(work)
        workshop.prepare(extension, self._pip)
        source = unpacked(extension, request.release, work, folder=self.sources, cache=self.cache)
        log = self.logs / f"{extension.name}.log"
        what = f" for {', '.join(archs)}" if archs else ""
        self.report(f"  compiling {version}{what} with {self.jobs} jobs, log: {log}")
        wheel = workshop.build(source, log, environ)
        wanted = replace(self._wanted(request), archs=archs, exact_archs=True)
        problem = self.judge(wheel, wanted)
        if problem:
            raise IntegrityError(f"it was compiled, but {problem} (see {log})", "correct what the log says")
        self._put(request, wheel, wanted, folder)
        shutil.rmtree(work)

    def _put(self, request: Request, wheel: Path, wanted: Wanted, folder: Path) -> None:
        """Install a wheel and what it requires, PyTorch left as it is, and prove it."""
        name = request.extension.name
        self.report(f"  installing {wheel.name}")
        what = f"pip does not install {wheel.name}"
        self._pip.run("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), what=what)
        constraints = folder / "constraints.txt"
        constraints.write_text(f"torch=={self.environment.torch_version}\n")
        lacking: ProviderError | None = None
        try:
            self._pip.run(
                "install", "--constraint", str(constraints), str(wheel), what=f"what {name} requires"
            )
        except ProviderError as error:
            lacking = error
        problem = self._unfit(request, wanted)
        if problem and lacking is not None:
            raise ProviderError(f"{problem} ({lacking.message})", lacking.remedy)
        if problem:  # worse than nothing: a program would go wrong with it later, and elsewhere
            self._pip.run("uninstall", "--yes", name, what=f"pip does not remove {name}")
            raise IntegrityError(
                f"it was installed, and removed again: {problem}",
                "see what it was compiled with, or use another index",
            )
