"""A config's file, made by `configs --write` or by conda-smithy: whose it is, and what stands in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
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
    """What a config's file says."""

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
        return path.is_file() and _text(path).startswith(_FIRST)
    except ConfigError:
        return False  # nor can it be another config's


def is_ours(path: Path) -> bool:
    """Say whether a file is as it was generated, so that nothing is lost with it."""
    return is_generated(path) and _text(path) == stamped("".join(_text(path).splitlines(keepends=True)[2:]))


def platform_of(path: Path) -> str:
    """Return the platform that a config's name begins with, or an empty string.

    A file for noarch says it nowhere else.
    """
    match = _PLATFORM.match(path.stem)
    return "-".join(match.groups()) if match else ""


def read(path: Path, recipe: Path) -> Content:
    """Read a config's file; for one that conda-smithy made, with what stands beside the recipe as in every build of it.

    Raises ConfigError: It cannot be read; the message names line and column.
    """
    generated = is_generated(path)
    content = _parsed(path, generated=generated)
    first = _beside_recipe(recipe)
    if generated or first is None:
        return content
    # keys that conda-smithy left out keep what the recipe says
    platform = next(iter(content.variant.get("target_platform", ())), platform_of(path))
    return _by_engine([first, path], platform, f"cannot read {path} with {first}", content.remedy)


def beside(recipe: Path, platform: str) -> tuple[Path, Content]:
    """Return the file beside a recipe that stands in for configs where there are none, and what it says; or nothing.

    Raises ConfigError: It cannot be read.
    """
    first = _beside_recipe(recipe)
    if first is None:
        return recipe, Content(variant={}, zip_keys=(), unquoted=frozenset(), generated=False)
    return first, _by_engine([first], platform, f"cannot read {first} for {platform}", "correct it")


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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", REGENERATE) from error


def _parsed(path: Path, *, generated: bool) -> Content:
    empty = Content(variant={}, zip_keys=(), unquoted=frozenset(), generated=generated)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _AsWritten
    try:
        document: Any = yaml.load(_text(path))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{where}: {error.problem or error.context}", empty.remedy) from error
    except YAMLError as error:
        raise ConfigError(f"cannot read {path}: {error}", empty.remedy) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a mapping of keys to lists", empty.remedy)
    for key in () if generated else _INSTRUCTIONS:
        document.pop(key, None)
    zip_keys = document.pop("zip_keys", None) or []
    broken = [key for key, values in document.items() if not isinstance(values, list)]
    if broken or not isinstance(zip_keys, list):
        raise ConfigError(f"{path}: '{(broken or ['zip_keys'])[0]}' is not a list", empty.remedy)
    for group in zip_keys:
        if not isinstance(group, list):
            raise ConfigError(f"{path}: a group of zip_keys is not a list: {group}", empty.remedy)
    # no text of theirs: a few aliases within one another would fill the memory
    nested = [
        key for key, values in document.items() if any(isinstance(value, (list, dict)) for value in values)
    ]
    if nested:
        raise ConfigError(f"{path}: '{nested[0]}' holds a list in a list", empty.remedy)
    content = _content(document, zip_keys, generated=generated)
    _check_zips(path, content)
    return content


def _check_zips(path: Path, content: Content) -> None:
    """Refuse zipped keys with different numbers of values; a key that the file does not have is no mistake."""
    for group in content.zip_keys:
        numbers = {key: len(content.variant[key]) for key in group if key in content.variant}
        if len(set(numbers.values())) > 1:
            told = ", ".join(f"{key} has {number}" for key, number in numbers.items())
            raise ConfigError(
                f"{path}: zipped keys differ in their numbers of values: {told}", content.remedy
            )


def _by_engine(paths: list[Path], platform: str, what: str, remedy: str) -> Content:
    from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

    try:
        target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
        made = VariantConfig.from_files_with_context([*paths], JinjaConfig(target))
    except (OSError, RattlerBuildError) as error:
        raise ConfigError(f"{what}: {error}", remedy) from error
    document = {key: made[key] for key in made.keys() if key not in _INSTRUCTIONS}  # noqa: SIM118
    content = _content(document, made.zip_keys or [], generated=False)
    _check_zips(paths[-1], content)
    return content


def _content(document: Mapping[Any, Any], zip_keys: Any, *, generated: bool) -> Content:
    return Content(
        variant={str(key): tuple(as_text(value) for value in values) for key, values in document.items()},
        zip_keys=tuple(tuple(str(key) for key in group) for group in zip_keys),
        unquoted=frozenset(
            str(key)
            for key, values in document.items()
            if any(isinstance(value, (bool, int)) for value in values)
        ),
        generated=generated,
    )
