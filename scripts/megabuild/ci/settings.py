"""What is to be known of a workflow before it is written, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from groundwork.deadline import seconds_of
from groundwork.errors import UsageError
from megabuild.configs.config import Config
from megabuild.plan.estimate import cpu_hours, kind

#: GitHub's own, which have four cores for public repositories, those of macOS three, and end a job after 6 h
#: (docs.github.com, "GitHub-hosted runners reference" and "Actions limits").
_RUNNERS = {
    "linux-64": "ubuntu-24.04",
    "linux-aarch64": "ubuntu-24.04-arm",
    "osx-64": "macos-15-intel",
    "osx-arm64": "macos-15",
}
#: More would be a build for another kind of runner.
_MOST_CONTINUATIONS = 20
_LABEL = re.compile(r"[\w.@=+-]+", re.ASCII)
_SECRET = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_REFERENCE = re.compile(r"\$\{\{ *((?:secrets|vars)\.[A-Za-z_]\w*) *\}\}", re.ASCII)
_ADDRESS = re.compile(r"[\w.~:/@%+\[\]-]+", re.ASCII)
_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One config, and how it is cut into jobs."""

    config: Config
    pythons: tuple[str, ...]  #: the first one is built with libtorch, whose tests need a pytorch
    runner: tuple[str, ...]  #: the labels that a runner must have
    continuations: int  #: jobs after the first one that go on with libtorch where it was not finished


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A workflow."""

    command: str  #: what writes it, as a line for the shell
    configs: Sequence[Job]
    deadline: str
    events: Sequence[str] = ()  #: beside being started by hand: ``pull_request``, ``push``
    store: str = ""  #: its address as an expression of GitHub's; empty where artifacts take its place
    secrets: Sequence[str] = ()  #: what writing to the store needs in the environment
    rehearse: bool = False
    pyg: str = "auto"  #: as the build's option

    @property
    def timeout_minutes(self) -> int:
        """Minutes after which GitHub ends a job: what a build, and half an hour for everything around it, may take."""
        return math.ceil(seconds_of(self.deadline) / 60) + 30

    @property
    def forks(self) -> bool:
        """Whether somebody who may not write to the store can start it."""
        return bool(self.store) and "pull_request" in self.events


def runner(config: Config, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the runner for a config: those given, else its ``github_actions_labels``, else GitHub's own.

    conda-smithy reads ``github_actions_labels`` from ``conda_build_config.yaml``, and takes ``hosted`` for GitHub's
    own (conda-forge.org, "Self-hosted runners").

    Raises UsageError: GitHub has none for the platform, or a label is none.
    """
    own = [label for label in config.variant.get("github_actions_labels", ()) if label != "hosted"]
    chosen = tuple(labels or own) or (_RUNNERS.get(config.platform, ""),)
    if chosen == ("",):
        raise UsageError(f"GitHub has no runner for {config.platform}", "name one by its label: --runner")
    if wrong := [label for label in chosen if not _LABEL.fullmatch(label)]:
        raise UsageError(f"'{wrong[0]}' is no label of a runner", "letters, digits, and . _ - only")
    return chosen


def base_first(pythons: Sequence[str], config: Config) -> tuple[str, ...]:
    """Return Pythons, that which libtorch is compiled with first: it takes no step more for its pytorch."""
    base = config.variant.get("torch_python_base", ())
    return tuple(sorted(dict.fromkeys(pythons), key=lambda python: python not in base))


def continuations(config: Config, *, rehearse: bool, within: str, cores: int) -> int:
    """Return how many jobs after the first one libtorch's compile takes, by what such a build took elsewhere.

    Raises UsageError: ``within`` is no duration, or there would be too many of them.
    """
    source = "model" if rehearse else {"conda-forge": "official"}.get(config.provider, config.provider)
    cuda = config.cuda_version is not None
    seconds = 3600 * cpu_hours(kind(source=source, cuda=cuda, optimization="2")) / cores
    needed = max(0, math.ceil(seconds / seconds_of(within)) - 1)
    if needed > _MOST_CONTINUATIONS:
        raise UsageError(
            f"{config.name} would take {needed + 1} jobs of {within} with {cores} cores",
            "name a larger runner (--runner LABEL --cores N), or say how many (--continuations N)",
        )
    return needed


def store(address: str) -> str:
    """Return the address of a store as an expression.

    Raises UsageError: It has a password in it, which everybody could read, or is none.
    """
    if not address:
        return ""
    if reference := _REFERENCE.fullmatch(address):
        return reference[1]
    if "@" in urlsplit(address).netloc:
        raise UsageError(
            "the address of the store has a password in it, which would stand in the workflow",
            "put it into a secret of the repository, and name that: --store '${{ secrets.MEGABUILD_STORE }}'",
        )
    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"'{address}' is not an address of a store",
            "a folder, https://HOST/FOLDER, or s3://BUCKET/PREFIX",
        )
    return f"'{address}'"


def secrets(named: Sequence[str], address: str) -> tuple[str, ...]:
    """Return the names of secrets that writing needs: those given, else what an S3 bucket asks for.

    Raises UsageError: One cannot be the name of a secret.
    """
    if wrong := [name for name in named if not _SECRET.fullmatch(name)]:
        raise UsageError(f"'{wrong[0]}' cannot be the name of a secret", "letters, digits and _ only")
    return tuple(named) or (_AWS if address.startswith("s3://") else ())
