"""One task from source or wheel to a tested package, in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from megabuild import files
from megabuild.engine import archive, cache, reproducible
from megabuild.engine.job import Outcome
from megabuild.engine.logs import LogFollower, LogLine
from megabuild.engine.supervisor import run_worker
from megabuild.errors import BuildError
from megabuild.isolation.base import Isolation
from megabuild.network.redact import Mask
from megabuild.run import events, failure, publish
from megabuild.run.logfile import LogFile
from megabuild.run.objects import Objects
from megabuild.run.options import Plan
from megabuild.run.place import cache_folder
from megabuild.run.progress import Parser
from megabuild.run.pyg import place
from megabuild.run.pyg.tasks import Task

#: What the packages in a task's output folder were made from.
_INPUTS = ".megabuild-inputs"


class Stopped(Exception):
    """The run ends; whoever waits for a task is told so."""


class Building:
    """One task; its two steps may run in different threads, one after the other.

    Parameters
    ----------
    plan:
        The run.
    task:
        What to build.
    isolation:
        Where.
    check:
        Looks into a finished package; raises what is wrong with it.
    tell:
        Takes events, from any thread.
    stop:
        Set when everything is to end.
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        isolation: Isolation,
        *,
        check: Callable[[Path, Task], None],
        tell: Callable[[events.Event], None],
        stop: threading.Event,
    ) -> None:
        self.task = task
        self.seconds = 0.0
        self._plan = plan
        self._isolation = isolation
        self._check = check
        self._tell = tell
        self._stop = stop
        self._state = place.state(plan.options, task)
        self._out = self._state / "out"
        self._log: LogFile | None = None
        self._parser = Parser()
        self._recent = failure.Recent()
        self._phase = ""

    @property
    def log(self) -> Path:
        """The log of the last step, or where logs will lie."""
        return self._log.path if self._log else self._state / "logs"

    def build(self, jobs: int) -> None:
        """Make the packages, without testing them; those that an earlier run made from the same inputs stay.

        Parameters
        ----------
        jobs:
            Limit on compile jobs over all tasks.

        Raises
        ------
        MegabuildError
            It failed.
        """
        self._heal()
        if not self._missing():
            return
        # the stamp of another run's packages goes before they do, and this one's comes before any is there
        files.write(self._out / _INPUTS, self.task.fingerprint)
        began = time.monotonic()
        outcome = self._work(jobs=jobs, test=False, leftovers=(), published=())
        self.seconds = time.monotonic() - began
        if not outcome.ok:
            raise self._explained(outcome, jobs)
        if missing := self._missing():
            raise BuildError(f"{self.task.name}: {', '.join(missing)} was not made\nlog: {self.log}")
        for package in self.task.packages:
            self._tell(
                events.PackageBuilt(
                    name=package.name,
                    version=package.version,
                    build_string=package.build_string,
                    seconds=round(self.seconds, 1),
                )
            )

    def test(self, jobs: int, needs: Sequence[Path]) -> list[archive.Archive]:
        """Run the packages' own tests.

        Parameters
        ----------
        jobs:
            As in :meth:`build`.
        needs:
            Package files of other tasks that the tests install.

        Returns
        -------
        list[archive.Archive]
            The packages, looked into.

        Raises
        ------
        MegabuildError
            A test failed, or a package is not what it should be.
        """
        for path in needs:
            cache.link(path, self._out / path.parent.name / path.name)
        cache.index(self._out, self._plan.options.config.platform)
        own = [self._path(package.file_name) for package in self.task.packages]
        if not self._plan.options.skip_tests:
            outcome = self._work(
                jobs=jobs,
                test=True,
                leftovers=[path.relative_to(self._out).as_posix() for path in own],
                published=[path.name for path in needs],
            )
            if not outcome.ok:
                raise self._explained(outcome, jobs)
        date = reproducible.recipe_date(self._plan.options.root)
        for path in own:
            reproducible.normalise(path, date)
        archives = [
            publish.verify(package, path) for package, path in zip(self.task.packages, own, strict=True)
        ]
        for path in own:
            self._check(path, self.task)
        return archives

    def _heal(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        for rest in (*self._state.glob(".removed-*"), self._state / "tmp"):
            if rest.exists():
                cache.remove(rest)
        for what in cache.heal(self._out):
            self._tell(events.Healed(what=what))
        own = frozenset(package.file_name for package in self.task.packages)
        try:
            fits = (self._out / _INPUTS).read_text() == self.task.fingerprint
        except OSError:
            fits = False
        cache.drop_packages(self._out, keep=own if fits else frozenset())
        cache.index(self._out, self._plan.options.config.platform)

    def _path(self, file_name: str) -> Path:
        package = next(package for package in self.task.packages if package.file_name == file_name)
        return self._out / package.subdir / file_name

    def _missing(self) -> list[str]:
        names = [package.file_name for package in self.task.packages]
        return [name for name in names if not self._path(name).is_file()]

    # ------------------------------------------------------------------------------------------ the worker

    def _work(self, *, jobs: int, test: bool, leftovers: Sequence[str], published: Sequence[str]) -> Outcome:
        options = self._plan.options
        seen = place.view(self._plan, self.task, self._isolation, cache_folder(options, os.environ))
        job = place.job(
            self._plan, self.task, seen, jobs=jobs, test=test, leftovers=leftovers, published=published
        )
        objects = Objects(self._state)
        objects.begin(self._state / "tree")
        with (
            LogFile(self._state / "logs", self.task.name, Mask(os.environ)) as log,
            LogFollower(self._state) as follower,
        ):
            self._log = log
            self._recent = failure.Recent()

            def line(found: LogLine) -> None:
                source = found.package or self.task.extension
                text = log.write(f"test:{source}" if found.kind == "test" else source, found.text)
                self._recent.add(replace(found, text=text))
                for event in self._parser.feed(found):
                    if isinstance(event, events.PhaseStarted):
                        self._phase = event.phase
                    self._tell(event)

            def engine(text: str) -> None:
                self._recent.add_engine(log.write("engine", text))

            def tick() -> None:
                for found in follower.poll():
                    line(found)
                if self._stop.is_set():
                    raise Stopped(self.task.name)

            outcome = run_worker(seen.place, job, on_line=engine, on_tick=tick)
            for found in follower.poll(last=True):
                line(found)
            log.write("driver", "done" if outcome.ok else f"error: {outcome.message}")
        for event in objects.reused(self._state / "tree", self._parser.totals):
            self._tell(event)
        return outcome

    def _explained(self, outcome: Outcome, jobs: int) -> Exception:
        broken = {path.name for path in (self._out / "broken").glob("*.conda")}
        what, lines = self._recent.culprit(outcome, broken)
        return failure.explain(
            outcome, lines=lines, what=what, phase=self._phase, jobs=jobs, log=self.log, state=self._state
        )
