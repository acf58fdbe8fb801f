"""Plans a run: the packages to build, their order, those that exist already, and an estimate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from groundwork import files, in_use
from groundwork.build_path import check_build_path
from groundwork.errors import ProviderError, UsageError
from groundwork.progress import Notes
from megabuild.configs.overrides import arch_list, python_pins
from megabuild.configs.render import PlannedPackage, render
from megabuild.isolation.base import Isolation
from megabuild.plan import fingerprint, solving, store_lookup, tree_reuse, work_record
from megabuild.plan.choose_isolation import check_platform, isolation_of, unreachable
from megabuild.plan.estimate import estimate, find_shared_objects, read_last_run
from megabuild.plan.extensions import ExtensionPlanner
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.recipe_parts import part_of, parts
from megabuild.plan.source_date import source_date
from megabuild.plan.torch_version import read_release
from megabuild.plan.tree_reuse import TreeUse
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.environment import Environment
from megabuild.providers.provider import ProviderRequest
from megabuild.providers.select import choose_provider, provider_of
from megabuild.store.published import is_published, records

Overrides = Mapping[str, Sequence[str]]


def make_plan(
    options: Options, report: Notes, *, only_plan: bool = False, without_channel: bool = False
) -> Plan:
    """Plan a run; writes only caches.

    With ``only_plan``, the provider makes and downloads nothing. If something is therefore missing
    (``environment.pending``), a run must plan again without ``only_plan``. With ``without_channel``, the plan of an
    unreachable channel has names, build strings and a note.

    Raises MegabuildError: The output folder's path cannot be used, the config is for another platform (with
        ``without_channel``, the plan's isolation has that error), the config does not render, the provider has no
        environment, no Python can be built for, or ``SOURCE_DATE_EPOCH`` is invalid.
    """
    check_build_path(str(options.state))
    if not without_channel:
        check_platform(options)
    date = source_date(options.root, os.environ)
    in_use.mark(options.cache)
    files.writable(options.cache, "set MEGABUILD_CACHE to another folder")
    release = read_release(options, report)
    overrides = {**overrides_from_options(options), **release.overrides}
    overrides, refused = _leave_out(options, overrides, release.left_out)
    planner = ExtensionPlanner.find(options, report)
    request = ProviderRequest(
        config=options.config,
        planned=[*render_recipe(options, overrides), *planner.packages(overrides)],
        cache=options.cache,
        report=report,
        rehearsal=options.rehearse,
    )
    provider = choose_provider(request)
    try:
        environment = provider.survey() if only_plan else provider.provide()
    except ChannelError as error:
        problem = unreachable(error, options.config)
        if not without_channel:
            raise problem from error
        reason = problem.message.removeprefix(f"{options.config.name}: ")
        note = f"not asked: {reason}. A build needs it: {problem.remedy}"
        environment = Environment(channels=(), pythons=options.config.pythons, notes=(note,))
    overrides, left_out = _narrow(options, environment, overrides)
    source = release.source or environment.source
    environment = replace(environment, overrides=overrides, source=source)
    isolation = isolation_of(options, environment)
    packages = [package for package in render_recipe(options, environment.overrides) if not package.skipped]
    part, package_parts = parts(options.recipe, options.recipes, own=options.own)
    staged = fingerprint.staging(part, options, packages, environment, isolation)
    items = tuple(
        PlanItem(
            package=package,
            fingerprint=fingerprint.package(package, part_of(package.name, package_parts), staged).digest,
        )
        for package in packages
    )
    plan = compare_with_disk(
        Plan(
            options=options,
            items=items,
            left_out={**refused, **left_out},
            environment=environment,
            isolation=isolation,
            staging=staged,
            staging_decision=tree_reuse.NOTHING_STAGED,
            date=date,
            extensions=planner.plan(environment, items, report),
            no_extensions=planner.reason,
            notes=(*environment.notes, *planner.notes, *release.notes),
            last_run=read_last_run(options),
            shared=find_shared_objects(options, environment.overrides),
        )
    )
    stored, notes = store_lookup.ask_store(plan, os.environ, report)
    plan = replace(plan, stored=stored, notes=(*plan.notes, *notes))
    figures, jobs, heavy = estimate(store_lookup.when_fetched(plan))
    return replace(plan, estimate=figures, jobs=jobs, heavy_jobs=heavy)


def compare_with_disk(plan: Plan) -> Plan:
    """Return the plan, updated with the published packages and the decision on the former compile."""
    state, channel = plan.options.state, plan.options.packages
    published = records(channel)
    existing = frozenset(
        item.package.file_name
        for item in plan.all_items
        if is_published(channel, published.get(item.package.file_name), item.fingerprint)
    )
    decision = tree_reuse.NOTHING_STAGED
    if plan.staging.dependency:
        decision = tree_reuse.decide(state / "tree", state / "out", plan.staging)
        is_there = decision.use is not TreeUse.FRESH
        isolation = plan.isolation
        if is_there and isinstance(isolation, Isolation) and work_record.is_foreign(state, isolation):
            reason = "isolated builds made the former tree, and its programs would run on the host"
            decision = tree_reuse.Decision(use=TreeUse.RECOMPILE, reasons=(reason,))
    return replace(plan, existing=existing, staging_decision=decision)


def overrides_from_options(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the overrides that follow from the options alone.

    Raises UsageError: The config has no key for an option.
    """
    config = options.config
    choices = (
        ("rehearse", options.rehearse, "torch_source", "model"),
        ("optimization", options.optimization, "torch_optimization", options.optimization or ""),
        ("upstream-tests", options.upstream_tests, "torch_upstream_tests", "1"),
        ("arch-list", options.arch_list is not None, "torch_cuda_arch_list", options.arch_list or ""),
        ("python", options.pythons, "python", ""),
    )
    overrides = {"python": python_pins(config, options.pythons)} if config.pythons else {}
    for option, is_chosen, key, value in choices:
        if is_chosen and key not in config.variant:
            raise UsageError(f"{config.name}: its recipe has no variant key {key}", f"omit --{option}")
        if is_chosen and value:
            overrides[key] = (value,)
    if options.arch_list is not None:
        overrides["torch_cuda_arch_list"] = (arch_list(config, options.arch_list),)
    if options.rehearse and not provider_of(config).compiles:
        raise UsageError(f"{config.name} unpacks wheels and compiles no PyTorch", "omit --rehearse")
    return overrides


def _narrow(
    options: Options, environment: Environment, overrides: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return all overrides without Pythons that the environment does not have, and the reasons for these Pythons."""
    overrides = {**overrides, **environment.overrides}
    reasons = {
        python: environment.left_out.get(python, "not found on this machine, or without headers")
        for python in options.config.pythons
        if python not in environment.pythons
    }
    if not options.pythons:  # an incomplete migration to free threading must not stop the other Pythons
        rendered = render_recipe(options, overrides)
        reasons |= solving.free_threaded_gaps(rendered, environment, options.config.platform)
    return _leave_out(options, overrides, reasons)


def _leave_out(
    options: Options, overrides: dict[str, tuple[str, ...]], reasons: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Leave out Pythons with a reason against them; also return the reasons that applied.

    Raises ProviderError: No Python is left.
    """
    config, pins = options.config, overrides.get("python", ())
    if not pins:  # the recipe does not depend on Python
        return overrides, {}
    versions = dict(zip(config.variant["python"], config.pythons, strict=True))
    left_out = {versions[pin]: reasons[versions[pin]] for pin in pins if versions[pin] in reasons}
    kept = tuple(pin for pin in pins if versions[pin] not in left_out)
    if not kept:
        possible = [python for python in config.pythons if python not in reasons]
        raise ProviderError(
            f"{config.name} has no usable Python: "
            + "; ".join(f"{python}: {reason}" for python, reason in left_out.items()),
            f"pass --python with one of: {', '.join(possible)}" if possible else "build another config",
        )
    return {**overrides, "python": kept}, left_out


def render_recipe(options: Options, overrides: Overrides) -> tuple[PlannedPackage, ...]:
    """Render the recipe's packages, including those that it skips."""
    return render(options.config, options.recipe, overrides=overrides)
