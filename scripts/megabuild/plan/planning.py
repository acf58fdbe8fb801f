"""The plan: what a run will build, in which order, what is there already, and what it will take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from megabuild import files
from megabuild.configs.overrides import arch_list, chosen, python_pins
from megabuild.configs.render import PlannedPackage, render
from megabuild.engine.output_folder import staging_caches
from megabuild.errors import IsolationError, ProviderError, UsageError
from megabuild.plan import extensions, fingerprint, learned, release, solving, stamp, torch_source
from megabuild.plan.estimate import Estimate, estimate
from megabuild.plan.isolation import choose
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import is_published, records
from megabuild.plan.recipe_parts import Part, part_of, parts
from megabuild.plan.source_date import source_date
from megabuild.providers.environment import Environment
from megabuild.providers.select import provide
from megabuild.resources.jobs import compile_jobs
from megabuild.resources.machine import measure

Overrides = Mapping[str, Sequence[str]]


def make_plan(
    options: Options,
    report: Callable[[str], None],
    ask: Callable[[str], bool] = lambda question: False,
    *,
    only_plan: bool = False,
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
    only_plan:
        Whether no run follows: what a run would make and fetch first is not made now.

    Raises
    ------
    MegabuildError
        The config does not render, the provider has no environment, nothing can be built here, packages cannot have
        the date that was asked for.
    """
    date = source_date(options.root, os.environ)
    wanted = asked(options)
    files.writable(options.cache, "choose another folder with MEGABUILD_CACHE")
    given = _given_source(options, report)
    if given is not None:
        wanted["torch_source_path"] = (str(given.path),)
    needs = release.find(options, given, report)
    if needs.triton:
        wanted["triton_version"] = (needs.triton,)
    wanted["python"], refused = _kept(options, wanted["python"], needs.left_out)
    pyg = extensions.Planned(options, report)
    environment = provide(
        options.config,
        [*rendered(options, wanted), *pyg.packages(wanted)],
        rehearsal=options.rehearse,
        cache=options.cache,
        report=report,
        ask=ask,
        torch_index=options.torch_index,
        plan=only_plan,
    )
    if given is not None:
        note = f"source of PyTorch {options.config.torch_version}: {given.path}"
        environment = replace(environment, source=given.path, notes=(*environment.notes, note))
    overrides, left_out = _adjusted(options, wanted, environment)
    environment = replace(environment, overrides=overrides)
    packages = tuple(package for package in rendered(options, overrides) if not package.skipped)
    part, known = parts(options.recipe, options.recipes)
    staged = _staging(part, options, packages, environment)
    plan = Plan(
        options=options,
        items=tuple(
            PlanItem(package=one, fingerprint=fingerprint.package(one, part_of(one.name, known), staged))
            for one in packages
        ),
        left_out={**refused, **left_out},
        environment=environment,
        staging=staged,
        staging_decision=stamp.decide(options.state / "tree", options.state / "out", staged),
        date=date.seconds,
        notes=(*environment.notes, *pyg.notes, *filter(None, [date.note])),
    )
    plan = looked_again(replace(plan, extensions=pyg.finish(plan)))
    taken = learned.read(options, report)
    jobs = compile_jobs(
        measure(),
        bytes_per_job=_estimate(plan, 1, taken).memory_per_job,
        requested=options.cpu_count,
        environ=os.environ,
    )
    return replace(plan, jobs=jobs, estimate=_estimate(plan, jobs.count, taken))


def looked_again(plan: Plan) -> Plan:
    """Return a plan that knows what exists now."""
    options = plan.options
    known = records(options.packages)

    def exists(item: PlanItem) -> bool:
        return is_published(options.packages, known.get(item.package.file_name), item.fingerprint)

    def looked(items: tuple[PlanItem, ...]) -> tuple[PlanItem, ...]:
        return tuple(replace(item, exists=exists(item)) for item in items)

    tasks = tuple(replace(task, items=looked(task.items)) for task in plan.extensions.tasks)
    return replace(
        plan,
        items=looked(plan.items),
        staging_decision=stamp.decide(options.state / "tree", options.state / "out", plan.staging),
        extensions=replace(plan.extensions, tasks=tasks),
    )


def _estimate(plan: Plan, jobs: int, taken: learned.Taken | None) -> Estimate:
    """Estimate what is still to be done of a plan, by an earlier run where there was one."""
    variant = plan.config.variant
    missing = plan.missing
    compiles = any(fingerprint.inherits(package) for package in missing) and not (
        plan.staging_decision.decision == "reuse" and staging_caches(plan.options.state / "out")
    )
    pythons = len({package.python for package in missing if package.python})
    guess = estimate(
        source=variant["torch_source"][0],
        cuda=plan.options.config.cuda_version is not None,
        optimization=variant["torch_optimization"][0],
        pythons=pythons,
        staging=compiles,
        extensions=sum(task.how != "nothing" for task in plan.extensions.missing),
        compiled=sum(task.how == "compile" for task in plan.extensions.missing),
        compiling=sum(task.cpu_seconds for task in plan.extensions.missing if task.how == "compile") / 3600,
        jobs=jobs,
    )
    return learned.better(guess, taken, staging=compiles, pythons=pythons, jobs=jobs)


def asked(options: Options) -> dict[str, tuple[str, ...]]:
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
    reasons = {
        python: environment.left_out.get(python, "this machine has no such Python with its headers")
        for python in options.config.pythons
        if python not in environment.pythons
    }
    kept, left_out = _kept(options, wanted["python"], reasons)
    return {**wanted, **environment.overrides, "python": kept}, left_out


def _kept(
    options: Options, pins: Sequence[str], reasons: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the pins of those Pythons that no reason stands against, and the reasons against the others."""
    config = options.config
    versions = dict(zip(config.variant["python"], config.pythons, strict=True))
    left_out = {versions[pin]: reasons[versions[pin]] for pin in pins if versions[pin] in reasons}
    kept = tuple(pin for pin in pins if versions[pin] not in left_out)
    if not kept:
        possible = [python for python in config.pythons if python not in reasons]
        raise ProviderError(
            f"{config.name} cannot be built here for "
            + "; nor for ".join(f"Python {python}: {reason}" for python, reason in left_out.items()),
            f"it can be for: {', '.join(possible) or 'none'}"
            + ("; --torch-index names an index with other wheels" if config.provider == "wheel" else ""),
        )
    return kept, left_out


def rendered(options: Options, overrides: Overrides) -> tuple[PlannedPackage, ...]:
    """Render the recipe's packages, those that it leaves out among them."""
    return render(options.config, options.recipe, overrides=overrides)


def _staging(
    part: Part | None, options: Options, packages: Sequence[PlannedPackage], environment: Environment
) -> fingerprint.Fingerprint:
    """Return everything that libtorch's compile depends on; nothing where no package is built from it."""
    first = next((package for package in packages if fingerprint.inherits(package)), None)
    if part is None or first is None:
        return fingerprint.Fingerprint()
    build, host = (
        solving.environment(
            specs,
            environment.channels,
            options.config.platform,
            virtual=environment.virtual_packages,
            what=f"staging: {kind} environment",
        )
        for kind, specs in (("build", first.staging_build), ("host", first.staging_host))
    )
    own = options.rehearse and options.torch_source is None
    model = options.root / "rehearsal" / "model" if own else None
    return fingerprint.staging(
        part,
        recipe=options.recipe,
        top=options.recipes,
        variant=chosen(options.config, environment.overrides).variant,
        build=build,
        host=host,
        source=model or environment.source_files or environment.staging_source or environment.source,
        root=environment.root,
        place=_place(options, environment),
    )


def _place(options: Options, environment: Environment) -> str:
    """Say where the run would take place: objects hold paths."""
    try:
        isolation = choose(options.engine, config=options.config, environment=environment)
    except IsolationError:
        return "unknown"  # no engine can be used here
    place = f"{isolation.name}:{options.state_inside(isolation)}"
    return f"{place} {getattr(isolation, 'image', '')}".strip()
