"""What became of each package of a plan: by what is published of it, or by what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from groundwork.errors import MegabuildError, PackageTestError
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import PublishedPackage, is_published, records
from megabuild.run.package_test import name_of
from megabuild.run.summary import PackageResult


def package_results(plan: Plan, failed: Mapping[str, MegabuildError]) -> tuple[PackageResult, ...]:
    """Return a row for each package, in build order; ``failed`` has the tasks that failed, and why."""
    known = records(plan.options.packages)
    names = (item.package.file_name for item in plan.items)
    wrong: dict[str, str] = {
        name: "" for name in names if isinstance(failed.get(name_of(name)), PackageTestError)
    }
    for error in failed.values():
        # the build of one package failed: "build of pytorch cuda130_py312_0"
        what, why = str((error.failure or {}).get("what", "")), error.message.splitlines()[0]
        wrong |= {
            item.package.file_name: why
            for item in plan.items
            if what.endswith(f" of {item.package.name} {item.package.build_string}")
        }
    for task in plan.extensions.tasks:
        if task.name in failed:
            why = failed[task.name].message.splitlines()[0]
            wrong |= {package.file_name: why for package in task.packages}
    return tuple(_row(plan, item, known, wrong) for item in plan.all_items)


def _row(
    plan: Plan, item: PlanItem, known: Mapping[str, PublishedPackage], wrong: Mapping[str, str]
) -> PackageResult:
    channel, name = plan.options.packages, item.package.file_name
    record = known.get(name)
    row = PackageResult(
        package=item.package.id,
        status="failed" if name in wrong else "missing",
        note=wrong.get(name, ""),
    )
    if record is None or not is_published(channel, record, item.fingerprint):
        return row
    return replace(
        row,
        status="skipped" if item.exists else "built",
        size=record.size,
        sha256=record.sha256,
        seconds=0.0 if item.exists else record.seconds,
        path=str(channel / record.path),
        note="",
    )
