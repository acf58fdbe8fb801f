"""The plan: what a run will build, in which order, what is there already, and what it will take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from megabuild import files
from megabuild.configs.overrides import arch_list, chosen, for_engine, python_pins
from megabuild.configs.render import PlannedPackage, render
from megabuild.engine.channel_folder import staging_caches
from megabuild.errors import IsolationError, ProviderError, UsageError
from megabuild.isolation.base import Isolation
from megabuild.isolation.choose import choose
from megabuild.plan import extensions, fingerprint, solving, stamp, torch_source
from megabuild.plan.estimate import Estimate, estimate
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import is_published, records
from megabuild.plan.recipe_parts import Part, parts
from megabuild.providers.environment import Environment
from megabuild.providers.select import provide
from megabuild.resources.jobs import Jobs, compile_jobs
from megabuild.resources.machine import measure

Overrides = Mapping[str, Sequence[str]]


def make_plan(
    options: Options, report: Callable[[str], None], ask: Callable[[str], bool] = lambda question: False
) -> Plan:
    """Find out what a run would do; touches nothing but caches.

    Parameters
    ----------
    options:
        What was asked for.
    report:
        Told what is being prepared, a line at a time.
    ask:
        Asked before anything is installed on the host; refuses by default.

    Raises
    ------
    MegabuildError
        The config does not render, the provider has no environment, nothing can be built here.
    """
    wanted = _wanted(options)
    files.writable(options.cache, "choose another folder with MEGABUILD_CACHE")
    given = _given_source(options, report)
    if given is not None:
        wanted["torch_source_path"] = (str(given.path),)
        if given.triton and options.config.cuda_version:
            wanted["triton_version"] = (given.triton,)
    pyg = extensions.Planned(options, report)
    environment = provide(
        options.config,
        [*_render(options, wanted), *pyg.packages(wanted)],
        rehearsal=options.rehearse,
        cache=options.cache,
        report=report,
        ask=ask,
    )
    if given is not None:
        note = f"source of PyTorch {options.config.torch_version}: {given.path}"
        environment = replace(environment, source=given.path, notes=(*environment.notes, note))
    overrides, left_out = _adjusted(options, wanted, environment)
    packages = tuple(package for package in _render(options, overrides) if not package.skipped)
    isolation = isolation_for(options, environment, overrides)
    staged, each = _fingerprints(options, packages, overrides, environment, isolation)
    plan = Plan(
        options=options,
        items=tuple(PlanItem(package=package, exists=False) for package in packages),
        left_out=left_out,
        overrides=overrides,
        environment=environment,
        estimate=Estimate(disk=0, memory_per_job=0, cpu_hours=0.0, hours=0.0, basis=""),
        staging=staged,
        staging_decision=stamp.decide(options.state / "tree", options.state / "out", staged),
        package_fingerprints=each,
        notes=(*environment.notes, *pyg.notes),
    )
    plan = looked_again(replace(plan, extensions=pyg.finish(plan)))
    return replace(plan, estimate=estimate_for(plan, jobs_for(plan).count))


def looked_again(plan: Plan) -> Plan:
    """Return a plan that knows what exists now."""
    options = plan.options
    known = records(options.packages)
    items = []
    for item in plan.items:
        name = item.package.file_name
        exists = is_published(options.packages, known.get(name), plan.package_fingerprints[name])
        items.append(replace(item, exists=exists))
    tasks = tuple(extensions.checked(task, options.packages) for task in plan.extensions.tasks)
    return replace(
        plan,
        items=tuple(items),
        staging_decision=stamp.decide(options.state / "tree", options.state / "out", plan.staging),
        extensions=replace(plan.extensions, tasks=tasks),
    )


def isolation_for(
    options: Options, environment: Environment, overrides: Mapping[str, tuple[str, ...]]
) -> Isolation | None:
    """Return where the run would take place, or None where no engine can be used here."""
    adjusted = replace(environment, overrides=overrides)
    try:
        return choose(options.engine, config=options.config, environment=adjusted)
    except IsolationError:
        return None


def jobs_for(plan: Plan) -> Jobs:
    """Choose the number of compile jobs for a plan."""
    per_job = estimate_for(plan, 1).memory_per_job
    return compile_jobs(
        measure(), bytes_per_job=per_job, requested=plan.options.cpu_count, environ=os.environ
    )


def estimate_for(plan: Plan, jobs: int) -> Estimate:
    """Estimate what is still to be done of a plan."""
    variant = plan.config.variant
    missing = plan.missing
    compiles = any(fingerprint.inherits(package) for package in missing) and not (
        plan.staging_decision.decision == "reuse" and staging_caches(plan.options.state / "out")
    )
    return estimate(
        source=variant["torch_source"][0],
        cuda=plan.options.config.cuda_version is not None,
        optimization=variant["torch_optimization"][0],
        pythons=len({package.python for package in missing if package.python}),
        staging=compiles,
        extensions=sum(task.how != "nothing" for task in plan.extensions.missing),
        jobs=jobs,
    )


def _wanted(options: Options) -> dict[str, tuple[str, ...]]:
    """Overrides that follow from the options alone."""
    wanted: dict[str, tuple[str, ...]] = {"python": python_pins(options.config, options.pythons)}
    if options.rehearse:
        if options.config.provider == "wheel":
            raise UsageError(
                f"{options.config.name} compiles no PyTorch, so there is nothing to rehearse",
                "leave out --rehearse",
            )
        wanted["torch_source"] = ("model",)
    if options.optimization is not None:
        if options.optimization not in ("0", "2"):
            raise UsageError(f"optimisation '{options.optimization}'", "it can be 2 or 0")
        wanted["torch_optimization"] = (options.optimization,)
    if options.arch_list is not None:
        wanted["torch_cuda_arch_list"] = (arch_list(options.config, options.arch_list),)
    return wanted


def _given_source(options: Options, report: Callable[[str], None]) -> torch_source.Tree | None:
    """Check the source that the user brings, if any, against the version that is built."""
    if options.torch_source is None:
        return None
    digest = options.torch_sha256
    if digest is None and options.torch_source.is_file():  # the official tarball is known by the matrix
        known = options.config.variant.get("torch_sha256", ("None",))[0]
        digest = known if known != "None" else None
    return torch_source.find(
        options.torch_source,
        digest=digest,
        version=options.config.torch_version,
        third_party=options.config.provider == "conda-forge" and not options.rehearse,
        cache=options.cache,
        report=report,
    )


def _adjusted(
    options: Options, wanted: Mapping[str, tuple[str, ...]], environment: Environment
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Add what the provider changes, and leave out the Pythons that it does not have."""
    versions = dict(zip(options.config.variant["python"], options.config.pythons, strict=True))
    pins = {pin: versions[pin] for pin in wanted["python"]}
    left_out = {
        version: environment.left_out.get(version, "not available here")
        for version in pins.values()
        if version not in environment.pythons
    }
    kept = tuple(pin for pin, version in pins.items() if version in environment.pythons)
    if not kept:
        raise ProviderError(
            f"{options.config.name}: none of the Pythons {', '.join(pins.values())} can be built here",
            f"there are: {', '.join(environment.pythons) or 'none'}",
        )
    return {**wanted, **environment.overrides, "python": kept}, left_out


def _render(options: Options, overrides: Overrides) -> tuple[PlannedPackage, ...]:
    return render(for_engine(options.config), options.recipe, overrides=overrides)


def _fingerprints(
    options: Options,
    packages: Sequence[PlannedPackage],
    overrides: Mapping[str, tuple[str, ...]],
    environment: Environment,
    isolation: Isolation | None,
) -> tuple[fingerprint.Fingerprint, dict[str, str]]:
    staging_part, package_parts = parts(options.recipe)
    staged = fingerprint.Fingerprint()
    inheriting = [package for package in packages if fingerprint.inherits(package)]
    if staging_part is not None and inheriting:
        platform, channels = options.config.platform, environment.channels
        virtual = environment.virtual_packages
        first = inheriting[0]
        build = solving.environment(
            first.staging_build, channels, platform, virtual=virtual, what="staging: build environment"
        )
        host = solving.environment(
            first.staging_host, channels, platform, virtual=virtual, what="staging: host environment"
        )
        own = options.rehearse and options.torch_source is None
        model = options.root / "rehearsal" / "model" if own else None
        place = f"{isolation.name}:{options.state_inside(isolation)}" if isolation else "unknown"
        image = getattr(isolation, "image", "")
        staged = fingerprint.staging(
            staging_part,
            recipe=options.recipe,
            variant=chosen(options.config, overrides).variant,
            build=build,
            host=host,
            source=model or environment.staging_source or environment.source,
            root=environment.root,
            place=f"{place} {image}".strip(),
        )
    return staged, {
        package.file_name: fingerprint.package(package, _part_of(package, package_parts), staged)
        for package in packages
    }


def _part_of(package: PlannedPackage, known: Mapping[str, Part]) -> Part | None:
    """Find a package's section; names that hold an expression (``pytorch-${{…}}``) match by their fixed beginning."""
    if package.name in known:
        return known[package.name]
    matches = [name for name in known if "${{" in name and package.name.startswith(name.split("${{")[0])]
    return known[max(matches, key=len)] if matches else None
