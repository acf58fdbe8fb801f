"""The task that tests and finishes one of PyTorch's packages, while the next one is compiled."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence

from rattler import MatchSpec

from groundwork import channel_folder, files
from groundwork.errors import PackageTestError
from groundwork.jobs import Budget
from groundwork.text import Sign, duration
from megabuild.configs.render import PlannedPackage
from megabuild.engine.supervisor import TESTS
from megabuild.plan.plan import PlanItem
from megabuild.plan.published import paths
from megabuild.providers.specs import satisfied
from megabuild.run.build_output import BuildStep
from megabuild.run.build_task import finish
from megabuild.run.sandbox_paths import job, make_sandbox_paths
from megabuild.run.shelf import Shelf
from megabuild.run.summary import name_of_test
from megabuild.run.work import BROKEN, Need, RunContext, TaskResult, Work
from megabuild.status.status import logger

#: Subfolder of a test's folder: a channel of this run's packages for the test environment.
_CHANNEL = "channel"


class PackageTest(Work):
    """Tests one package of PyTorch's build, and normalises it for publication.

    The test uses copies of this package and of the run's other packages, in a folder that builds cannot write.
    """

    vital = True
    brief = True

    def __init__(self, run: RunContext, budget: Budget, shelf: Shelf, item: PlanItem) -> None:
        package, items = item.package, run.plan.items
        # short, because tests create sockets below it
        short = f"{package.name}-{zlib.crc32(package.file_name.encode()):08x}"
        super().__init__(run, run.plan.options.state / TESTS / short, budget)
        self._package, self._shelf, self.labels = package, shelf, (package.id.label,)
        self.name = name_of_test(package.file_name)
        needed = _find_needs(package, items, (*package.run, *package.test))
        # publish dependencies first: wait for the tests of needed packages that are built earlier
        before = items[: items.index(item)]
        tests = [tuple(map(name_of_test, names)) for names in _match_own(before, package.run)]
        self.needs = (package.file_name, *needed, *tests)

    def take(self, step: BuildStep) -> None:
        """Ignore steps of test scripts: a package counts as one test."""

    def run(self, jobs: int) -> TaskResult:
        """Test the package; finish it if it passes, else put it aside."""
        status, began, label = self._run.status, time.monotonic(), self._package.id.label
        status.set_packages([label], "testing")
        self.task.phase(f"testing {label}")
        result = self._test(jobs)
        took = duration(time.monotonic() - began)
        status.set_packages([label], "failed" if result.error else "tested")
        status.time_left.reach(f"tested {label.split()[0]}")
        if result.error is None:
            logger.info("%s %s: tested in %s", Sign.done, label, took)
        return result

    def _test(self, jobs: int) -> TaskResult:
        plan, package = self._plan, self._package
        files.remove(self._state)
        copies = self._shelf.copies()  # only complete ones: another package may be half copied
        built = self._shelf.folder / package.subdir / package.file_name
        # one channel per test: a shared one would be reindexed while other tests read it
        channel = self._state / _CHANNEL
        published = (item.package.file_name for item in plan.items if item.exists)
        for path in [*copies, *paths(plan.options.packages, published)]:
            files.link(path, channel / path.parent.name / path.name)
        channel_folder.write_index(channel, plan.options.config.platform)
        channels = (channel, *plan.environment.channels)
        recipe = plan.options.recipe
        sandbox = make_sandbox_paths(
            plan, self._run.isolation, state=self._state, recipe=recipe, channels=channels
        )
        inside = f"{sandbox.channels[0].removeprefix('file://')}/{package.subdir}/{package.file_name}"
        work = job(plan, sandbox, plan.overrides, jobs=jobs, env={}, tests=[inside])
        log = self._run.log
        outcome = self.follow(sandbox, work, log)
        if not outcome.ok:
            what = f"test of {package.name} {package.build_string}"
            aside, broken = self._state.parent / BROKEN, [package.file_name]
            error = self.explain(outcome, jobs, log.path, aside=aside, broken=broken, what=what)
            if isinstance(error, PackageTestError):  # not if the test was killed
                self._shelf.reject(built)
            return TaskResult(seconds={}, error=error)
        finished = finish(plan, package, built, self._state.parent / "passed", self.halt)
        files.remove(self._state)
        seconds = {package.file_name: copies[built]}
        return TaskResult(archives=[finished], seconds=seconds)


def _find_needs(package: PlannedPackage, items: Sequence[PlanItem], specs: Iterable[str]) -> Iterator[Need]:
    """Yield the plan's packages that an environment of ``specs`` needs; of a tuple, any one is enough."""
    needed, left = {package.file_name}, list(specs)
    by_file = {item.package.file_name: item.package for item in items}
    while left:
        for need in list(_match_own(items, [left.pop()])):
            new = [name for name in need if name not in needed]
            needed.update(new)
            if by_file[need[0]].python:
                yield need  # any Python's package is enough
                new = new[:1]
            else:
                yield from new  # all variants, so that the solver chooses as it does for users
            left += [spec for name in new for spec in by_file[name].run]


def _match_own(items: Sequence[PlanItem], specs: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield, for each spec that packages of this plan match, the names of their files."""
    for text in specs:
        spec = [MatchSpec(text)]
        names = tuple(item.package.file_name for item in items if satisfied(spec, item.package.id))
        if names:
            yield names
