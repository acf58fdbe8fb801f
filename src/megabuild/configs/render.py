"""Renders a config's packages with the engine itself, so that the plan equals the build."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rattler_build import (
    PlatformConfig,
    RattlerBuildError,
    RenderConfig,
    RenderedVariant,
    Stage0Recipe,
    VariantConfig,
)
from ruamel.yaml.error import YAMLError

from groundwork.errors import ConfigError
from groundwork.files import read_text
from groundwork.names import PackageId
from groundwork.redact import secret_names
from megabuild.configs.config import Config, python_version
from megabuild.configs.config_file import Scalar
from megabuild.configs.overrides import CHANNELS, complete
from megabuild.configs.recipe_document import parse_recipe
from megabuild.configs.skipped_variants import without_skipped

#: Jinja's error in the engine's message, with the line in the recipe.
_JINJA_ERROR = re.compile(
    r'JinjaError \{ message: "(?P<message>(?:[^"\\]|\\.)*)"(?:.*?\bline: (?P<line>\d+))?'
)
_EXPERIMENTAL = "Experimental feature"
_EXPERIMENTAL_NAME = re.compile(r"\b(git\.\w+|load_from_file)\b")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_LARGEST_CONTEXT = 1 << 20  # characters of a value; the engine crashes if one exceeds the memory
#: Characters of a version that is more than a version.
_RANGE = frozenset("*=<>! ")
#: A recipe may compute a build string with slashes.
_FILE_NAME = re.compile(r"\w[\w.+!-]*")
#: The engine gives recipes the environment of this process, which all threads share.
_ENVIRONMENT_LOCK = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class PlannedPackage:
    """One package of a config. Requirements are match specs; bare names already have the config's pin."""

    name: str
    version: str
    build_string: str
    build_number: int
    file_name: str
    subdir: str  #: ``linux-64`` or ``noarch``
    #: ``3.12`` for a package made for one Python, else None
    python: str | None
    build: tuple[str, ...]
    host: tuple[str, ...]
    run: tuple[str, ...]
    constraints: tuple[str, ...]
    test: tuple[str, ...]  #: requirements of the package's tests, without the package
    #: requirements of the staging output that this package inherits from
    staging_build: tuple[str, ...] = ()
    staging_host: tuple[str, ...] = ()
    staging: str = ""  #: the name of that output
    #: the channels are part of its hash: the engine takes them from the variant, and refuses others
    names_channels: bool = False
    #: address and revision (``refs/tags/v1`` for a tag, empty for none) of git sources
    git: tuple[tuple[str, str], ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """Its names and requirements, for fingerprints."""
        facts = asdict(self)
        del facts["staging"]
        del facts["names_channels"]
        return facts

    @property
    def id(self) -> PackageId:
        return PackageId(self.name, self.version, self.build_string)


def render(
    config: Config,
    recipe: Path,
    *,
    overrides: Mapping[str, Sequence[str]] | None = None,
    build_platform: str | None = None,
) -> tuple[PlannedPackage, ...]:
    """Return the packages that a recipe renders to for a config, in the order the engine builds them, each once.

    Those that the recipe skips for this config are not among them.

    ``overrides``: variant values in place of the config's; partners of zipped keys follow.
    ``build_platform``: the platform that compiles, default that of the packages.

    Raises ConfigError: The recipe cannot be read or rendered for this config.
    """
    # from the config, not its file: the config may be for another PyTorch
    values = config.as_written({**config.variant, **complete(config, overrides or {})})
    hashable = tuple((key, tuple(several)) for key, several in values.items())
    try:
        text = read_text(recipe).encode()
        if _context_size(text) > _LARGEST_CONTEXT:
            raise ConfigError(f"{recipe}: context grows without bounds", "shorten the context's expressions")
        return _render(
            recipe,
            text,
            hashable,
            config.zip_keys,
            config.platform,
            build_platform or config.platform,
        )
    except (OSError, RattlerBuildError, UnicodeError, YAMLError) as error:
        raise _not_rendered(recipe, config, error) from error


def _not_rendered(recipe: Path, config: Config, error: Exception) -> ConfigError:
    """Return the error of a recipe that the engine cannot render; the engine prints Jinja's error as a Rust value."""
    reason = str(error)
    place = str(recipe)
    found = _JINJA_ERROR.search(reason)
    if found:
        reason = found["message"].replace('\\"', '"')
        if found["line"]:
            place = f"{recipe}:{found['line']}"
    if _EXPERIMENTAL in reason:
        names = ", ".join(dict.fromkeys(_EXPERIMENTAL_NAME.findall(reason))) or "one of its functions"
        return ConfigError(
            f"{place}: {names}: rattler-build calls it experimental, and megabuild does not support it",
            "write the value into the recipe",
        )
    return ConfigError(f"{place}: cannot be rendered for {config.name}: {reason}", "correct the recipe")


@functools.lru_cache(maxsize=32)
def _context_size(text: bytes) -> int:
    """Estimate the longest value of a recipe's context: each may repeat those before it, or be multiplied."""
    try:
        document = parse_recipe(text.decode())
    except (YAMLError, ValueError, RecursionError):
        return 0  # the engine reports the error
    if not isinstance(document, dict) or not isinstance(document.get("context"), dict):
        return 0
    sizes: dict[str, int] = {}
    for name, value in document["context"].items():
        expressions = " ".join(_EXPRESSION.findall(str(value)))
        size = len(str(value))
        for word in re.findall(r"[A-Za-z_]\w*", expressions):
            size += sizes.get(word, 0)
        if "*" in expressions:
            numbers = re.findall(r"\d+", expressions)
            size *= max([1, *map(int, numbers)])
        sizes[str(name)] = min(size, _LARGEST_CONTEXT + 1)
    return max(sizes.values(), default=0)


@functools.lru_cache(maxsize=512)
def _render(
    recipe: Path,
    text: bytes,
    values: tuple[tuple[str, tuple[Scalar, ...]], ...],
    zip_keys: tuple[tuple[str, ...], ...],
    platform: str,
    build_platform: str,
) -> tuple[PlannedPackage, ...]:
    """Render, with a cache: it takes half a second, and a run plans twice.

    ``text``, the recipe's content, is only used as part of the cache key.
    """
    variants = VariantConfig({key: list(several) for key, several in values}, list(map(list, zip_keys)))
    machines = PlatformConfig(target_platform=platform, build_platform=build_platform, host_platform=platform)
    target = RenderConfig(machines)
    with _hidden_secrets():
        stage0 = Stage0Recipe.from_file(recipe)
        rendered = stage0.render(variants, target)
        kept = list(without_skipped(rendered, stage0, text.decode(), variants, target))
    unique: dict[tuple[str, str], PlannedPackage] = {}
    # in build order, with one variant for every combination of keys, even unused ones
    for variant in kept:
        package = _to_package(variant, platform)
        unique.setdefault((package.name, package.build_string), package)
    return tuple(unique.values())


@contextmanager
def _hidden_secrets() -> Iterator[None]:
    """Hide secrets: the engine lets a recipe read the environment of this process.

    One thread at a time: the audit renders in several.
    """
    with _ENVIRONMENT_LOCK:
        hidden = {name: os.environ.pop(name) for name in secret_names(os.environ)}
        try:
            yield
        finally:
            os.environ.update(hidden)


@dataclass(frozen=True)
class _Requirements:
    """The requirements of a rendered variant, as match specs."""

    variant: RenderedVariant

    def specs(self, kind: str, sections: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """Return the requirements of a kind, such as ``host``, each once."""
        specs: dict[str, None] = {}
        for section in sections:
            for item in section.get(kind, []):
                specs[_spec(item, self.variant.pin_subpackages)] = None
        return tuple(specs)

    def pinned(self, kind: str, sections: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """Return them with the config's pins."""
        pins = dict(self.variant.variant)
        specs = self.specs(kind, sections)
        return tuple(dict.fromkeys(_pin(spec, pins) for spec in specs))


def _to_package(variant: RenderedVariant, platform: str) -> PlannedPackage:
    recipe: dict[str, Any] = variant.recipe.to_dict()
    name = str(recipe["package"]["name"])
    version = str(recipe["package"]["version"])
    build = recipe["build"]
    build_string = str(build["string"])
    file_name = PackageId(name, version, build_string).file_name
    if not _FILE_NAME.fullmatch(file_name):
        raise ConfigError(f"{file_name}: not a file name for a package", "correct the recipe's build string")
    used = variant.recipe.used_variant
    python = used.get("python")
    caches = recipe.get("staging_caches", [])
    requirements = _Requirements(variant)
    own = [recipe.get("requirements", {})]
    staging = [cache.get("requirements", {}) for cache in caches]
    test: dict[str, None] = {}
    for needs in map(_test_needs, recipe.get("tests", [])):
        test |= dict.fromkeys(requirements.specs("build", [needs]))
        test |= dict.fromkeys(requirements.specs("run", [needs]))
    # the engine lists it among the used keys even if the output ignores it
    ignored = build.get("variant", {}).get("ignore_keys", ())
    return PlannedPackage(
        name=name,
        version=version,
        build_string=build_string,
        build_number=int(build.get("number") or 0),
        file_name=file_name,
        subdir="noarch" if build.get("noarch") else platform,
        python=python_version(str(python)) if python else None,
        build=requirements.pinned("build", own),
        host=requirements.pinned("host", own),
        run=requirements.specs("run", own),
        constraints=requirements.specs("run_constraints", own),
        test=tuple(test),
        staging_build=requirements.pinned("build", staging),
        staging_host=requirements.pinned("host", staging),
        staging=str(caches[0]["name"]) if caches else "",
        names_channels=CHANNELS in used and CHANNELS not in ignored,
        git=_git([recipe, *caches]),
    )


def _git(parts: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    found: dict[tuple[str, str], None] = {}
    for part in parts:
        for source in part.get("source") or ():
            if "git" in source:
                found[str(source["git"]), str(source.get("rev") or "")] = None
    return tuple(found)


def _test_needs(test: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a test's requirements; the engine adds pip if a Python test runs `pip check`."""
    if "python" in test and test["python"].get("pip_check", True):
        return {"run": ["pip"]}
    needs: Mapping[str, Any] = test.get("requirements", {})
    return needs


def _spec(item: Any, pins: Mapping[str, Any]) -> str:
    """Turn one requirement of a rendered recipe, a spec or a pin on a sibling, into a match spec."""
    if isinstance(item, str):
        return item
    kind, pin = next(iter(item.items()))
    name = str(pin["name"])
    sibling = pins.get(name)
    if kind == "pin_subpackage" and pin.get("exact") and sibling is not None:
        return f"{name} =={sibling.version} {sibling.build_string}"
    return name


def _pin(spec: str, variant: Mapping[str, object]) -> str:
    """Give a bare name the config's pin, as the engine does when it solves build and host environments."""
    value = variant.get(spec.replace("-", "_"))
    if value is None or " " in spec:
        return spec
    text = str(value)
    if not _RANGE.isdisjoint(text):
        return f"{spec} {text}"
    return f"{spec} {text}.*"
