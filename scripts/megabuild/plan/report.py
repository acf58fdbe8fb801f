"""A plan as text and as JSON."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from groundwork.result import Result
from groundwork.text import UNICODE, counted, picked, size, table
from megabuild.plan import object_cache, stored
from megabuild.plan.extensions import NO_PYTORCH
from megabuild.plan.plan import Extensions, Plan, PlanItem

_STAGING = {
    "fresh": "{what} is built from scratch",
    "reuse": "the finished {what} is reused",
    "resume": "the compile of {what} continues where it stopped",
    "recompile": "{what} is rebuilt, with objects from the object cache",
}
_UNPACKING = dict.fromkeys(("resume", "recompile"), "{what} is taken out of its wheel again") | {
    "fresh": "{what} is taken out of its wheel"
}
_PACKAGE = "name version build_string build_number subdir file_name python"


def plan_result(plan: Plan, *, verbose: bool = False) -> Result:
    """Return the result of ``--plan``."""
    return Result(format="plan", document=plan_document(plan), lines=plan_lines(plan, verbose=verbose))


def plan_lines(plan: Plan, *, verbose: bool = False) -> list[str]:
    """Return a plan for people, at most 80 columns wide but for names and notes; ``verbose`` names the stand-ins."""
    options, config = plan.options, plan.options.config
    accelerator = f", CUDA {config.cuda_version}" if config.cuda_version else ", CPU"
    accelerator = accelerator if "cuda_compiler_version" in config.variant else ""
    kind = "rehearsal with a model of" if options.rehearse else "builds"
    kind = kind if plan.compiles_torch else "takes apart the wheels of"
    product = f"PyTorch {config.torch_version}" if config.torch_version else f"{options.root.name}'s recipe"
    what = f"{kind} {product} for {config.platform}"
    blas = f", {config.blas} BLAS" if plan.compiles_torch and config.blas else ""
    lines = [f"{config.name}: {what}{accelerator}{blas}", ""]
    verb = "build" if plan.compiles_torch else "unpack"
    rows = [(item.package.file_name.removesuffix(".conda"), _state(plan, item, verb)) for item in plan.items]
    lines += table(("package", "state"), rows)
    extensions = extension_lines(plan.extensions, plan.stored.packages)
    lines += ["", *extensions, *([""] if extensions else [])]
    lines += _python_lines(plan.left_out)
    lines += [f"{UNICODE.warning} {note}" for note in plan.notes]
    if stand_ins := plan.environment.stand_ins:
        names = f": {', '.join(stand_ins)}" if verbose else " (--verbose lists them)"
        lines.append(
            f"{counted(len(stand_ins), 'empty stand-in')} for packages that this machine lacks{names}"
        )
    if why := object_cache.lacking(plan):
        lines.append(
            f"{UNICODE.warning} no object cache: {why}; what is compiled is not kept for another run"
        )
    if plan.environment.downloads:
        parts = (f"{one.count} {one.what} ({size(one.size)})" for one in plan.environment.downloads)
        lines.append(f"downloads first: {', '.join(parts)}")
    lines += stored.lines(plan)
    figures, left = plan.estimate, stored.when_fetched(plan)
    if left.missing:
        lines += [staging_sentence(plan)] if plan.stages and not plan.stored.staging else []
    elif left.extensions.missing:
        lines.append("PyTorch's packages are there already")
    else:
        return [*lines, "nothing is to be built" if plan.stored.packages else "everything is there already"]
    if left.missing and not figures.basis:
        jobs = counted(plan.jobs.count, "compile job")
        return [*lines, f"no estimate yet: this config has never been built here ({jobs})"]
    lines += [f"needs about {', '.join(_needs(plan))}", f"takes about {_takes(plan)}"]
    if plan.missing and plan.heavy_jobs:
        lines.append(
            f"  (heavy objects take {size(figures.memory_per_job)}, {plan.heavy_jobs} run at a time)"
        )
    if figures.cpu_hours_of_extensions:
        share = _time(figures.hours_of_extensions)
        lines.append(f"  ({share} of it for the extensions, less with objects from the object cache)")
    if plan.missing:
        lines.append(f"  ({figures.basis})")
    return lines


def _state(plan: Plan, item: PlanItem, verb: str) -> str:
    if item.exists:
        return f"{UNICODE.kept} there"
    return "fetch" if item.package.file_name in plan.stored.packages else verb


def staging_sentence(plan: Plan) -> str:
    """Return what becomes of the former compile, and why."""
    decided, words = plan.staging_decision, _STAGING
    if not plan.compiles_torch:
        words = {**_STAGING, **_UNPACKING}
    because = f" ({'; '.join(decided.reasons)})" if decided.reasons else ""
    return words.get(decided.decision, decided.decision).format(what=plan.staged_name) + because


def _needs(plan: Plan) -> list[str]:
    """Return what a run needs of disk and memory, the latter for those compilers that will run."""
    figures, found = plan.estimate, []
    if plan.missing and plan.compiles_torch:
        per_job = figures.memory_of_ordinary if plan.heavy_jobs else figures.memory_per_job
        found.append(f"{size(per_job)} of memory per compile job")
    if figures.memory_of_extensions:
        kind = "compiler of the extensions" if found else "compiler"
        found.append(f"{size(figures.memory_of_extensions)} {'' if found else 'of memory '}per {kind}")
    return [f"{size(figures.disk + plan.environment.to_make)} of disk", *found]


def extension_lines(extensions: Extensions, fetched: Container[str] = ()) -> list[str]:
    """Return what becomes of PyTorch Geometric's extensions, and why; ``fetched`` files come from a store."""
    if extensions.reason == NO_PYTORCH:
        return []
    if extensions.reason:
        return [f"PyTorch Geometric's extensions: {extensions.reason}"]
    rows = [
        (
            package.id.label,
            f"{UNICODE.kept} there"
            if task.exists
            else "fetch"
            if package.file_name in fetched
            else task.how.replace("nothing", f"{UNICODE.failed} nothing"),
            "" if task.exists or package.file_name in fetched else task.reason,
        )
        for task in extensions.tasks
        for package in task.packages
    ]
    lines = table(("extension", "state", "why"), rows) if rows else []
    lines += [f"{UNICODE.warning} {name} is left out: {why}" for name, why in extensions.left_out.items()]
    return lines


def _python_lines(left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with the Pythons that are left out for it."""
    pythons: dict[str, list[str]] = {}
    for python, reason in left_out.items():
        pythons.setdefault(reason, []).append(python)
    return [
        f"{UNICODE.warning} Python {', '.join(names)} {'are' if names[1:] else 'is'} left out: {reason}"
        for reason, names in pythons.items()
    ]


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    options, config = plan.options, plan.options.config
    return {
        "config": config.name,
        "rehearsal": options.rehearse,
        "platform": config.platform,
        "torch_version": config.torch_version,
        "packages": [{**picked(item.package, _PACKAGE), "exists": item.exists} for item in plan.items],
        "extensions": {
            "reason": plan.extensions.reason,
            "left_out": dict(plan.extensions.left_out),
            "tasks": [
                {
                    **picked(task, "name extension python how reason"),
                    "wheel": str(task.wheel) if task.wheel else None,
                    "exists": task.exists,
                    "file_names": [package.file_name for package in task.packages],
                }
                for task in plan.extensions.tasks
            ],
        },
        "left_out": dict(plan.left_out),
        "downloads": [picked(one, "what count size") for one in plan.environment.downloads],
        "notes": list(plan.notes),
        "stand_ins": list(plan.environment.stand_ins),
        "no_object_cache": object_cache.lacking(plan),
        "overrides": {key: list(values) for key, values in plan.overrides.items()},
        "staging": {
            "fingerprint": plan.staging.digest,
            "decision": plan.staging_decision.decision,
            "reasons": list(plan.staging_decision.reasons),
        },
        "store": {
            "address": plan.stored.address,
            "packages": sorted(plan.stored.packages),
            "staging": plan.stored.staging is not None,
        },
        "estimate": {
            "disk_bytes": plan.estimate.disk,
            "memory_per_job_bytes": max(plan.estimate.memory_per_job, plan.estimate.memory_of_extensions),
            "memory_per_ordinary_job_bytes": plan.estimate.memory_of_ordinary,
            "heavy_at_once": plan.heavy_jobs,
            "cpu_hours": round(plan.estimate.cpu_hours, 3),
            "hours": round(plan.estimate.hours, 3),
            "extensions_cpu_hours": round(plan.estimate.cpu_hours_of_extensions, 3),
            "extensions_hours": round(plan.estimate.hours_of_extensions, 3),
            "packing_hours": round(plan.estimate.hours_of_packing, 3),
            "basis": plan.estimate.basis,
        },
    }


def _takes(plan: Plan) -> str:
    """Return the whole run's duration: ``5 min with 2 jobs, 4 min of them once per machine to pack …``."""
    figures = plan.estimate
    text = f"{_time(figures.hours_in_all)} with {counted(plan.jobs.count, 'job')}"
    cpu_hours = figures.cpu_hours + figures.cpu_hours_of_extensions
    text += f" ({cpu_hours:.1f} CPU hours)" if cpu_hours >= 1 else ""
    if figures.hours_of_packing * 60 >= 1:
        text += f", {_time(figures.hours_of_packing)} of them once per machine to pack the build tools"
    return text


def _time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(hours * 60))} min"
