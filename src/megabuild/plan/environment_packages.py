"""All environments that a run needs, solved at once: the packages that rattler-build will then choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rattler import Gateway, RepoDataRecord

from groundwork.errors import PreflightError
from groundwork.network.channel_logins import Channels
from megabuild.configs.platforms import Platforms
from megabuild.configs.render import PlannedPackage
from megabuild.plan import solving
from megabuild.providers.environment import Environment

_PYTHON = "python"


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The requirements of one environment."""

    specs: tuple[str, ...]
    platform: str  #: of its programs and libraries
    what: str  #: the environment in a message
    #: a run can do without this solution: rattler-build solves other specs, or an extension that cannot be built
    is_optional: bool = False

    @property
    def identity(self) -> tuple[str, tuple[str, ...]]:
        """All that its solution depends on."""
        return self.platform, self.specs


def requirements_of(
    packages: Iterable[PlannedPackage],
    own: Sequence[PlannedPackage],
    platforms: Platforms,
    *,
    is_optional: bool = False,
) -> list[Requirements]:
    """Return the environments of packages, without a run's ``own`` packages, which no channel has yet."""
    found: dict[tuple[str, tuple[str, ...]], Requirements] = {}
    for package in packages:
        python = [spec for spec in package.host if _name(spec) == _PYTHON]
        needs = {
            "staging build": package.staging_build,
            "staging host": package.staging_host,
            "build": package.build,
            "host": package.host,
            "run": (*package.run, *python),
            "test": (*package.test, *python),
            # as rattler-build solves it for a test: run_exports hold libraries to the host's versions
            "run and host": (*package.host, *package.run),
        }
        for kind, specs in needs.items():
            platform = platforms.of(kind)
            made_here = solving.own_names(own, platform)
            others = tuple(spec for spec in specs if _name(spec) not in made_here)
            merged = kind in ("test", "run and host")
            needed = Requirements(
                specs=others,
                platform=platform,
                what=f"{package.name} {package.build_string}: {kind} environment",
                is_optional=is_optional or merged,
            )
            former = found.get(needed.identity)
            is_stronger = former is None or (former.is_optional and not needed.is_optional)
            if others and is_stronger:
                found[needed.identity] = needed
    return list(found.values())


def _name(spec: str) -> str:
    return spec.split()[0]


def solve_all(requirements: Sequence[Requirements], given: Environment) -> Mapping[str, RepoDataRecord]:
    """Return the packages of all environments, by URL.

    Raises PreflightError: An environment that is not optional has no solution.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    channels = Channels(by_priority=given.channels, logins=given.logins)
    gateway = solving.make_gateway(channels)
    packages: dict[str, RepoDataRecord] = {}
    solved = set[tuple[str, tuple[str, ...]]]()
    for environment in requirements:
        if environment.identity in solved:
            continue
        try:
            records = _solve(environment, channels, given, gateway)
        except PreflightError:
            if not environment.is_optional:
                raise
            continue
        solved.add(environment.identity)
        for record in records:
            packages[record.url] = record
    return packages


def _solve(
    environment: Requirements, channels: Channels, given: Environment, gateway: Gateway
) -> list[RepoDataRecord]:
    return solving.solved(
        environment.specs,
        channels,
        environment.platform,
        virtual=given.virtual_packages,
        what=environment.what,
        remedy="change the requirement in the recipe, or build another config",
        gateway=gateway,
    )
