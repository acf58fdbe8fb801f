"""A config's file, made by `configs --write` or by conda-smithy: what it holds, and who made it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from groundwork.errors import ConfigError

WRITE = "`python scripts/megabuild configs --write`"
REGENERATE = f"regenerate it: {WRITE}"
#: Variant files that the engine reads beside a recipe by itself, before the one it is given.
BESIDE_RECIPE = ("variants.yaml", "conda_build_config.yaml")

_FIRST = f"# Generated from conda_build_config.yaml by {WRITE}; change that file instead.\n"
_SECOND = "# sha256 of all below: "
#: conda-build's instructions, which are no variants and mean nothing to the engine
_INSTRUCTIONS = ("pin_run_as_build", "extend_keys", "ignore_version", "ignore_build_only_deps")
_PLATFORM = re.compile(r"(linux|osx|win)_(64|aarch64|ppc64le|arm64)(?=_|$)")

Scalar: TypeAlias = str | bool | int


@dataclass(frozen=True, kw_only=True)
class Content:
    """A config file's content."""

    variant: Mapping[str, tuple[str, ...]]  #: every key with its values, all as text, without ``zip_keys``
    zip_keys: tuple[tuple[str, ...], ...]
    unquoted: frozenset[str]  #: keys with true, false or whole numbers among their values
    generated: bool  #: by `configs --write`, or since edited

    @property
    def remedy(self) -> str:
        """What to do where something is wrong with it."""
        return REGENERATE if self.generated else "correct it, or let conda-smithy render it again"


def stamped(text: str) -> str:
    """Return the text of a generated file under the lines by which it is known again."""
    return f"{_FIRST}{_SECOND}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def is_generated(path: Path) -> bool:
    """Say whether a file says that it was generated; it may have been edited since."""
    try:
        return path.is_file() and _read_text(path).startswith(_FIRST)
    except ConfigError:
        return False  # nor can it be another config's


def is_ours(path: Path) -> bool:
    """Say whether a file is as it was generated, so that nothing is lost with it."""
    return is_generated(path) and _read_text(path) == stamped(_read_text(path).split("\n", 2)[-1])


def platform_of(path: Path) -> str:
    """Return the platform that a config's name begins with, or an empty string; a file for noarch has no other."""
    match = _PLATFORM.match(path.stem)
    return "-".join(match.groups()) if match else ""


def read(path: Path, recipe: Path) -> Content:
    """Read a config's file; for one that conda-smithy made, with the variant file beside the recipe as in every build.

    Raises ConfigError: It cannot be read; the message names line and column.
    """
    content = _parse(path, generated=is_generated(path))
    beside = _beside_recipe(recipe)
    if content.generated or beside is None:
        return content
    # keys that conda-smithy left out keep what the recipe says
    platform = next(iter(content.variant.get("target_platform", ())), platform_of(path))
    return _read_by_engine([beside, path], platform)


def read_beside(recipe: Path, platform: str) -> tuple[Path, Content]:
    """Return the variant file beside a recipe that stands in for configs where there are none, and its content, if any.

    Raises ConfigError: It cannot be read.
    """
    beside = _beside_recipe(recipe)
    if beside is None:
        return recipe, _content({}, [], generated=False)
    return beside, _read_by_engine([beside], platform)


def _beside_recipe(recipe: Path) -> Path | None:
    return next((recipe / name for name in BESIDE_RECIPE if (recipe / name).is_file()), None)


def scalar(value: str) -> Scalar:
    """Return what a value is that stands in a file without quotes."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"-?\d+", value) else value


def as_text(value: object) -> str:
    """Return a variant's value as the engine spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _AsWritten(SafeConstructor):
    """Leaves 3.10 and 2.17 as they stand, as the engine does: read as numbers, the first would be 3.1."""


_AsWritten.add_constructor(
    "tag:yaml.org,2002:float", lambda constructor, node: constructor.construct_scalar(node)
)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", REGENERATE) from error


def _parse(path: Path, *, generated: bool) -> Content:
    remedy = _content({}, [], generated=generated).remedy
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _AsWritten
    try:
        document: Any = yaml.load(_read_text(path))
    except MarkedYAMLError as error:  # its text shows lines of the file
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{where}: {error.problem or error.context}", remedy) from error
    except YAMLError as error:
        raise ConfigError(f"cannot read {path}: {error}", remedy) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a mapping of keys to lists", remedy)
    for key in () if generated else _INSTRUCTIONS:
        document.pop(key, None)
    zip_keys = document.pop("zip_keys", None) or []
    for key, values in {"zip_keys": zip_keys, **document}.items():
        if not isinstance(values, list):
            raise ConfigError(f"{path}: '{key}' is not a list", remedy)
        # no text of theirs: a few aliases within one another would fill the memory
        if key != "zip_keys" and any(isinstance(value, (list, dict)) for value in values):
            raise ConfigError(f"{path}: '{key}' holds a list in a list", remedy)
    for group in zip_keys:
        if not isinstance(group, list):
            raise ConfigError(f"{path}: a group of zip_keys is not a list: {group}", remedy)
    content = _content(document, zip_keys, generated=generated)
    check_zips(path, content.variant, content.zip_keys, remedy)
    return content


def check_zips(
    path: Path, variant: Mapping[str, Sequence[str]], zip_keys: Sequence[Sequence[str]], remedy: str
) -> None:
    """Refuse zipped keys with different numbers of values; a key that the file does not have is no mistake."""
    for group in zip_keys:
        numbers = {key: len(variant[key]) for key in group if key in variant}
        if len(set(numbers.values())) > 1:
            listed = ", ".join(f"{key} has {number}" for key, number in numbers.items())
            raise ConfigError(f"{path}: zipped keys differ in their numbers of values: {listed}", remedy)


def _read_by_engine(paths: list[Path], platform: str) -> Content:
    from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

    try:
        target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
        variants = VariantConfig.from_files_with_context([*paths], JinjaConfig(target))
    except (OSError, RattlerBuildError) as error:
        names = " with ".join(map(str, reversed(paths)))
        raise ConfigError(f"cannot read {names} for {platform}: {error}", "correct it") from error
    document = {key: variants[key] for key in variants.keys() if key not in _INSTRUCTIONS}  # noqa: SIM118
    content = _content(document, variants.zip_keys or [], generated=False)
    check_zips(paths[-1], content.variant, content.zip_keys, content.remedy)
    return content


def _content(document: Mapping[Any, Any], zip_keys: Any, *, generated: bool) -> Content:
    return Content(
        variant={str(key): tuple(map(as_text, values)) for key, values in document.items()},
        zip_keys=tuple(tuple(map(str, group)) for group in zip_keys),
        unquoted=frozenset(
            str(key)
            for key, values in document.items()
            if any(isinstance(value, (bool, int)) for value in values)
        ),
        generated=generated,
    )
