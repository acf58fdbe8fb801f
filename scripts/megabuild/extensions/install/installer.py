"""Puts extensions into an environment, each on its own, and proves what it put there.

What is to be done is decided for all of them first, and everything that a compile needs is tried before the first one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from megabuild import events, files
from megabuild.errors import IntegrityError, MegabuildError, ProviderError
from megabuild.extension_table import Extension
from megabuild.extensions.archives import unpacked
from megabuild.extensions.install.compiling import Workshop
from megabuild.extensions.install.deciding import Decider, Request, Step
from megabuild.extensions.install.kept_wheels import KeptWheels
from megabuild.extensions.install.pip import Pip
from megabuild.extensions.install.user_environment import UserEnvironment, why_unfit
from megabuild.extensions.wheels import Wanted
from megabuild.progress import Phases
from megabuild.resources.jobs import Jobs, bytes_per_compile, compile_jobs
from megabuild.resources.machine import Machine
from megabuild.wording import counted


def jobs_for(environment: UserEnvironment, machine: Machine, asked: int | None) -> Jobs:
    """Return how many compile jobs fit into the machine."""
    per_job = bytes_per_compile(cuda=environment.cuda_version is not None)
    return compile_jobs(machine, bytes_per_job=per_job, requested=asked, environ=os.environ)


@dataclass(frozen=True, kw_only=True)
class Installer:
    """Carries out what was decided."""

    decider: Decider  #: decides, and says where to
    wrapper: Path  #: ``recipe/pyg/common/build_wheel.py``
    logs: Path  #: where logs of compiles go
    wheel_dir: Path | None  #: where the wheels that were installed are copied to, or None
    jobs: int  #: compile jobs at a time
    progress: events.Reporter  #: takes where a compile stands

    def install(self, requests: Sequence[Request]) -> tuple[Step, ...]:
        """Install all of them; one that fails does not keep the others from being installed.

        Raises
        ------
        PreflightError
            The environment, or another folder, cannot be written to.
        """
        cache = self.decider.cache
        self.decider.environment.check_writable()
        files.writable(cache, "choose another folder: MEGABUILD_CACHE")
        if self.wheel_dir:
            files.writable(self.wheel_dir, "choose another folder: --wheel-dir")
        with files.scratch(cache / "install-pyg") as folder:
            run = _Run(self, folder)
            steps = [run.prepared(step) for step in self.decider.steps(requests, fetch=True)]
            return tuple(run.ended(step) for step in steps)


class _Run:
    """One installation: the folder it works in, and what has been prepared there."""

    def __init__(self, installer: Installer, folder: Path) -> None:
        self._installer, self._decider = installer, installer.decider
        self._environment = installer.decider.environment
        self._report = installer.decider.report
        self._folder = folder
        self._pip = Pip(environment=self._environment, links=self._decider.sources, temporary=folder)
        self._kept = KeptWheels(cache=self._decider.cache, environment=self._environment)
        self._tried: dict[tuple[str, ...], MegabuildError | None] = {}
        self._ready: dict[str, tuple[Workshop, Path, dict[str, str]]] = {}

    def prepared(self, step: Step) -> Step:
        """Make everything ready that a compile needs, and try it; what fails becomes the step's error."""
        if step.how != "source":
            return step
        started = time.monotonic()
        try:
            self._prepare(step)
        except MegabuildError as error:
            self._report(f"{step.request.extension.name} failed: {error.message}")
            step = replace(step, error=error)
        return replace(step, seconds=step.seconds + time.monotonic() - started)

    def _prepare(self, step: Step) -> None:
        extension, installer = step.request.extension, self._installer
        workshop = Workshop(
            environment=self._environment,
            wrapper=installer.wrapper,
            jobs=installer.jobs,
            archs=step.archs,
            folder=self._folder,
            objects=self._decider.cache / "ccache",
        )
        work = self._folder / extension.name
        work.mkdir()
        environ = workshop.environ(work)
        if step.archs not in self._tried:
            self._report("trying the compilers")
            self._tried[step.archs] = None
            try:
                workshop.check(environ)
            except MegabuildError as error:
                self._tried[step.archs] = error
        if problem := self._tried[step.archs]:
            raise problem
        workshop.prepare(extension, self._pip)
        source = unpacked(
            extension, step.request.release, work, folder=self._decider.sources, cache=self._decider.cache
        )
        workshop.ask(source, self._log(extension), environ)
        self._ready[extension.name] = (workshop, source, environ)

    def ended(self, step: Step) -> Step:
        """Do what was decided, and return what became of it."""
        if step.error:
            return Step(request=step.request, notes=step.notes, error=step.error, seconds=step.seconds)
        started, notes = time.monotonic(), list(step.notes)
        try:
            end = self._done(step, notes)
        except MegabuildError as error:
            self._report(f"{step.request.extension.name} failed: {error.message}")
            end = Step(request=step.request, error=error)
        return replace(end, notes=tuple(notes), seconds=step.seconds + time.monotonic() - started)

    def _done(self, step: Step, notes: list[str]) -> Step:
        request, installer = step.request, self._installer
        name = request.extension.name
        if step.how == "there":
            problem = "" if step.tried else why_unfit(request.extension, self._environment)
            if not problem:
                return Step(request=request, how="there", version=step.version)
            notes.append(f"{step.version} was there, but {problem}")
            return self._anew(self._decider.not_there(request, notes), notes)
        wanted = self._decider.wanted(request)
        if step.how != "prebuilt":
            wanted = replace(wanted, archs=step.archs, exact_archs=True)
        wheel = step.wheel or self._compiled(step, wanted)
        try:
            self._put(request, wheel, wanted)
        except (IntegrityError, ProviderError) as error:
            if step.how == "source":
                raise
            notes.append(f"wheel: {error.message}")
            if self._decider.mode == "prebuilt":
                raise ProviderError(notes[-1], "allow compiling it: --pyg auto") from error
            self._report(f"  {notes[-1]}")
            if step.place:
                shutil.rmtree(step.place)
            return self._anew(self._decider.not_there(request, notes, compiled=True), notes)
        needs = self._kept.needs(wheel, self._folder / f"{name}-libraries")
        if installer.wheel_dir:
            shutil.copy(wheel, installer.wheel_dir)
        version = wheel.name.split("-")[1]
        return Step(request=request, how=step.how, version=version, wheel=wheel, needs=needs)

    def _anew(self, step: Step, notes: list[str]) -> Step:
        step = self.prepared(step)
        if step.error:
            raise step.error
        return self._done(step, notes)

    def _log(self, extension: Extension) -> Path:
        return self._installer.logs / f"{extension.name}.log"

    def _compiled(self, step: Step, wanted: Wanted) -> Path:
        """Compile, look inside, and return the wheel that is kept."""
        installer, extension, version = self._installer, step.request.extension, step.version
        workshop, source, environ = self._ready.pop(extension.name)
        log = self._log(extension)
        what = f" for {', '.join(step.archs)}" if step.archs else ""
        self._report(
            f"{extension.name}: compiling {version}{what} with {counted(installer.jobs, 'job')}, log: {log}"
        )
        phases, python = Phases(), self._environment.version

        def seen(text: str) -> None:
            if event := phases.feed(text, extension.name, python):
                installer.progress(event)

        seen("::megabuild:: phase compile")
        made = workshop.build(source, log, environ, seen)
        problem = self._decider.judge(made, wanted)
        if problem:
            raise IntegrityError(f"it was compiled, but {problem} (see {log})", "correct what the log says")
        assert step.place is not None
        wheel = self._kept.keep(made, step.place)
        shutil.rmtree(self._folder / extension.name)
        return wheel

    def _put(self, request: Request, wheel: Path, wanted: Wanted) -> None:
        """Install a wheel and what it requires, PyTorch left as it is, and prove it."""
        name = request.extension.name
        self._report(f"{name}: installing {wheel.name}")
        what = f"pip does not install {wheel.name}"
        self._pip.run("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), what=what)
        constraints = self._folder / "constraints.txt"
        constraints.write_text(f"torch=={self._environment.torch_version}\n")
        lacking: ProviderError | None = None
        try:
            self._pip.run(
                "install", "--constraint", str(constraints), str(wheel), what=f"what {name} requires"
            )
        except ProviderError as error:
            lacking = error
        problem = self._decider.judge(self._environment.prefix, wanted)
        problem = problem or why_unfit(request.extension, self._environment)
        if problem and lacking is not None:
            raise ProviderError(f"{problem} ({lacking.message})", lacking.remedy)
        if problem:  # worse than nothing: a program would go wrong with it later, and elsewhere
            self._pip.run("uninstall", "--yes", name, what=f"pip does not remove {name}")
            raise IntegrityError(
                f"it was installed, and removed again: {problem}",
                "see what it was compiled with, or use another index",
            )
