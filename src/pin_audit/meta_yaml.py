"""The requirements of a meta.yaml for the variants of a config: read as text, never rendered.

The engine evaluates the selectors, as those of a ``conda_build_config.yaml``. Of Jinja, variables with plain text,
compilers and pins are substituted; requirements with other expressions are left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from megabuild.configs.platforms import Platforms
from pin_audit.facts import Section, first_value

_SET = re.compile(r"""\{%-?\s*set\s+(\w+)\s*=\s*["']?([^"'{}%|()]+?)["']?\s*-?%\}""")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}")
_CALL = re.compile(r"""\s*(compiler|stdlib|cdt|pin_compatible|pin_subpackage)\(\s*["']([\w.-]+)["'].*""")
_HEADING = re.compile(r"(?P<indent>\s*)(?P<name>[\w-]+):\s*(?:#.*)?")
_ITEM = re.compile(r"\s*-\s+(?P<text>[^#]*[^#\s])\s*(?:#\s*(?:.*\s)?\[(?P<selector>[^\]]+)\])?.*")
_BRANCH = re.compile(r"\s*\{%-?\s*(?P<word>if|elif|else|endif)\b\s*(?P<condition>.*?)\s*-?%\}\s*")
_REQUIREMENTS = "requirements"
_SECTIONS = {
    "build": Section.BUILD,
    "host": Section.HOST,
    "run": Section.RUN,
    "run_constrained": Section.CONSTRAINT,
}
_SPEC = re.compile(r"[a-z0-9_][\w.-]*(\s+\S.*)?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9][\w.-]*")
_UNKNOWN = "{"  # in place of an expression whose value is unknown


@dataclass(frozen=True)
class Need:
    """A requirement that holds for a config."""

    section: Section
    spec: str
    line: int  #: counted from 1


@dataclass(frozen=True)
class Item:
    """A requirement as it is written, with the condition of its selector and of the Jinja around it."""

    section: Section
    text: str
    line: int
    condition: str  #: a selector's; empty if it always holds


def settings(text: str) -> dict[str, str]:
    """Return the variables that a recipe sets to plain text, each with its first value."""
    return {name: value.strip() for name, value in reversed(_SET.findall(text))}


def needs(text: str, config: Config) -> Iterator[Need]:
    """Yield the requirements that hold for a config. Raises AuditError if selectors cannot be evaluated."""
    items = list(_items(text))
    chosen = _choose(items, config)
    values = settings(text)
    for item in items:
        spec = _spec(item.text, values, config)
        if spec and _key(item) in chosen:
            if item.section in (Section.BUILD, Section.HOST):
                spec = f"{spec} {_pin(spec, config)}".strip()
            yield Need(item.section, spec, item.line)


def _choose(items: Iterable[Item], config: Config) -> Collection[str]:
    """Return the keys of the items whose condition holds: the engine evaluates them as those of a config file."""
    keys = []
    for item in items:
        selector = f"  # [{item.condition}]" if item.condition else ""
        keys.append(f'{_key(item)}:\n  - "{item.line}"{selector}')
    single = {key: values[0] for key, values in config.variant.items() if len(values) == 1}
    try:
        return evaluate("\n".join(keys), config.platforms, single).values
    except AuditError as error:
        raise AuditError(f"meta.yaml: selectors cannot be parsed: {error}", "correct them") from error


def _key(item: Item) -> str:
    return f"l{item.line}"


def _pin(spec: str, config: Config) -> str:
    """Return a config's constraint on a package that is required without a version, ``1.2.*``, or an empty string."""
    pin = first_value(config, spec.replace("-", "_"))
    if not pin or re.search("[*=<>! ]", pin):
        return pin
    return f"{pin}.*"


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of all packages that requirements name in plain text, regardless of selectors."""
    words = {item.text.split()[0] for item in _items(text)}
    return tuple(sorted(word for word in words if _NAME.fullmatch(word)))


def _items(text: str) -> Iterator[Item]:
    """Yield every requirement."""
    requirements: int | None = None  # the indent of the heading around the line
    section: Section | None = None
    conditions: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        indent = len(line) - len(line.lstrip())
        if branch := _BRANCH.fullmatch(line):
            _enter_branch(branch, conditions)
        elif heading := _HEADING.fullmatch(line):
            if heading["name"] == _REQUIREMENTS:
                requirements = indent
                section = None
            elif requirements is not None and indent > requirements:
                section = _SECTIONS.get(heading["name"])
            else:
                requirements = None
        elif requirements is None:
            continue
        elif section is not None and (item := _ITEM.fullmatch(line)):
            yield _item(section, item, number, conditions)
        elif line.strip() and not line.lstrip().startswith(("#", "{%", "-")):
            requirements = None


def _item(section: Section, match: re.Match[str], line: int, conditions: Iterable[str]) -> Item:
    parts = [*conditions, match["selector"] or ""]
    condition = " and ".join(f"({part})" for part in parts if part)
    return Item(section, match["text"].strip("'\""), line, condition)


def _enter_branch(branch: re.Match[str], conditions: list[str]) -> None:
    """Change the conditions around a line at an ``if``, ``elif``, ``else`` or ``endif``."""
    condition = branch["condition"]
    if branch["word"] == "if":
        conditions.append(condition)
        return
    last = conditions.pop() if conditions else ""
    match branch["word"]:
        case "elif" if last:
            conditions.append(f"not ({last}) and ({condition})")
        case "elif":
            conditions.append(condition)
        case "else":
            conditions.append(f"not ({last})")


def _spec(text: str, values: Mapping[str, str], config: Config) -> str:
    """Return a requirement with Jinja substituted; empty if an expression is unknown."""

    def evaluated(expression: re.Match[str]) -> str:
        return _value(expression[1].strip(), values, config)

    text = _EXPRESSION.sub(evaluated, text)
    if _UNKNOWN in text or not _SPEC.fullmatch(text):
        return ""
    return " ".join(text.split())


def _value(expression: str, values: Mapping[str, str], config: Config) -> str:
    """Return the value of a Jinja expression: a variable, a compiler or a pin."""
    call = _CALL.fullmatch(expression)
    if call is None:
        return values.get(expression) or config.variant.get(expression, (_UNKNOWN,))[0]
    function, name = call.groups()
    if function == "pin_compatible":
        return name
    key = f"{name}_{function}"  # c_compiler
    package = first_value(config, key)
    version = first_value(config, f"{key}_version")
    if package and version:
        return f"{package} {version}.*"
    return package or _UNKNOWN


@dataclass(frozen=True)
class VariantValues:
    """The values by key in a conda_build_config.yaml or a rendered config, and the groups of zipped keys."""

    values: Mapping[str, tuple[str, ...]]
    zip_keys: tuple[tuple[str, ...], ...]

    def first(self, key: str) -> str:
        """Return the first value of a key; empty if there is none."""
        return next(iter(self.values.get(key, ())), "")


def evaluate(text: str, platforms: Platforms, variant: Mapping[str, str] | None = None) -> VariantValues:
    """Evaluate the selectors of a conda_build_config.yaml for the platforms of a build.

    The engine evaluates them; it takes only files. Raises AuditError with the reason alone.
    """
    machines = PlatformConfig(
        target_platform=platforms.target, build_platform=platforms.build, host_platform=platforms.target
    )
    jinja = JinjaConfig(machines, variant=dict(variant or {}))
    values: dict[str, tuple[str, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, "conda_build_config.yaml")
        path.write_text(f"{text}\n", encoding="utf-8")
        try:
            config = VariantConfig.from_conda_build_config(path, jinja)
            for key in config.keys():  # noqa: SIM118
                if config[key]:
                    values[key] = tuple(map(str, config[key]))
            return VariantValues(values, tuple(map(tuple, config.zip_keys or ())))
        except (RattlerBuildError, OSError, ValueError, TypeError, RecursionError) as error:
            raise AuditError(str(error)) from error
