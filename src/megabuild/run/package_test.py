"""The task that tests and finishes one of PyTorch's packages, while the next one is compiled."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rattler import MatchSpec

from groundwork import channel_folder, files
from groundwork.channel import Channel
from groundwork.errors import PackageTestError, UpstreamTestError
from groundwork.jobs import Budget
from groundwork.text import Sign, duration
from megabuild.configs.render import PlannedPackage
from megabuild.engine.supervisor import TESTS
from megabuild.plan import upstream_tests
from megabuild.plan.plan import PlanItem
from megabuild.providers.specs import satisfied
from megabuild.run.attempt import BROKEN, Attempt, RunContext
from megabuild.run.graph import Need, TaskResult, Work
from megabuild.run.package_build import finish
from megabuild.run.sandbox_paths import JobPart, make_job, make_place
from megabuild.run.shelf import Shelf
from megabuild.run.summary import install_command, name_of_test
from megabuild.status.record import PackageState
from megabuild.status.status import logger
from megabuild.store.published import paths

#: Subfolder of a test's folder: a channel of this run's packages for the test environment.
_CHANNEL = "channel"


def package_test(run: RunContext, budget: Budget, shelf: Shelf, item: PlanItem) -> Work:
    """Return the task that tests one package of PyTorch's build, and normalises it for publication."""
    package = item.package
    items = run.plan.items
    needs: list[Need] = [package.file_name, *_find_needs(package, items, (*package.run, *package.test))]
    # publish dependencies first: wait for the tests of needed packages that are built earlier
    before = items[: items.index(item)]
    for spec in package.run:
        names = _match_own(before, spec)
        if names:
            needs.append(tuple(name_of_test(name) for name in names))
    return Work(
        name=name_of_test(package.file_name),
        run=partial(_run, run, shelf, package),
        budget=budget,
        needs=needs,
        vital=True,
        # PyTorch's own tests take long, and no package needs theirs
        ends_others=package.name != upstream_tests.PACKAGE,
        brief=package.name != upstream_tests.PACKAGE,
        packages=(package.file_name,),
    )


def _run(
    run: RunContext, shelf: Shelf, package: PlannedPackage, jobs: int, stop: threading.Event
) -> TaskResult:
    """Test the package if this machine can; finish it if it passes, else put it aside."""
    status = run.status
    began = time.monotonic()
    label = package.id.label
    # short, because tests create sockets below it
    short = f"{package.name}-{zlib.crc32(package.file_name.encode()):08x}"
    state = run.plan.options.state / TESTS / short
    with Attempt(run, name_of_test(package.file_name), state, jobs=jobs, stop=stop) as attempt:
        if run.plan.untested:
            attempt.row.phase(f"finishing {label}")
        else:
            status.set_packages([package.file_name], PackageState.TESTING)
            attempt.row.phase(f"testing {label}")
        result = _test(attempt, shelf, package)
        took = duration(time.monotonic() - began)
        if result.error is None and not run.plan.untested:
            status.set_packages([package.file_name], PackageState.TESTED)
            logger.info("%s %s: tested in %s", Sign.done, label, took)
        return result


def _test(attempt: Attempt, shelf: Shelf, package: PlannedPackage) -> TaskResult:
    """Test copies of the package and of the run's other packages, in a folder that builds cannot write."""
    plan = attempt.run.plan
    state = attempt.state
    files.remove(state)
    copies = shelf.copies()  # only complete ones: another package may be half copied
    built = shelf.folder / package.subdir / package.file_name
    seconds = {package.file_name: copies[built]}
    if plan.untested:
        return TaskResult(
            archives=[finish(attempt, package, built, state.parent / "passed")], seconds=seconds
        )
    # one channel per test: a shared one would be reindexed while other tests read it
    channel = state / _CHANNEL
    published = paths(plan.options.packages, attempt.run.progress.published_torch)
    for path in [*copies, *published]:
        files.link(path, channel / path.parent.name / path.name)
    channel_folder.write_index(channel, plan.options.config.platform)
    channels = (Channel.of_folder(channel), *plan.environment.channels)
    sandbox = make_place(attempt, recipe=plan.options.recipe, channels=channels)
    inside = f"{sandbox.channels[0].removeprefix('file://')}/{package.subdir}/{package.file_name}"
    job = make_job(attempt, sandbox, JobPart(tests=[inside]), overrides=plan.environment.overrides)
    # a package counts as one test: steps of its scripts are ignored
    outcome = attempt.follow(sandbox, job)
    if not outcome.ok:
        what = f"test of {package.name} {package.build_string}"
        aside = state.parent / BROKEN
        failed = [package.file_name]
        install = install_command(plan, package, aside)
        error = attempt.explain(outcome, sandbox, aside=aside, broken=failed, what=what, install=install)
        if isinstance(error, (PackageTestError, UpstreamTestError)):  # not if the test was killed
            shelf.reject(built)
        if isinstance(error, UpstreamTestError):
            shelf.index_rejected(plan.options.config.platform)
        return TaskResult(seconds={}, error=error)
    finished = finish(attempt, package, built, state.parent / "passed")
    files.remove(state)
    return TaskResult(archives=[finished], seconds=seconds)


def _find_needs(package: PlannedPackage, items: Sequence[PlanItem], specs: Iterable[str]) -> Iterator[Need]:
    """Yield the plan's packages that an environment of ``specs`` needs; of a tuple, any one is enough."""
    needed = {package.file_name}
    left = list(specs)
    by_file = {item.file_name: item.package for item in items}
    while left:
        names = _match_own(items, left.pop())
        if not names:
            continue
        new = [name for name in names if name not in needed]
        needed.update(new)
        if by_file[names[0]].python:
            yield names  # any Python's package is enough
            new = new[:1]
        else:
            yield from new  # all variants, so that the solver chooses as it does for users
        for name in new:
            left += by_file[name].run


def _match_own(items: Sequence[PlanItem], text: str) -> tuple[str, ...]:
    """Return the files of the packages that match a spec."""
    spec = [MatchSpec(text)]
    return tuple(item.file_name for item in items if satisfied(spec, item.package.id))
