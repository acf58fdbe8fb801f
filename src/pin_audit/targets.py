"""The packages of this repository, as targets of the audit, and their upstream repositories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct, convert
from ruamel.yaml import YAML

from groundwork.errors import UsageError
from groundwork.text import suggest
from megabuild.configs.config import Config
from pin_audit.addresses import identify
from pin_audit.facts import AuditTarget, Build, first_value, resolve_types
from pin_audit.name_map import plain

_FILE = Path(__file__).with_name("packages.yaml")
_TORCH_KEY = "torch_version"


@resolve_types
class AuditedPackage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of packages.yaml, whose head describes the fields."""

    name: str
    repository: str
    tag: str
    wheel: str
    index: str
    recipe: str
    key: str


@cache
def packages() -> tuple[AuditedPackage, ...]:
    """Return the packages in packages.yaml, in its order: PyTorch first."""
    document = YAML(typ="safe", pure=True).load(_FILE.read_text(encoding="utf-8"))
    return tuple(convert({"name": name, **fields}, AuditedPackage) for name, fields in document.items())


def find(name: str) -> AuditedPackage:
    """Find a package by its name on conda or PyPI, with ``-`` or ``_``, or by its short name, ``scatter``.

    Raises UsageError if there is none.
    """
    word = plain(name)
    for package in packages():
        conda_name = plain(package.name)
        if word in (conda_name, conda_name.removeprefix("pytorch_"), plain(package.wheel)):
            return package
    hint = suggest(word, [package.name for package in packages()])
    raise UsageError(f"{name}: unknown package", hint)


def is_known(target: AuditTarget) -> bool:
    """Whether the audit reads the release of a package in packages.yaml, from the repository there."""
    for package in packages():
        tag = package.tag.format(version=target.version)
        if (target.repository, target.tag) == (package.repository, tag):
            return True
    return False


def own_repositories(target: AuditTarget) -> set[str]:
    """Identify upstream's repository in packages.yaml, and the mirror that the audit reads, if there is one."""
    repositories = [package.repository for package in packages() if package.name == target.package]
    return {identify(address) for address in (*repositories, target.repository)} - {""}


def target(
    package: AuditedPackage, configs: Sequence[Config], root: Path, *, version: str | None = None
) -> AuditTarget:
    """Return the audit target of a package, at the configs' version or at `version`.

    A config for another PyTorch than most (Debian's) counts only if that version is audited. Raises UsageError if
    `version` is invalid, or there are no configs.
    """
    if not configs:
        raise UsageError(f"{root}: no configs", "run: scripts/megabuild configs --write")
    if version is not None and not re.fullmatch(r"\d[0-9A-Za-z.+_-]*", version):
        raise UsageError(f"{version}: not a version", "pass one like 2.13.0, without the tag's v")
    by_version: dict[str, list[Config]] = {}
    for config in configs:
        by_version.setdefault(first_value(config, package.key), []).append(config)
    usual = max(by_version, key=lambda built: len(by_version[built]))
    audited = version or usual
    audited_configs = by_version.get(audited, by_version[usual])
    if package.key != _TORCH_KEY:  # an extension: audit the configs with the most common PyTorch
        torch, _ = Counter(config.torch_version for config in audited_configs).most_common(1)[0]
        audited_configs = [config for config in audited_configs if config.torch_version == torch]
    recipe = root / package.recipe
    return AuditTarget(
        package=package.name,
        version=audited,
        repository=package.repository,
        tag=package.tag.format(version=audited),
        wheel=package.wheel,
        index=package.index,
        recipe=recipe if recipe.is_file() else None,
        builds=tuple(map(Build.of, audited_configs)),
    )
