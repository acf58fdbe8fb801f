"""A plan as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from groundwork.errors import IsolationError
from groundwork.exhaustive import assert_never
from groundwork.result import Result
from groundwork.text import Sign, counted, size, table, to_dict
from megabuild.isolation import emulation
from megabuild.plan import kept_environments, upstream_tests
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.plan import KeptEnvironments, Method, Plan, PlanItem, Task
from megabuild.plan.run_choices import EnvironmentChoice
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.providers.environment import Pending
from megabuild.run.estimate import Estimate
from megabuild.run.outlook import Outlook
from megabuild.run.progress import Progress

#: Attributes in the JSON document.
_ESTIMATE = "disk packages memory_per_job memory_of_ordinary cpu_hours tests_cpu_hours hours basis heavy_jobs"
_PACKAGE = "name version build_string build_number subdir file_name python"
#: Words for the kinds of objects.
_KINDS = {
    "core": "of libtorch",
    "cuda": "of its CUDA part",
    "bindings": "of the Python bindings",
    "kernels": "by nvcc",
}


def plan_result(outlook: Outlook) -> Result:
    """Return the result of ``--plan``, with the exit code of a run that has no isolation."""
    problem = outlook.problem
    return Result(
        format="plan",
        format_version=2,
        document=plan_document(outlook),
        lines=plan_lines(outlook),
        exit_code=problem.exit_code if problem else 0,
    )


def plan_lines(outlook: Outlook) -> list[str]:
    """Return a plan as text, at most 80 columns wide except for names and notes."""
    plan = outlook.plan
    progress = outlook.progress
    lines = [_headline(plan), ""]
    problem = outlook.problem
    if problem is not None:
        lines += [f"{Sign.failed} cannot be built here: {problem.message}", f"  {problem.remedy}", ""]
    lines += [*table(("package", "state"), _package_rows(progress)), ""]
    if plan.no_extensions:
        lines += [f"PyTorch Geometric's extensions: {plan.no_extensions}", ""]
    if plan.extensions:
        lines += [*extension_lines(plan.extensions, progress), ""]
    lines += note_lines(outlook)
    return [*lines, *_work_lines(outlook)]


def _package_rows(progress: Progress) -> list[tuple[str, str]]:
    verb = "build" if progress.plan.compiles_torch else "unpack"
    rows = []
    for item in progress.plan.items:
        name = item.file_name
        rows.append((name.removesuffix(".conda"), _state(name, verb, progress)))
    return rows


def note_lines(outlook: Outlook) -> list[str]:
    """Return a plan's notes: Pythons that are left out, warnings, downloads."""
    plan = outlook.plan
    stored = outlook.progress.stored
    lines = []
    for reason in dict.fromkeys(plan.left_out.values()):
        pythons = ", ".join(python for python, why in plan.left_out.items() if why == reason)
        lines.append(f"{Sign.warning} Python {pythons} left out: {reason}")
    lines += [f"{Sign.warning} {note}" for note in (*plan.notes, *stored.notes)]
    lines += _untested_lines(outlook)
    if plan.kept is not None:
        lines += kept_environments.lines(plan.kept)
    pending = plan.environment.pending
    if pending is not None and pending.wheels:
        lines.append(f"downloads first: {pending.wheels} wheels ({size(pending.download)})")
    if stored.staging is not None:
        lines.append(f"the finished {plan.staged_name} comes from the store")
    return lines


def _untested_lines(outlook: Outlook) -> list[str]:
    """Return why the packages of a run are not tested, and the remedy; none if they are, or if all exist."""
    plan = outlook.plan
    if not plan.untested or outlook.progress.when_fetched().is_done:
        return []
    lines = [f"{Sign.warning} packages will not be tested: {plan.untested}"]
    remedy = emulation.remedy(plan.options.config.platform)
    if remedy:
        lines.append(f"  to test them, {remedy}")
    return lines


def _work_lines(outlook: Outlook) -> list[str]:
    """Return the lines on the work that is left, and on what it needs."""
    plan = outlook.plan
    stored = outlook.progress.stored
    left = outlook.progress.when_fetched()
    lines = []
    if plan.without_effect:
        lines.append(f"no object depends on the change of {'; '.join(plan.without_effect)}")
    if left.is_done:
        reason = "all packages exist"
        if stored.packages:
            reason = "the store has the rest"
        elif not plan.file_names:
            reason = "the recipe skips all packages for this config"
        return [f"nothing to build: {reason}", *lines]
    if left.missing and plan.stages and not stored.staging:
        lines.append(staging_sentence(outlook.progress))
        if plan.shared and outlook.progress.compiles_staging:
            lines.append(f"{plan.shared} shares its objects")
    lines += _tests_lines(outlook)
    jobs = counted(outlook.estimate.jobs.count, "job")
    if not outlook.estimate.basis:
        return [*lines, f"no estimate: the recipe is another feedstock's ({jobs})"]
    return [*lines, _needs_line(outlook), _time_line(outlook.estimate, jobs)]


def _tests_lines(outlook: Outlook) -> list[str]:
    """Return the lines on PyTorch's own tests: how long they take, or that they are left out; none in rehearsals."""
    plan = outlook.plan
    config = plan.options.config
    if upstream_tests.KEY not in config.variant or plan.options.rehearse:
        return []
    if not upstream_tests.has_upstream_tests(plan.options):
        return ["PyTorch's own tests are left out; to run them, add --upstream-tests"]
    missing = upstream_tests.tests_of(outlook.progress.missing)
    if not missing:
        return []
    if plan.untested:
        return ["PyTorch's own tests are packed, but not run"]
    takes = ""
    if outlook.estimate.tests_cpu_hours:
        takes = f", about {outlook.estimate.tests_cpu_hours:.1f} CPU hours"
    lines = [f"PyTorch's own tests run for {counted(len(missing), 'Python')}{takes}"]
    if config.platforms.is_cross:
        lines.append("an emulator runs them: they take many times these hours")
    tested = upstream_tests.tests_of(item.package for item in plan.items)
    if plan.base_python not in {package.python for package in tested}:
        lines.append(f"its tests of kernels and torch.compile run only with Python {plan.base_python}")
    return lines


def _needs_line(outlook: Outlook) -> str:
    plan = outlook.plan
    progress = outlook.progress
    figures = outlook.estimate
    pending = plan.environment.pending or Pending()
    needs = f"needs about {size(figures.disk + pending.bytes)} of disk"
    compiles_extension = any(task.method is Method.COMPILE for task in progress.missing_tasks)
    if plan.compiles_torch or compiles_extension:
        needs += f", {size(figures.memory_of_ordinary or figures.memory_per_job)} of memory per compile job"
    if progress.missing and figures.heavy_jobs:
        needs += f" (heavy objects take {size(figures.memory_per_job)}, {figures.heavy_jobs} run at a time)"
    return needs


def _time_line(figures: Estimate, jobs: str) -> str:
    hours = f"{max(1, round(figures.hours * 60))} min"
    if figures.hours >= 1:
        hours = f"{figures.hours:.1f} hours"
    cpu = ""
    if figures.cpu_hours >= 1:
        cpu = f", {figures.cpu_hours:.1f} CPU hours"
    return f"takes about {hours} with {jobs}{cpu} ({figures.basis})"


def _headline(plan: Plan) -> str:
    config = plan.options.config
    details = [f"{config.name}: {_verb(plan)} {_product(plan)} for {config.platform}"]
    if config.platforms.is_cross:
        details.append(f"compiled on {config.build_platform}")
    if "cuda_compiler_version" in config.variant:
        details.append(f"CUDA {config.cuda_version}" if config.cuda_version else "CPU")
    if plan.compiles_torch and config.blas:
        details.append(f"{config.blas} BLAS")
    return ", ".join(details)


def _verb(plan: Plan) -> str:
    if not plan.compiles_torch:
        return "unpacks the wheels of"
    return "rehearsal with a model of" if plan.options.rehearse else "builds"


def _product(plan: Plan) -> str:
    if plan.is_foreign:
        return f"{plan.options.root.name}'s recipe"
    return f"PyTorch {plan.options.config.torch_version}"


def _state(file_name: str, otherwise: str, progress: Progress) -> str:
    if file_name in progress.untested:
        return f"{Sign.kept} exists, untested"
    if file_name in progress.existing:
        return f"{Sign.kept} exists"
    return "fetch" if file_name in progress.stored.packages else otherwise


def staging_sentence(progress: Progress) -> str:
    """Return how the former compile is used, and why."""
    plan = progress.plan
    sentence = _use_of_tree(progress)
    if not plan.compiles_torch and progress.tree.use is not TreeUse.REUSE:
        sentence = f"{plan.staged_name} is unpacked from its wheel"
    if progress.tree.reasons:
        sentence += f" ({'; '.join(progress.tree.reasons)})"
    return sentence


def _use_of_tree(progress: Progress) -> str:
    decision = progress.tree
    what = progress.plan.staged_name
    match decision.use:
        case TreeUse.NONE:
            return f"{what} has no compile of its own"
        case TreeUse.REUSE:
            return f"the finished {what} is reused"
        case TreeUse.RESUME if decision.is_complete and decision.missing is None:
            return f"{what} is compiled completely; only objects that the change affects are compiled again"
        case TreeUse.RESUME if decision.is_complete:
            return f"{what} is compiled completely; {_again(decision)}"
        case TreeUse.RESUME:
            return f"the compile of {what} continues where it stopped"
        case TreeUse.FRESH | TreeUse.RECOMPILE if progress.has_objects:
            return f"{what} is rebuilt with objects from the object cache; {_again(decision)}"
        case TreeUse.FRESH:
            return f"{what} is built from scratch"
        case TreeUse.RECOMPILE:
            return f"{what} is rebuilt with objects from the object cache"
        case never:
            assert_never(never)


def _again(decision: Decision) -> str:
    """Return how many objects a rebuild compiles, of which kinds."""
    missing = decision.missing or ObjectCounts()
    if not missing.total:
        return "every object exists: links and packages only"
    kinds = [f"{count} {_KINDS[kind]}" for kind, count in missing.by_kind().items() if count]
    most = counted(missing.total, "object")
    if decision.objects is not None:
        most = f"{missing.total:,} of {counted(decision.objects.total, 'object')}"
    return f"at most {most} are compiled again: {', '.join(kinds)}"


def extension_lines(tasks: Iterable[Task], progress: Progress) -> list[str]:
    """Return the table of PyTorch Geometric's extensions, with reasons below."""
    rows = []
    reasons: dict[str, dict[str, None]] = {}
    for task in tasks:
        method = f"{Sign.failed} fails" if task.method is Method.NOTHING else task.method.value
        for package in task.packages:
            state = _state(package.file_name, method, progress)
            rows.append((package.id.label, state))
            if state == method and task.reason:
                reasons.setdefault(task.reason, {})[task.extension] = None
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return [*table(("extension", "state"), rows), *lines]


def plan_document(outlook: Outlook) -> dict[str, Any]:
    """Return a plan as JSON values."""
    plan = outlook.plan
    progress = outlook.progress
    stored = progress.stored
    config = plan.options.config
    isolation = plan.isolation
    return {
        "config": config.name,
        "rehearsal": plan.options.rehearse,
        **to_dict(config, "platform build_platform torch_version"),
        "packages": [_item_document(item, progress) for item in plan.items],
        "extensions": {
            "reason": plan.no_extensions,
            "tasks": [_task_document(task, progress) for task in plan.extensions],
        },
        "left_out": dict(plan.left_out),
        "untested": plan.untested,
        "notes": [*plan.notes, *stored.notes],
        "overrides": {key: list(values) for key, values in plan.environment.overrides.items()},
        "isolation": None if isinstance(isolation, IsolationError) else isolation.name,
        "problem": isolation.message if isinstance(isolation, IsolationError) else None,
        "staging": {
            "fingerprint": plan.staging.digest,
            "decision": progress.tree.use.value,
            "reasons": list(progress.tree.reasons),
            "without_effect": list(plan.without_effect),
            "missing": _counts(progress.tree.missing),
            "objects": _counts(progress.tree.objects),
        },
        "environments": _environments_document(plan.kept),
        "shared_objects": plan.shared,
        "store": {"packages": sorted(stored.packages), "staging": stored.staging is not None},
        "estimate": _estimate_document(outlook.estimate),
    }


def _estimate_document(figures: Estimate) -> dict[str, Any]:
    """Return an estimate as JSON values, null without a basis."""
    if figures.basis:
        return to_dict(figures, _ESTIMATE)
    return dict.fromkeys(_ESTIMATE.split()) | {"basis": ""}


def _counts(counts: ObjectCounts | None) -> dict[str, int] | None:
    return counts.by_kind() if counts is not None else None


def _environments_document(kept: KeptEnvironments | None) -> dict[str, Any]:
    if kept is None:
        return {"use": EnvironmentChoice.NEWEST.value, "since": None, "automatic": False, "newer": []}
    newer = None if kept.unknown else [to_dict(package, "name kept newest") for package in kept.newer]
    use = EnvironmentChoice.KEPT.value
    return {"use": use, "since": kept.since, "automatic": kept.is_automatic, "newer": newer}


def _item_document(item: PlanItem, progress: Progress) -> dict[str, Any]:
    return {**to_dict(item.package, _PACKAGE), "exists": item.file_name in progress.existing}


def _task_document(task: Task, progress: Progress) -> dict[str, Any]:
    return {
        **to_dict(task, "name extension python"),
        "how": task.method.value,
        **to_dict(task, "reason file_names"),
        "exists": progress.existing.issuperset(task.file_names),
        "wheel": str(task.wheel) if task.wheel else None,
    }
