"""Which text and which files each output of the recipe depends on."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from groundwork.files import sha256

_LEFT_OUT = {"recipe.yaml", "README.md", "patches", "output", "pyg", "wheel", "__pycache__"}
_RECIPE_FILE = re.compile(r"""\$\{?RECIPE_DIR\}?"?/([\w.-]+(?:/[\w.-]+)*)""")
_FILE_NAME = re.compile(r"[\w./-]{1,100}\.\w+")
_COMMENT = re.compile(r"(^|\s)#.*")
_COMPILER_KEYS = re.compile(r"(c|cxx|cuda|fortran)_(compiler|stdlib)(_version)?$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One output of a recipe."""

    text: str  #: its section and the context values it uses, in a form that comments and layout do not change
    #: files of the recipes' folder that it runs, directly or through one another: name below it to sha256
    files: Mapping[str, str]

    def variant_keys(self, keys: Mapping[str, object], top: Path) -> list[str]:
        """Return those of the config's keys that the section, or a script of it, names; ``top`` is that of `parts`."""
        scripts = [self.text, *((top / name).read_text(errors="replace") for name in self.files)]
        words = set(re.findall(r"\w+", "\n".join(scripts)))
        return sorted(key for key in keys if key in words or _COMPILER_KEYS.match(key))


def parts(recipe: Path, top: Path | None = None) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe into its staging output, and its package outputs by the name that stands there.

    Outputs of one name come together. ``top`` is the folder below which the recipe and all that it uses lie; its own
    where none is named.
    """
    top = recipe.parent if top is None else top
    document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}
    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            untested = {key: value for key, value in output.items() if key != "tests"}
            staging = _part(untested, context, recipe, top)
        else:
            name, part = str(output["package"]["name"]), _part({**common, **output}, context, recipe, top)
            twin = packages.get(name, Part(text="", files={}))
            packages[name] = Part(text=twin.text + part.text, files={**twin.files, **part.files})
    return staging, packages


def part_of(name: str, known: Mapping[str, Part]) -> Part | None:
    """Find a package's part; names that hold an expression (``pytorch-${{…}}``) match by their fixed beginning."""
    if name in known:
        return known[name]
    matches = [other for other in known if "${{" in other and name.startswith(other.split("${{")[0])]
    return known[max(matches, key=len)] if matches else None


def _part(section: Mapping[str, Any], context: Mapping[str, str], recipe: Path, top: Path) -> Part:
    text = json.dumps(section, sort_keys=True, default=str)
    used: dict[str, str] = {}
    while True:  # context values may use one another
        words = set(re.findall(r"\w+", text + json.dumps(used)))
        more = {key: value for key, value in context.items() if key in words}
        if more == used:
            break
        used = more
    text += json.dumps(used, sort_keys=True)
    found = _find_files(section, recipe.parent, top)
    return Part(text=text, files={name: sha256(top / name) for name in found})


def _find_files(section: Mapping[str, Any], folder: Path, top: Path) -> list[str]:
    """Return the files that a section of a folder's recipe names, and those that these run or import in turn."""
    found: set[Path] = set()
    named = [folder / word for text in _strings(section) for word in _file_names(text)]
    while named:
        for path in _resolve(named.pop(), folder, top):
            if path not in found:
                found.add(path)
                named += _referenced(path, folder, top)
    return sorted(path.relative_to(top).as_posix() for path in found)


def _file_names(text: str) -> Iterator[str]:
    """Give the words of a text, which may be names of files, and what it names below the recipe's folder."""
    yield from text.split()
    for line in text.splitlines():
        yield from _RECIPE_FILE.findall(_COMMENT.sub("", line))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _resolve(named: Path, folder: Path, top: Path) -> list[Path]:
    """Return the files that a name stands for: itself, or what lies in the folder of that name."""
    path = Path(os.path.normpath(named))
    if path in (folder, top) or not path.resolve().is_relative_to(top.resolve()):
        return []
    inside = path.relative_to(folder if path.is_relative_to(folder) else top)
    if inside.parts[0] in _LEFT_OUT:
        return []
    return [*_walk(path)] if path.is_dir() else [path] if path.is_file() else []


def _referenced(path: Path, folder: Path, top: Path) -> Iterator[Path]:
    """Give the names of other files that a script runs or imports: code counts, comments do not."""
    text = path.read_text(errors="replace")
    if path.suffix == ".sh":
        for line in text.splitlines():
            for name in _RECIPE_FILE.findall(_COMMENT.sub("", line)):
                # for a script that recipes share, RECIPE_DIR is its own folder
                yield from (folder / name, path.parent / name)
    elif path.suffix == ".py":
        for node in ast.walk(_parse(path, text)):
            match node:
                case ast.Import() | ast.ImportFrom(module=None):
                    yield from _modules(path, top, *(alias.name for alias in node.names))
                case ast.ImportFrom(module=str(module)):
                    yield from _modules(path, top, module)
                case ast.Constant(value=str(value)) if _FILE_NAME.fullmatch(value):
                    yield path.parent / value


def _modules(path: Path, top: Path, *names: str) -> Iterator[Path]:
    """Give the files of modules that a script imports: beside it, or shared by all recipes."""
    for name in names:
        yield from (path.parent / f"{name}.py", top / f"{name}.py")


def _parse(path: Path, text: str) -> ast.Module:
    """Parse a script; raises :class:`ConfigError` where it is not Python."""
    try:
        return ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:  # the latter for null bytes, up to Python 3.11
        raise ConfigError(f"{path} is not Python: {error}", "correct it: the recipe runs it") from error


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix != ".pyc":
            yield path
