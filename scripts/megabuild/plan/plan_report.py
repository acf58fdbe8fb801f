"""A plan as text and as JSON."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import asdict
from typing import Any

from groundwork.errors import IsolationError
from groundwork.exhaustive import assert_never
from groundwork.result import Result
from groundwork.text import Sign, counted, size, table, to_dict
from megabuild.plan import store_lookup
from megabuild.plan.plan import Method, Plan, Task
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.providers.environment import Pending

_PACKAGE = "name version build_string build_number subdir file_name python"


def plan_result(plan: Plan) -> Result:
    """Return the result of ``--plan``, with the exit code of a run that has no isolation."""
    problem = _problem(plan)
    return Result(
        format="plan",
        format_version=2,
        document=plan_document(plan),
        lines=plan_lines(plan),
        exit_code=problem.exit_code if problem else 0,
    )


def _problem(plan: Plan) -> IsolationError | None:
    """Return the error with which a run of the plan would end at once, if it has work to do."""
    is_done = store_lookup.when_fetched(plan).is_done
    return plan.isolation if isinstance(plan.isolation, IsolationError) and not is_done else None


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan as text, at most 80 columns wide except for names and notes."""
    fetched = plan.stored.packages
    verb = "build" if plan.compiles_torch else "unpack"
    names = [item.package.file_name for item in plan.items]
    states = [_state(name, verb, plan.existing, fetched) for name in names]
    rows = [(name.removesuffix(".conda"), state) for name, state in zip(names, states, strict=True)]
    lines = [_headline(plan), ""]
    if problem := _problem(plan):
        lines += [f"{Sign.failed} cannot be built here: {problem.message}", f"  {problem.remedy}", ""]
    lines += [*table(("package", "state"), rows), ""]
    if plan.no_extensions:
        lines += [f"PyTorch Geometric's extensions: {plan.no_extensions}", ""]
    if plan.extensions:
        lines += [*extension_lines(plan.extensions, plan.existing, fetched), ""]
    for reason in dict.fromkeys(plan.left_out.values()):
        pythons = ", ".join(python for python, why in plan.left_out.items() if why == reason)
        lines.append(f"{Sign.warning} Python {pythons} left out: {reason}")
    lines += [f"{Sign.warning} {note}" for note in plan.notes]
    pending = plan.environment.pending or Pending()
    if pending.wheels:
        lines.append(f"downloads first: {pending.wheels} wheels ({size(pending.download)})")
    if plan.stored.staging is not None:
        lines.append(f"the finished {plan.staged_name} comes from the store")
    figures, left = plan.estimate, store_lookup.when_fetched(plan)
    if left.is_done:
        return [*lines, f"nothing to build: {'the store has the rest' if fetched else 'all packages exist'}"]
    if left.missing and plan.stages and not plan.stored.staging:
        lines.append(staging_sentence(plan))
        if plan.shared and plan.compiles_staging:
            lines.append(f"{plan.shared} shares its objects")
    jobs = counted(plan.jobs.count, "job")
    if not figures.basis:
        return [*lines, f"no estimate yet: this config has never been built here ({jobs})"]
    needs = f"needs about {size(figures.disk + pending.bytes)} of disk"
    if plan.compiles_torch or any(task.method is Method.COMPILE for task in plan.missing_tasks):
        needs += f", {size(figures.memory_of_ordinary or figures.memory_per_job)} of memory per compile job"
    if plan.missing and plan.heavy_jobs:
        needs += f" (heavy objects take {size(figures.memory_per_job)}, {plan.heavy_jobs} run at a time)"
    hours = f"{figures.hours:.1f} hours" if figures.hours >= 1 else f"{max(1, round(figures.hours * 60))} min"
    cpu = f", {figures.cpu_hours:.1f} CPU hours" if figures.cpu_hours >= 1 else ""
    return [*lines, needs, f"takes about {hours} with {jobs}{cpu} ({figures.basis})"]


def _headline(plan: Plan) -> str:
    options, config = plan.options, plan.options.config
    kind = "rehearsal with a model of" if options.rehearse else "builds"
    kind = kind if plan.compiles_torch else "unpacks the wheels of"
    product = f"PyTorch {config.torch_version}" if config.torch_version else f"{options.root.name}'s recipe"
    accelerator = f"CUDA {config.cuda_version}" if config.cuda_version else "CPU"
    blas = f"{config.blas} BLAS" if plan.compiles_torch and config.blas else ""
    details = [accelerator if "cuda_compiler_version" in config.variant else "", blas]
    return ", ".join([f"{config.name}: {kind} {product} for {config.platform}", *filter(None, details)])


def _state(file_name: str, otherwise: str, existing: Container[str], fetched: Container[str]) -> str:
    if file_name in existing:
        return f"{Sign.kept} exists"
    return "fetch" if file_name in fetched else otherwise


def staging_sentence(plan: Plan) -> str:
    """Return how the former compile is used, and why."""
    decision = plan.staging_decision
    sentence = _use_of_tree(decision, plan.staged_name)
    if not plan.compiles_torch and decision.use is not TreeUse.REUSE:
        sentence = f"{plan.staged_name} is unpacked from its wheel"
    if decision.reasons:
        sentence += f" ({'; '.join(decision.reasons)})"
    return sentence


def _use_of_tree(decision: Decision, what: str) -> str:
    match decision.use:
        case TreeUse.NONE:
            return f"{what} has no compile of its own"
        case TreeUse.FRESH:
            return f"{what} is built from scratch"
        case TreeUse.REUSE:
            return f"the finished {what} is reused"
        case TreeUse.RESUME if decision.is_complete:
            return f"{what} is compiled completely; only objects that the change affects are compiled again"
        case TreeUse.RESUME:
            return f"the compile of {what} continues where it stopped"
        case TreeUse.RECOMPILE:
            return f"{what} is rebuilt with objects from the object cache"
        case never:
            assert_never(never)


def extension_lines(
    tasks: Iterable[Task], existing: Container[str] = (), fetched: Container[str] = ()
) -> list[str]:
    """Return the table of PyTorch Geometric's extensions, with reasons below; ``fetched`` files come from a store."""
    rows, reasons = [], dict[str, dict[str, None]]()
    for task in tasks:
        method = f"{Sign.failed} fails" if task.method is Method.NOTHING else task.method.value
        for package in task.packages:
            state = _state(package.file_name, method, existing, fetched)
            rows.append((package.id.label, state))
            if state == method and task.reason:
                reasons.setdefault(task.reason, {})[task.extension] = None
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return [*table(("extension", "state"), rows), *lines]


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    config, in_store = plan.options.config, plan.stored
    tasks = [
        {
            **to_dict(task, "name extension python"),
            "how": task.method.value,
            **to_dict(task, "reason file_names"),
            "exists": plan.existing.issuperset(task.file_names),
            "wheel": str(task.wheel) if task.wheel else None,
        }
        for task in plan.extensions
    ]
    return {
        "config": config.name,
        "rehearsal": plan.options.rehearse,
        **to_dict(config, "platform torch_version"),
        "packages": [
            {**to_dict(item.package, _PACKAGE), "exists": item.package.file_name in plan.existing}
            for item in plan.items
        ],
        "extensions": {"reason": plan.no_extensions, "tasks": tasks},
        "left_out": dict(plan.left_out),
        "notes": list(plan.notes),
        "overrides": {key: list(values) for key, values in plan.environment.overrides.items()},
        "isolation": None if isinstance(plan.isolation, IsolationError) else plan.isolation.name,
        "problem": plan.isolation.message if isinstance(plan.isolation, IsolationError) else None,
        "staging": {
            "fingerprint": plan.staging.digest,
            "decision": plan.staging_decision.use.value,
            "reasons": list(plan.staging_decision.reasons),
        },
        "shared_objects": plan.shared,
        "store": {"packages": sorted(in_store.packages), "staging": in_store.staging is not None},
        "estimate": {**asdict(plan.estimate), "heavy_jobs": plan.heavy_jobs},
    }
