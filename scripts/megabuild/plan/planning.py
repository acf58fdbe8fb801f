"""The plan: what a run will build, in which order, what is there already, and what it will take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from groundwork import files, in_use
from groundwork.errors import IsolationError, ProviderError, UsageError
from groundwork.jobs import compile_jobs
from groundwork.machine import machine_platform, measure
from groundwork.progress import Notes
from megabuild.configs.feedstock import compression_level
from megabuild.configs.overrides import arch_list, chosen, python_pins
from megabuild.configs.render import PlannedPackage, render
from megabuild.isolation.base import Isolation
from megabuild.plan import (
    alternatives,
    fingerprint,
    last_run,
    solving,
    stored,
    tree_reuse,
)
from megabuild.plan.estimate import HEAVY_BYTES, Estimate, estimate
from megabuild.plan.extensions import ExtensionPlanner
from megabuild.plan.isolation import choose_isolation
from megabuild.plan.options import Options, check_path
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import is_published, records
from megabuild.plan.recipe_parts import Part, part_of, parts
from megabuild.plan.source_date import source_date
from megabuild.plan.torch_version import TorchRelease, read_release
from megabuild.providers.conda_forge import ChannelError
from megabuild.providers.environment import Environment
from megabuild.providers.provider import ProviderRequest
from megabuild.providers.select import provide

Overrides = Mapping[str, Sequence[str]]


def make_plan(
    options: Options,
    report: Notes,
    *,
    only_plan: bool = False,
) -> Plan:
    """Plan a run; writes nothing but caches.

    With ``only_plan``, what a run would make and download first is left out.

    Raises MegabuildError: The output folder's path cannot be used, the config does not render, the provider has no
        environment, nothing can be built here, packages cannot have the date that was asked for.
    """
    check_path(str(options.state))
    date = source_date(options.root, os.environ)
    in_use.mark(options.cache)
    files.writable(options.cache, "choose another folder with MEGABUILD_CACHE")
    release = read_release(options, report)
    wanted, refused = _overrides_of_release(options, release)
    planner = ExtensionPlanner.find(options, report)
    request = ProviderRequest(
        config=options.config,
        planned=[*render_recipe(options, wanted), *planner.packages(wanted)],
        cache=options.cache,
        report=report,
        rehearsal=options.rehearse,
        plan=only_plan,
    )
    try:
        environment = provide(request)
    except ChannelError as error:
        nowhere = _isolation(options, Environment(channels=(), pythons=()))
        lacking_engine = nowhere if isinstance(nowhere, IsolationError) else None
        raise alternatives.explain(error, options, lacking_engine) from error
    if release.source is not None:
        environment = replace(environment, source=release.source)
    lacking = {
        python: environment.left_out.get(python, "this machine has no such Python with its headers")
        for python in options.config.pythons
        if python not in environment.pythons
    }
    if not options.pythons:  # a migration that has not got everywhere keeps nobody from the others
        rendered = render_recipe(options, {**wanted, **environment.overrides})
        lacking |= solving.free_threaded_gaps(rendered, environment, options.config.platform)
    wanted, left_out = _leave_out(options, {**wanted, **environment.overrides}, lacking)
    environment = replace(environment, overrides=wanted)
    isolation = _isolation(options, environment)
    packages = [one for one in render_recipe(options, environment.overrides) if not one.skipped]
    part, known = parts(options.recipe, options.recipes, own=options.own)
    staged = _staging(part, options, packages, environment, isolation)
    items = tuple(
        PlanItem(package=one, fingerprint=fingerprint.package(one, part_of(one.name, known), staged))
        for one in packages
    )
    plan = Plan(
        options=options,
        items=items,
        left_out={**refused, **left_out},
        environment=environment,
        isolation=isolation,
        staging=staged,
        staging_decision=_decision(options, staged),
        date=date.seconds,
        compression=compression_level(options.root),
        extensions=planner.plan(environment, items, report),
        request=request,
        notes=(
            *environment.notes,
            *planner.notes,
            *release.notes,
            *filter(None, [date.note]),
        ),
    )
    plan = stored.ask_store(compare_with_disk(plan), os.environ, report)
    estimated = _add_estimate(stored.when_fetched(plan), report)
    return replace(
        estimated, items=plan.items, extensions=plan.extensions, staging_decision=plan.staging_decision
    )


def prepare(plan: Plan, report: Notes) -> Plan:
    """Return a plan whose environment is made; only where nothing of it could be known, it is planned again.

    Raises MegabuildError: As :func:`make_plan`.
    """
    if plan.request is None or not plan.environment.channels:
        return make_plan(plan.options, report)
    made = provide(replace(plan.request, report=report, plan=False))
    return replace(
        plan,
        environment=replace(plan.environment, channels=made.channels, ready=True, downloads=(), to_make=0),
    )


def _overrides_of_release(
    options: Options, release: TorchRelease
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the overrides that follow from the options and from what the release needs, and the Pythons left out."""
    wanted = overrides_from_options(options)
    if release.source is not None:
        wanted["torch_source_path"] = (str(release.source),)
    if release.triton:
        wanted["triton_version"] = (release.triton,)
    return _leave_out(options, wanted, release.left_out)


def compare_with_disk(plan: Plan) -> Plan:
    """Return a plan updated with what is published now, and what becomes of the former compile."""
    options = plan.options
    known = records(options.packages)

    def compared(item: PlanItem) -> PlanItem:
        record = known.get(item.package.file_name)
        return replace(item, exists=is_published(options.packages, record, item.fingerprint))

    tasks = tuple(replace(task, items=tuple(map(compared, task.items))) for task in plan.extensions.tasks)
    return replace(
        plan,
        items=tuple(map(compared, plan.items)),
        staging_decision=_decision(options, plan.staging),
        extensions=replace(plan.extensions, tasks=tasks),
    )


def _decision(options: Options, staged: fingerprint.Fingerprint) -> tree_reuse.Decision:
    if not staged.dependency:
        return tree_reuse.NOTHING_STAGED
    return tree_reuse.decide(options.state / "tree", options.state / "out", staged)


def _add_estimate(plan: Plan, report: Callable[[str], None]) -> Plan:
    """Add the compile jobs that there is memory for, and what is still to be done takes with these."""
    options = plan.options
    plan = replace(plan, last_run=last_run.read(options))
    machine, figures = measure(), _estimate(plan)
    memory = min(machine.memory_free, options.memory or machine.memory_free)
    jobs = compile_jobs(
        machine,
        bytes_per_job=figures.memory_of_ordinary,
        most=memory,
        requested=options.cpu_count,
        environ=os.environ,
    )
    heavy = min(jobs.count, max(1, memory // HEAVY_BYTES)) if figures.heavy else 0
    plan = replace(plan, jobs=jobs, heavy_jobs=heavy)
    return replace(plan, estimate=_estimate(plan))


def _estimate(plan: Plan) -> Estimate:
    """Estimate what is still to be done of a plan, by the last run of it where there was one."""
    variant, todo, last = plan.config.variant, plan.extensions.missing, plan.last_run
    if not {"torch_source", "torch_optimization"} <= variant.keys():  # somebody else's recipe
        return Estimate()
    figures = estimate(
        source=variant["torch_source"][0],
        cuda=plan.options.config.cuda_version is not None,
        optimization=variant["torch_optimization"][0],
        pythons=plan.rounds,
        staging=plan.compiles_staging,
        extensions=sum(task.how != "nothing" for task in todo),
        compiled=sum(task.how == "compile" for task in todo),
        extension_seconds=sum(task.cpu_seconds for task in todo if task.how != "nothing"),
        jobs=plan.jobs.count or 1,
        to_pack=plan.environment.to_pack,
    )
    if not plan.missing or not plan.compiles_staging or plan.rounds != last.pythons:
        return figures
    return replace(figures, hours=last.seconds / 3600, basis="the last run here")


def overrides_from_options(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the overrides that follow from the options alone."""
    given = {
        "rehearse": (options.rehearse, "torch_source"),
        "optimization": (options.optimization is not None, "torch_optimization"),
        "arch-list": (options.arch_list is not None, "torch_cuda_arch_list"),
        "upstream-tests": (options.upstream_tests, "torch_upstream_tests"),
        "python": (bool(options.pythons), "python"),
    }
    for name, (chosen_, key) in given.items():
        if chosen_ and key not in options.config.variant:
            raise UsageError(
                f"the recipe of {options.config.name} takes no {key} from its configs", f"leave out --{name}"
            )
    wanted: dict[str, tuple[str, ...]] = {}
    if options.config.pythons:
        wanted["python"] = python_pins(options.config, options.pythons)
    if options.rehearse:
        if options.config.provider == "wheel":
            raise UsageError(
                f"{options.config.name} compiles no PyTorch, so there is nothing to rehearse",
                "leave out --rehearse",
            )
        wanted["torch_source"] = ("model",)
    if options.optimization is not None:
        wanted["torch_optimization"] = (options.optimization,)
    if options.upstream_tests:
        wanted["torch_upstream_tests"] = ("1",)
    if options.arch_list is not None:
        wanted["torch_cuda_arch_list"] = (arch_list(options.config, options.arch_list),)
    return wanted


def _leave_out(
    options: Options, wanted: dict[str, tuple[str, ...]], reasons: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Leave of the wanted Pythons those that no reason stands against; return the reasons against the others, too."""
    config, pins = options.config, wanted.get("python", ())
    if not pins:  # nothing in it is made for one Python
        return wanted, {}
    versions = dict(zip(config.variant["python"], config.pythons, strict=True))
    left_out = {versions[pin]: reasons[versions[pin]] for pin in pins if versions[pin] in reasons}
    kept = tuple(pin for pin in pins if versions[pin] not in left_out)
    if not kept:
        possible = [python for python in config.pythons if python not in reasons]
        raise ProviderError(
            f"{config.name} cannot be built here for "
            + "; nor for ".join(f"Python {python}: {reason}" for python, reason in left_out.items()),
            f"it can be for: {', '.join(possible) or 'none'}",
        )
    return {**wanted, "python": kept}, left_out


def render_recipe(options: Options, overrides: Overrides) -> tuple[PlannedPackage, ...]:
    """Render the recipe's packages, those that it leaves out among them."""
    return render(options.config, options.recipe, overrides=overrides)


def _staging(
    part: Part | None,
    options: Options,
    packages: Sequence[PlannedPackage],
    environment: Environment,
    isolation: Isolation | IsolationError,
) -> fingerprint.Fingerprint:
    """Return everything that libtorch's compile depends on; nothing where no package is built from it."""
    first = next((package for package in packages if fingerprint.inherits(package)), None)
    if part is None or first is None or not environment.channels:
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
        source=model or environment.staging_source or environment.source,
        root=environment.root,
        place=_place(options, isolation),
    )


def _isolation(options: Options, environment: Environment) -> Isolation | IsolationError:
    """Choose where the run would take place; a plan is of use also where no engine can be used."""
    here = machine_platform()
    if not options.own and options.config.platform != here:
        return IsolationError(
            f"{options.config.name} is for {options.config.platform}, this machine is {here}, and another feedstock is"
            " not cross-compiled here",
            "build it on such a machine",
        )
    try:
        return choose_isolation(
            options.engine,
            config=options.config,
            environment=environment,
            alternatives=lambda: alternatives.usable_here(options),
        )
    except IsolationError as error:
        return error


def _place(options: Options, isolation: Isolation | IsolationError) -> str:
    """Say where the run would take place: objects hold paths."""
    if isinstance(isolation, IsolationError):
        return "unknown"
    place = f"{isolation.name}:{options.state_inside(isolation)}"
    return f"{place} {getattr(isolation, 'image', '')}".strip()
