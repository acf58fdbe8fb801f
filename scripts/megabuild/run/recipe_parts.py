"""Which text and which files each output of the recipe depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from megabuild.files import sha256

_LEFT_OUT = {"recipe.yaml", "README.md", "patches", "output", "pyg", "__pycache__"}
_COMPILER_KEYS = re.compile(r"(c|cxx|cuda|fortran)_(compiler|stdlib)(_version)?$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One output of a recipe.

    Parameters
    ----------
    text:
        Its section and the context values it uses, in a form that comments and layout do not change.
    files:
        Files beside the recipe that it mentions, directly or through one another: name to sha256.
    """

    text: str
    files: Mapping[str, str]

    def variant_keys(self, keys: Mapping[str, object], recipe: Path) -> list[str]:
        """Return those of the config's keys that the section, or a script of it, names."""
        scripts = [self.text, *((recipe.parent / name).read_text(errors="replace") for name in self.files)]
        words = set(re.findall(r"\w+", "\n".join(scripts)))
        return sorted(key for key in keys if key in words or _COMPILER_KEYS.match(key))


def parts(recipe: Path) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe.

    Parameters
    ----------
    recipe:
        The recipe file.

    Returns
    -------
    tuple[Part | None, dict[str, Part]]
        The staging output, and the package outputs by the name that stands in the recipe.
    """
    document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}
    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            staging = _part(output, context, recipe)
        else:
            packages[str(output["package"]["name"])] = _part({**common, **output}, context, recipe)
    return staging, packages


def _part(section: Mapping[str, Any], context: Mapping[str, str], recipe: Path) -> Part:
    text = json.dumps(section, sort_keys=True, default=str)
    used: dict[str, str] = {}
    while True:  # context values may use one another
        words = set(re.findall(r"\w+", text + json.dumps(used)))
        more = {key: value for key, value in context.items() if key in words}
        if more == used:
            break
        used = more
    text += json.dumps(used, sort_keys=True)
    return Part(
        text=text, files={name: sha256(recipe.parent / name) for name in _mentioned(text, recipe.parent)}
    )


def _mentioned(text: str, folder: Path) -> list[str]:
    candidates = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    found: set[str] = set()
    queue = [text]
    while queue:
        here = queue.pop()
        for name, path in candidates.items():
            if name not in found and _names(here, name):
                found.add(name)
                queue.append(path.read_text(errors="replace"))
    return sorted(found)


def _names(text: str, name: str) -> bool:
    """Say whether a text names a file: by its path, by the folder it lies in, or as a Python module."""
    path = Path(name)
    if re.search(rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])", text):
        return True
    if len(path.parts) > 1 and re.search(rf"(?<![\w.-]){re.escape(path.parts[0])}/", text):
        return True
    return (
        path.suffix == ".py"
        and re.search(rf"^\s*(import|from)\s+{re.escape(path.stem)}\b", text, re.M) is not None
    )


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix != ".pyc":
            yield path
