"""The requirements that another version changes: those of the new wheel against the rendered recipe.

A wheel's METADATA says what the installed package needs, so only lines of ``run`` can be certain. A line counts only
if the recipe, rendered for the new version, has its requirement: other branches stay as they are.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from groundwork.errors import AuditError, ConfigError
from megabuild.configs.config import Config
from megabuild.configs.render import render
from pin_audit.facts import Requirement
from pin_audit.meta_yaml import needs
from pin_audit.name_map import names
from pin_audit.recipe_lines import Line
from pin_audit.release import Release
from pin_audit.rows import is_optional
from pin_audit.versions import Spec, within

_SECTION = re.compile(
    r"^(?P<indent>\s*)(?:-\s+)?(?P<name>build|host|run|run_\w+|requires|by_name):\s*(?:#.*)?$"
)
#: Sections whose requirements hold where the package is installed.
_INSTALLED = ("run", "run_constraints", "run_constrained")
_HOST_NOTE = "for the build, upstream's build-system.requires decides, not the wheel"
#: NVIDIA's names in requirements, and the extra of cuda-toolkit that requires the same (its METADATA, 13.0).
_TOOLKIT, _OTHER_EXTRAS = "cuda-toolkit", {"runtime": "cudart"}

#: The requirements of a recipe rendered for the new version; None if it cannot be rendered.
Rendered = Mapping[str, frozenset[str]] | None


class Difference(NamedTuple):
    """A requirement that may have to change: its line, values, and whether the new value is certain."""

    line: Line
    spec: str  #: the line's; may be an expression
    row: str
    old: str
    new: str
    certain: bool
    fact: Requirement
    note: str = ""


def rendered_requirements(recipe: Path, configs: Sequence[Config], key: str, new: str, old: str) -> Rendered:
    """Render a recipe for the version ``new``; return its specs by name, ``*`` for any version.

    `key`: the config's key with the version; empty if the recipe itself has it.
    """
    found: dict[str, set[str]] = {}
    try:
        for spec in _specs(recipe, configs, key, new, old):
            name, _, value = spec.strip().partition(" ")
            found.setdefault(name, set()).add(value or "*")
    except (AuditError, ConfigError, OSError, UnicodeError):
        return None
    return {name: frozenset(specs) for name, specs in found.items()} or None


def _specs(recipe: Path, configs: Sequence[Config], key: str, new: str, old: str) -> Iterator[str]:
    text = recipe.read_text(encoding="utf-8")
    if not key:
        text = re.sub(rf"(version\s*[:=]\s*[\"']?){re.escape(old)}\b", rf"\g<1>{new}", text)
    if recipe.name == "meta.yaml":
        for config in configs:
            yield from (need.spec for need in needs(text, config))
        return
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        copy = Path(folder, "recipe.yaml")
        copy.write_text(text, encoding="utf-8")
        for config in configs:
            variant = {**config.variant, **({key: (new,)} if key else {})}
            for package in render(replace(config, variant=variant), copy if not key else recipe):
                yield from (*package.staging_build, *package.staging_host, *package.build)
                yield from (*package.host, *package.run, *package.constraints)


def differences(
    old: Release, new: Release, recipe: Sequence[Line], rendered: Mapping[str, Rendered]
) -> Iterator[Difference]:
    """Yield the lines whose requirement differs from the new wheel's; `rendered`: by the recipe's file."""
    was, now = _by_row(old), _by_row(new)
    extras = {extra for fact in now.values() if fact.name == _TOOLKIT for extra in fact.extras}
    for row in dict.fromkeys((*now, *was)) if was and now else ():
        before, after = was.get(row), now.get(row)
        if row in ("python", "cuda-version") or (before and after and before.value == after.value):
            continue
        asked = [(line, spec) for line, spec in lines_of(recipe, row) if _is_taken(line, row, spec, rendered)]
        if before and after:
            for line, spec in asked:
                yield from _difference(row, before.value, after, line, spec, recipe)
        elif (fact := after or before) and bool(asked) != bool(after) and not _is_in_toolkit(fact, extras):
            line = asked[0][0] if asked else Line(recipe[0].file, 0, "")
            note = (
                "the wheel requires it, the recipe does not" if after else "the wheel no longer requires it"
            )
            values = before.value if before else "", after.value if after else ""
            yield Difference(line, "", row, *values, False, fact, note)


def _by_row(release: Release) -> dict[str, Requirement]:
    facts = (fact for fact in release.all(Requirement) if not is_optional(fact))
    return {names().by_distribution(fact.name): fact for fact in facts}


def _is_in_toolkit(fact: Requirement, extras: Iterable[str]) -> bool:
    """Whether the new wheel requires a library through an extra of cuda-toolkit."""
    word = re.sub(r"^nvidia-(?:cuda-)?|-cu\d+$", "", fact.name)
    return _OTHER_EXTRAS.get(word, word) in extras


def lines_of(recipe: Iterable[Line], row: str) -> list[tuple[Line, str]]:
    """Return the recipe's lines that require a row of name_map.yaml, each with the constraint."""
    entry = names().entries.get(row)
    # `-` and `_` are the same in Python's names
    words = "|".join(re.sub("[-_.]", "[-_.]", name) for name in (row, *(entry.conda if entry else ())))
    asked = re.compile(rf"""(?:-|then:|else:)\s+["']?(?:{words})(?:\s+([^#"'\[]+?))?["']?\s*(?:#.*)?$""")
    return [(line, match[1] or "") for line in recipe if (match := asked.search(line.text))]


def _is_taken(line: Line, row: str, spec: str, rendered: Mapping[str, Rendered]) -> bool:
    """Whether the recipe for the new version has a line's requirement; True if it cannot be rendered."""
    specs = rendered.get(line.file)
    if specs is None or "{" in spec:
        return True
    entry = names().entries.get(row)
    plain = (spec or "*").replace(" ", "")
    own = {
        value.replace(" ", "")
        for name in (row, *(entry.conda if entry else ()))
        for value in specs.get(name, ())
    }
    return plain in own or (not spec and bool(own))  # a bare name takes the config's pin


def _difference(
    row: str, was: str, now: Requirement, line: Line, spec: str, recipe: Sequence[Line]
) -> Iterator[Difference]:
    exact, old = now.value.lstrip("=~<>!"), was.lstrip("=~<>!")
    if "{" in spec:
        yield Difference(line, spec, row, old, exact, True, now)
    elif section_of(line, recipe) not in _INSTALLED:
        if spec == was or (not spec and not now.value.startswith("==")):
            yield Difference(line, spec, row, spec, now.value, False, now, _HOST_NOTE)
    elif spec == was:
        only_stricter = now.value.startswith(("==", "~=")) or within(Spec(now.value, True), Spec(was, True))
        note = "" if only_stricter else "the new wheel also accepts other versions"
        yield Difference(line, spec, row, spec, now.value, only_stricter, now, note)
    elif spec and now.value.startswith("==") and (Spec(spec).admits(exact) or not Spec(spec).admits(old)):
        return
    elif spec != now.value and (spec or not now.value.startswith("==")):
        yield Difference(line, spec, row, spec, now.value, False, now, f"the old wheel required {was}")


def section_of(line: Line, recipe: Sequence[Line]) -> str:
    """Return the section of a requirement's line: ``host``; empty if there is none above it."""
    indent = len(line.text) - len(line.text.lstrip())
    above = [other for other in recipe if other.file == line.file and other.number < line.number]
    for other in reversed(above):
        match = _SECTION.match(other.text)
        if match and len(match["indent"]) <= indent:
            return match["name"]
    return ""
