"""Which text and which files each output of the recipe depends on."""

from __future__ import annotations

import ast
import functools
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

_LEFT_OUT = frozenset({"recipe.yaml", "README.md", "patches", "output", "pyg", "wheel", "__pycache__"})
#: Files that say which variants there are: what a package is built with stands in its plan.
_VALUES = frozenset({"variants.yaml", "conda_build_config.yaml"})
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
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


def parts(recipe: Path, top: Path | None = None, *, own: bool = True) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe into its staging output, and its package outputs by the name that stands there.

    Outputs of one name come together; so do several stagings. ``top`` is the folder below which the recipe and all that
    it uses lie; its own where none is named. This repository's ``own`` recipes and scripts name all that they use; of
    another's only the recipe is read, and a file beside it that no output names may be used by any of them.
    """
    top = recipe.parent if top is None else top
    document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}
    staging: Part | None = None
    packages: dict[str, Part] = {}
    scripts = _Scripts(recipe.parent, top)
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            untested = {key: value for key, value in output.items() if key != "tests"}
            inherited = {key: common[key] for key in ("source",) if key in common}
            staging = _joined(staging, _part({**inherited, **untested}, context, scripts, follow=own))
        else:
            name = str(output["package"]["name"])
            packages[name] = _joined(
                packages.get(name), _part({**common, **output}, context, scripts, follow=own)
            )
    if own:
        return staging, packages
    every = [*packages.values(), *([staging] if staging else [])]
    unnamed = _unnamed(
        recipe.parent, top, {name for part in every for name in part.files}, patches=staging is None
    )
    rest = Part(text="", files={name: sha256(top / name) for name in unnamed})
    return staging and _joined(staging, rest), {name: _joined(part, rest) for name, part in packages.items()}


def _joined(one: Part | None, other: Part) -> Part:
    return Part(text=one.text + other.text, files={**one.files, **other.files}) if one else other


def _unnamed(folder: Path, top: Path, named: set[str], *, patches: bool) -> list[str]:
    """Return the files below a recipe's folder that no output names, but for folders that other recipes lie in.

    Patches are a staging's, which notes them by itself; they count here where there is none.
    """
    left_out = (_LEFT_OUT - {"patches"} if patches else _LEFT_OUT) | _VALUES
    found = (path.relative_to(top).as_posix() for path in _walk(folder, left_out))
    return sorted(name for name in found if name not in named)


def part_of(name: str, known: Mapping[str, Part]) -> Part | None:
    """Find a package's part; names that hold an expression (``pytorch-${{…}}``) match by what is fixed in them.

    Where several do it may be any of them.
    """
    if name in known:
        return known[name]
    fixed = {other: map(re.escape, _EXPRESSION.split(other)) for other in known if "${{" in other}
    parts_ = [known[other] for other, texts in fixed.items() if re.fullmatch(".+".join(texts), name)]
    return functools.reduce(_joined, parts_) if parts_ else None


def _part(section: Mapping[str, Any], context: Mapping[str, str], scripts: _Scripts, *, follow: bool) -> Part:
    text = json.dumps(section, sort_keys=True, default=str)
    used: dict[str, str] = {}
    while True:  # context values may use one another
        words = set(re.findall(r"\w+", text + json.dumps(used)))
        more = {key: value for key, value in context.items() if key in words}
        if more == used:
            break
        used = more
    text += json.dumps(used, sort_keys=True)
    return Part(text=text, files=scripts.named(section, follow=follow))


class _Scripts:
    """The files of a folder's recipe, each looked at once, however many outputs name it."""

    def __init__(self, folder: Path, top: Path) -> None:
        self._folder, self._top, self._real = folder, top, top.resolve()
        self._found: dict[Path, list[Path]] = {}  # by the name that stands for them
        self._runs: dict[Path, list[Path]] = {}  # what a file names
        self._sums: dict[str, str] = {}

    def named(self, section: Mapping[str, Any], *, follow: bool) -> dict[str, str]:
        """Return the files that a section names, with their sha256; also those that these run or import in turn."""
        found: set[Path] = set()
        named = [self._folder / word for text in _strings(section) for word in _file_names(text)]
        while named:
            for path in self._resolved(named.pop()):
                if path not in found:
                    found.add(path)
                    named += self._referenced(path) if follow else ()
        names = sorted(path.relative_to(self._top).as_posix() for path in found)
        return {name: self._sum(name) for name in names}

    def _resolved(self, named: Path) -> list[Path]:
        if named not in self._found:
            self._found[named] = _resolve(named, self._folder, self._top, self._real)
        return self._found[named]

    def _referenced(self, path: Path) -> list[Path]:
        if path not in self._runs:
            self._runs[path] = list(_referenced(path, self._folder, self._top))
        return self._runs[path]

    def _sum(self, name: str) -> str:
        if name not in self._sums:
            self._sums[name] = sha256(self._top / name)
        return self._sums[name]


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


def _resolve(named: Path, folder: Path, top: Path, real: Path) -> list[Path]:
    """Return the files that a name stands for: itself, or what lies in the folder of that name.

    ``real`` is ``top`` with its links resolved.
    """
    path = Path(os.path.normpath(named))
    # most words of a recipe name no file, which is told soonest by looking
    if path in (folder, top) or not os.path.exists(path) or not path.resolve().is_relative_to(real):
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


def _walk(folder: Path, left_out: frozenset[str] = _LEFT_OUT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in left_out or path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink() and not (path / "recipe.yaml").is_file():
            yield from _walk(path, left_out)
        elif path.is_file() and path.suffix != ".pyc":
            yield path
