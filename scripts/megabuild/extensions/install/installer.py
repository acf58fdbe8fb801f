"""Puts extensions into an environment, each on its own: what is there and fits, a wheel, or a compile; then proof."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from megabuild.errors import IntegrityError, MegabuildError, ProviderError, UsageError
from megabuild.extensions.index import Index
from megabuild.extensions.install.compiling import Workshop
from megabuild.extensions.install.pip import Pip
from megabuild.extensions.install.rows import Options, Request, Row
from megabuild.extensions.install.user_environment import Environment, why_unfit
from megabuild.extensions.sdist import download
from megabuild.extensions.source_tree import obtain
from megabuild.extensions.wheels import Judge, Wanted, choose
from megabuild.resources.jobs import Jobs, bytes_per_compile, compile_jobs
from megabuild.resources.machine import Machine

Report = Callable[[str], None]


@dataclass
class _Attempt:
    """What is known about one extension so far."""

    version: str = ""
    source: str = ""
    notes: list[str] = field(default_factory=list)


def archs_for(environment: Environment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return what to compile for: what was asked for, the machine's GPUs, else PyTorch's own list.

    A machine without a GPU may be preparing an environment for any: then what PyTorch runs on, extensions run on too.
    """
    if environment.cuda_version is None:
        return ()
    return tuple(asked) or environment.devices or environment.torch_archs


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def jobs_for(environment: Environment, machine: Machine, asked: int | None) -> Jobs:
    """Return how many compile jobs fit into the machine."""
    per_job = bytes_per_compile(cuda=environment.cuda_version is not None)
    return compile_jobs(machine, bytes_per_job=per_job, requested=asked, environ=os.environ)


class Installer:
    """Installs into one environment.

    Parameters
    ----------
    environment:
        Where to.
    options:
        How.
    judge:
        Looks inside a wheel, or into an environment.
    jobs:
        Compile jobs at a time.
    report:
        Takes a sentence for everything that takes time.
    """

    def __init__(
        self, environment: Environment, options: Options, *, judge: Judge, jobs: int, report: Report
    ) -> None:
        self._environment = environment
        self._options = options
        self._judge = judge
        self._jobs = jobs
        self._report = report
        self._index = Index(options.index)
        self._pip = Pip(environment=environment, links=options.sources)

    def install(self, requests: Sequence[Request]) -> tuple[Row, ...]:
        """Install all of them; one that fails does not keep the others from being installed."""
        with tempfile.TemporaryDirectory(prefix="install-pyg-") as folder:
            return tuple(self._row(request, Path(folder)) for request in requests)

    def _row(self, request: Request, folder: Path) -> Row:
        started, attempt, name = time.monotonic(), _Attempt(), request.extension.name
        error: MegabuildError | None = None
        self._report(f"{name}:")
        try:
            self._one(request, folder, attempt)
        except MegabuildError as problem:
            error = problem
            self._report(f"  failed: {problem.message}")
        return Row(
            extension=name,
            version="" if error else attempt.version,
            source="" if error else attempt.source,
            notes=tuple(attempt.notes),
            error=error.message if error else "",
            remedy=error.remedy if error else "",
            exit_code=error.exit_code if error else 0,
            seconds=time.monotonic() - started,
        )

    def _one(self, request: Request, folder: Path, attempt: _Attempt) -> None:
        if self._is_there(request, attempt):
            return
        if self._options.mode != "source" and self._prebuilt(request, folder, attempt):
            return
        if self._options.mode == "prebuilt":
            raise ProviderError(attempt.notes[-1], "allow compiling it: --pyg auto")
        self._compiled(request, folder, attempt)

    # ---- what is there ---------------------------------------------------------------------------------------
    def _is_there(self, request: Request, attempt: _Attempt) -> bool:
        there = self._environment.distributions.get(request.extension.name)
        if there is None or self._options.force:
            return False
        if request.version and there.partition("+")[0] != request.version:
            attempt.notes.append(f"{there} was there, {request.version} is asked for")
            return False
        problem = self._unfit(request, self._wanted(request))
        if problem:
            attempt.notes.append(f"{there} was there, but {problem}")
            self._report(f"  {attempt.notes[-1]}")
            return False
        attempt.version, attempt.source = there, "there"
        return True

    def _wanted(self, request: Request) -> Wanted:
        # A wheel, and what is there, must run on the GPUs that were named or are here. Where neither is known, the look
        # inside asks that it runs on whatever the PyTorch beside it runs on.
        archs = self._options.archs or self._environment.devices
        return Wanted(
            extension=request.extension,
            target=self._environment.target,
            archs=tuple(archs) if self._environment.cuda_version else (),
            beside=self._environment.prefix,
        )

    def _unfit(self, request: Request, wanted: Wanted) -> str:
        """Why what is installed is not what is wanted: it is looked into, and it is tried."""
        return self._judge(self._environment.prefix, wanted) or why_unfit(
            request.extension, self._environment
        )

    # ---- a wheel ---------------------------------------------------------------------------------------------
    def _prebuilt(self, request: Request, folder: Path, attempt: _Attempt) -> bool:
        wanted = self._wanted(request)
        choice = choose(
            wanted,
            request.version,
            index=self._index,
            cache=self._options.cache,
            report=lambda sentence: self._report(f"  {sentence}"),
            judge=self._judge,
        )
        if choice.wheel is None:
            attempt.notes.append(f"no wheel: {choice.reason}")
            self._report(f"  {attempt.notes[-1]}")
            return False
        try:
            self._put(request, choice.wheel, wanted, folder)
        except (IntegrityError, ProviderError) as error:
            attempt.notes.append(f"wheel: {error.message}")
            self._report(f"  {attempt.notes[-1]}")
            return False
        attempt.version, attempt.source = choice.version, "prebuilt"
        return True

    # ---- a compile -------------------------------------------------------------------------------------------
    def _compiled(self, request: Request, folder: Path, attempt: _Attempt) -> None:
        options, name = self._options, request.extension.name
        archs = archs_for(self._environment, options.archs)
        archs = tuple(arch for arch in archs if _number(arch) >= _number(request.extension.oldest_arch))
        if self._environment.cuda_version is not None and not archs:
            raise UsageError(
                "it is not known what to compile for: there is no GPU here, and this PyTorch names no archs",
                'name them: --arch-list "9.0;12.0"',
            )
        workshop = Workshop(
            environment=self._environment,
            wrapper=options.wrapper,
            jobs=self._jobs,
            archs=archs,
            tools=folder / "tools",
        )
        work = folder / name
        work.mkdir()
        environ = workshop.environ(work)
        workshop.prepare(request.extension, self._pip)
        source = obtain(
            request.extension,
            request.source,
            work,
            folder=options.sources,
            download=lambda wanted: download(wanted, options.cache),
        )
        log = options.logs / f"{name}.log"
        what = f" for {', '.join(archs)}" if archs else ""
        self._report(f"  compiling {request.source.version}{what} with {self._jobs} jobs, log: {log}")
        wheel = workshop.build(source, log, environ)
        wanted = replace(self._wanted(request), archs=archs, exact_archs=True)
        problem = self._judge(wheel, wanted)
        if problem:
            raise IntegrityError(f"it was compiled, but {problem} (see {log})", "correct what the log says")
        self._put(request, wheel, wanted, folder)
        shutil.rmtree(work)
        attempt.version, attempt.source = request.source.version, "source"

    # ---- installing ------------------------------------------------------------------------------------------
    def _put(self, request: Request, wheel: Path, wanted: Wanted, folder: Path) -> None:
        """Install a wheel and what it requires, PyTorch left as it is, and prove it."""
        name = request.extension.name
        self._report(f"  installing {wheel.name}")
        what = f"pip does not install {wheel.name}"
        self._pip.run("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), what=what)
        constraints = folder / "constraints.txt"
        constraints.write_text(f"torch=={self._environment.torch_version}\n")
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
