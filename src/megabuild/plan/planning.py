"""Plans a run: the packages to build, their order, and the inputs of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from groundwork import files, in_use
from groundwork.build_path import check_build_path
from groundwork.errors import (
    IntegrityError,
    IsolationError,
    MegabuildError,
    PreflightError,
    ProviderError,
    UsageError,
)
from groundwork.progress import Notes
from megabuild.configs.config import Config, python_version
from megabuild.configs.overrides import arch_list, python_pins
from megabuild.configs.render import PlannedPackage, render
from megabuild.isolation.base import Host, Isolation
from megabuild.plan import fingerprint, kept_environments, solving, tree_reuse
from megabuild.plan.choose_isolation import (
    check_engine,
    check_platform,
    isolation_of,
    unreachable,
    why_untested,
)
from megabuild.plan.environment_record import EnvironmentRecord
from megabuild.plan.extensions import ExtensionPlanner, packages_of
from megabuild.plan.fingerprint import Fingerprint, OwnTestsInputs
from megabuild.plan.kept_channels import KeptPlace, keep_channels
from megabuild.plan.last_run import find_shared_objects, read_last_runs
from megabuild.plan.options import MODEL, Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.recipe_parts import Part, part_of, parts
from megabuild.plan.run_choices import EnvironmentChoice
from megabuild.plan.source_date import source_date
from megabuild.plan.torch_version import TorchRelease, read_release
from megabuild.plan.upstream_tests import KEY, PACKAGE, upstream_overrides
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.provider import Provider
from megabuild.providers.select import choose_provider, provider_of

Overrides = Mapping[str, Sequence[str]]


def make_plan(options: Options, report: Notes) -> Plan:
    """Plan a run, after the provider has made its environment.

    Raises MegabuildError: The output folder's path cannot be used, the config is for another platform or engine, the
        config does not render, the provider has no environment, no Python can be built for, or ``SOURCE_DATE_EPOCH`` is
        invalid.
    """
    _check_place(options)
    draft = _Draft.read(options, report)
    return draft.plan(_ask(draft.provider.provide, options))


def survey_plan(options: Options, report: Notes) -> Plan:
    """Plan a run while the provider makes and downloads nothing; writes only caches.

    If something is therefore missing (``environment.pending``), a run needs :func:`make_plan`.

    Raises MegabuildError: As :func:`make_plan`.
    """
    _check_place(options)
    draft = _Draft.read(options, report)
    return draft.plan(_ask(draft.provider.survey, options))


def preview_plan(options: Options, report: Notes) -> Plan:
    """Plan a run as :func:`survey_plan` does, for display alone.

    The plan of an unreachable channel has names, build strings and a note. The error of a config for another platform
    or engine is the plan's isolation.

    Raises MegabuildError: As :func:`make_plan`, but for these two errors.
    """
    draft = _Draft.read(options, report)
    try:
        environment = draft.provider.survey()
    except ChannelError as error:
        problem = unreachable(error, options.config)
        reason = problem.message.removeprefix(f"{options.config.name}: ")
        note = f"not asked: {reason}. A build needs it: {problem.remedy}"
        environment = Environment(channels=(), pythons=options.config.pythons, notes=(note,))
    return draft.plan(environment)


def _check_place(options: Options) -> None:
    """Check the machine and the engine of a run, before anything is made for it.

    Raises IsolationError: The config needs others.
    """
    check_platform(options)
    check_engine(options.engine, options.config, rehearses=options.rehearse)


def _ask(make: Callable[[], Environment], options: Options) -> Environment:
    try:
        return make()
    except ChannelError as error:
        raise unreachable(error, options.config) from error


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """The part of a plan that needs no environment, and the provider of that."""

    options: Options
    report: Notes
    date: int
    release: TorchRelease
    overrides: dict[str, tuple[str, ...]]
    left_out: Mapping[str, str]  #: Pythons, with reasons
    extensions: ExtensionPlanner
    fetches_sources: bool  #: whether a build may fetch sources of extensions from a server
    provider: Provider

    @classmethod
    def read(cls, options: Options, report: Notes) -> _Draft:
        check_build_path(str(options.state))
        date = source_date(options.root, os.environ)
        in_use.mark(options.cache)
        files.writable(options.cache, "set MEGABUILD_CACHE to another folder")
        release = read_release(options, report)
        requested = {**overrides_from_options(options), **release.overrides}
        overrides, left_out = _leave_out(options, requested, release.left_out)
        extensions = ExtensionPlanner.find(options, report)
        rendered = extensions.render(overrides)
        request = ProviderRequest(
            config=options.config,
            planned=[*render_recipe(options, overrides), *packages_of(rendered)],
            cache=options.cache,
            report=report,
            rehearsal=options.rehearse,
        )
        return cls(
            options=options,
            report=report,
            date=date,
            release=release,
            overrides=overrides,
            left_out=left_out,
            extensions=extensions,
            fetches_sources=extensions.fetches_sources(rendered),
            provider=choose_provider(request),
        )

    def plan(self, given: Environment) -> Plan:
        """Return the plan for the provider's environment, with the packages of the last run if they are kept."""
        overrides = {**self.overrides, **given.overrides}
        isolation = isolation_of(
            self.options,
            replace(given, overrides=overrides),
            fetches_sources=self.fetches_sources,
        )
        is_requested = self.options.environments is EnvironmentChoice.KEPT
        try:
            record = kept_environments.find_record(self.options)
            if record is not None and _is_known(given, is_requested=is_requested):
                return self._plan_kept(given, record, isolation)
        except (IntegrityError, PreflightError, ProviderError) as error:
            if is_requested:
                raise _not_kept(error, self.options) from error
            note = f"the environments of the last run are not kept: {error.message}"
            newest = self._plan_in(given, isolation)
            return replace(newest, notes=(note, *newest.notes))
        return self._plan_in(given, isolation)

    def _plan_kept(
        self, given: Environment, record: EnvironmentRecord, isolation: Isolation | IsolationError
    ) -> Plan:
        """Return the plan for the recorded environments.

        Raises PreflightError, ProviderError: They cannot be used any more.
        """
        options = self.options
        usable = isolation if isinstance(isolation, Isolation) else Host()
        place = KeptPlace(
            cache=options.cache,
            unpacked=options.unpacked_folder(usable),
            platforms=options.config.platforms,
        )
        channels = keep_channels(record, given, place)
        # kept channels are complete
        pending = given.pending if given.pending and given.pending.sources else None
        kept = replace(given, channels=channels, overrides=record.overrides, pending=pending)
        plan = self._plan_in(kept, isolation)
        kept_environments.check_keepable(plan)
        kept_environments.check_extensions(plan, given)
        return replace(plan, kept=kept_environments.describe(plan, record, given, options))

    def _plan_in(self, given: Environment, isolation: Isolation | IsolationError) -> Plan:
        """Return the plan for an environment."""
        options = self.options
        overrides, left_out = _narrow(options, given, self.overrides)
        source = self.release.source or given.source
        environment = replace(given, overrides=overrides, source=source)
        packages = render_recipe(options, overrides)
        part, package_parts = parts(options.recipe, options.recipes, own=options.own)
        needed = fingerprint.staging(part, options, packages, environment, isolation)
        adopted = tree_reuse.adopt(options.state / "tree", options.state / "out", needed)
        staged = adopted.fingerprint
        items = _items(packages, package_parts, staged)
        return Plan(
            options=options,
            items=items,
            left_out={**self.left_out, **left_out},
            environment=environment,
            isolation=isolation,
            staging=staged,
            untested=why_untested(options.config, isolation, environment),
            without_effect=adopted.without_effect,
            date=self.date,
            extensions=self.extensions.plan(environment, items, self.report),
            no_extensions=self.extensions.reason,
            notes=(*environment.notes, *self.extensions.notes, *self.release.notes),
            last_runs=read_last_runs(options),
            shared=find_shared_objects(options, overrides, isolation),
            provided=given.overrides,
        )


def _items(
    packages: Sequence[PlannedPackage], package_parts: Mapping[str, Part], staged: Fingerprint
) -> tuple[PlanItem, ...]:
    """Return packages, which come after those that they require, with the digests of their inputs."""
    items: list[PlanItem] = []
    for package in packages:
        digest = fingerprint.package(package, part_of(package.name, package_parts), staged).digest
        if package.name == PACKAGE:
            digest = OwnTestsInputs(own=digest, tested=_tested(package, items)).digest
        items.append(PlanItem(package=package, fingerprint=digest))
    return tuple(items)


def _tested(tests: PlannedPackage, before: Sequence[PlanItem]) -> dict[str, str]:
    """Return the digests of the packages that one of PyTorch's own tests tests, by file name."""
    tested: dict[str, str] = {}
    for item in before:
        package = item.package
        if (
            fingerprint.inherits(package)
            and package.name != PACKAGE
            and package.python in (None, tests.python)
        ):
            tested[item.file_name] = item.fingerprint
    return tested


def _is_known(given: Environment, *, is_requested: bool) -> bool:
    """Return whether the provider's channels are known.

    Raises ProviderError: They are to be kept, but were with a Debian root that is gone.
    """
    if given.channels:
        return True
    if is_requested and given.pending is not None:
        raise ProviderError("the Debian root of the last run was deleted")
    return False


def _not_kept(error: MegabuildError, options: Options) -> MegabuildError:
    """Return the error of environments that were to be kept, with the way out."""
    if isinstance(error, (IntegrityError, ChannelError)):
        return error
    message = f"{options.run_name}: the environments of the last run cannot be kept: {error.message}"
    return type(error)(message, f"pass {kept_environments.GET_NEWEST}: the run then uses the newest packages")


def overrides_from_options(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the overrides that follow from the options alone.

    Raises UsageError: The config has no key for an option.
    """
    config = options.config
    overrides: dict[str, tuple[str, ...]] = {}
    if config.pythons:
        overrides["python"] = python_pins(config, options.pythons)
    _check_keys(options)
    if options.rehearse:
        overrides["torch_source"] = (MODEL,)
    if options.optimization:
        overrides["torch_optimization"] = (options.optimization,)
    overrides |= upstream_overrides(options)
    if options.arch_list is not None:
        overrides["torch_cuda_arch_list"] = (arch_list(config, options.arch_list),)
    if options.rehearse and not provider_of(config).compiles:
        raise UsageError(f"{config.name} unpacks wheels and compiles no PyTorch", "omit --rehearse")
    return overrides


def _check_keys(options: Options) -> None:
    """Raise UsageError if the config lacks the key of an option."""
    needed = {
        "rehearse": ("torch_source", options.rehearse),
        "optimization": ("torch_optimization", options.optimization),
        "upstream-tests": (KEY, options.upstream_tests),
        "arch-list": ("torch_cuda_arch_list", options.arch_list is not None),
        "python": ("python", options.pythons),
    }
    config = options.config
    for option, (key, is_requested) in needed.items():
        if is_requested and key not in config.variant:
            raise UsageError(f"{config.name}: its recipe has no variant key {key}", f"omit --{option}")


def _narrow(
    options: Options, environment: Environment, overrides: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return all overrides without Pythons that the environment does not have, and the reasons for these Pythons."""
    overrides = {**overrides, **environment.overrides}
    reasons = {}
    for python in options.config.pythons:
        if python not in environment.pythons:
            unknown = "not found on this machine, or without headers"
            reasons[python] = environment.left_out.get(python, unknown)
    kept, left_out = _leave_out(options, overrides, reasons)
    if options.pythons or not _has_free_threading(kept):
        return kept, left_out
    # an incomplete migration to free threading must not stop the other Pythons
    rendered = render_recipe(options, kept)
    gaps = solving.free_threaded_gaps(rendered, environment, options.config.platforms)
    return _leave_out(options, overrides, {**reasons, **gaps})


def _has_free_threading(overrides: Overrides) -> bool:
    return any(python_version(pin).endswith("t") for pin in overrides.get("python", ()))


def _leave_out(
    options: Options, overrides: dict[str, tuple[str, ...]], reasons: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Leave out Pythons with a reason against them; also return the reasons that applied.

    Raises ProviderError: No Python is left.
    """
    config = options.config
    pins = overrides.get("python", ())
    if not pins:  # the recipe does not depend on Python
        return overrides, {}
    versions = dict(zip(config.variant["python"], config.pythons, strict=True))
    kept = []
    left_out = {}
    for pin in pins:
        python = versions[pin]
        if python in reasons:
            left_out[python] = reasons[python]
        else:
            kept.append(pin)
    if not kept:
        raise _no_python(config, left_out, [python for python in config.pythons if python not in reasons])
    return {**overrides, "python": tuple(kept)}, left_out


def _no_python(config: Config, left_out: Mapping[str, str], possible: Sequence[str]) -> ProviderError:
    """Return the error of a run without a Python; other Pythons of the config are ``possible``."""
    reasons = "; ".join(f"{python}: {reason}" for python, reason in left_out.items())
    remedy = "build another config"
    if possible:
        remedy = f"pass --python with one of: {', '.join(possible)}"
    return ProviderError(f"{config.name} has no usable Python: {reasons}", remedy)


def render_recipe(options: Options, overrides: Overrides) -> tuple[PlannedPackage, ...]:
    """Render the recipe's packages for a run's options."""
    config = options.config
    return render(config, options.recipe, overrides=overrides, build_platform=config.build_platform)
