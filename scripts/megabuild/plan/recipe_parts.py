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

    def joined(self, other: Part | None) -> Part:
        """Return both parts as one."""
        return Part(text=other.text + self.text, files={**other.files, **self.files}) if other else self


def parts(recipe: Path, top: Path | None = None, *, own: bool = True) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe into its staging output, and its package outputs by the name that stands there.

    Outputs of one name come together; so do several stagings. ``top`` is the folder below which the recipe and all that
    it uses lie; its own where none is named. This repository's ``own`` recipes and scripts name all that they use; of
    another's only the recipe is read, and a file beside it that no output names may be used by any of them.
    """
    folder = recipe.parent
    top = folder if top is None else top
    document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}

    def part_from(section: Mapping[str, Any]) -> Part:
        text = json.dumps(section, sort_keys=True, default=str)
        used: dict[str, str] = {}
        while True:  # context values may use one another
            words = set(re.findall(r"\w+", text + json.dumps(used)))
            more = {key: value for key, value in context.items() if key in words}
            if more == used:
                text += json.dumps(used, sort_keys=True)
                return Part(text=text, files=_files_of(section, folder, top, follow=own))
            used = more

    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            untested = {key: value for key, value in output.items() if key != "tests"}
            inherited = {key: common[key] for key in ("source",) if key in common}
            staging = part_from({**inherited, **untested}).joined(staging)
        else:
            name = str(output["package"]["name"])
            packages[name] = part_from({**common, **output}).joined(packages.get(name))
    if own:
        return staging, packages
    named = {name for part in (*packages.values(), staging) if part for name in part.files}
    # patches are a staging's, which notes them by itself; they count here where there is none
    left_out = (_LEFT_OUT if staging else _LEFT_OUT - {"patches"}) | _VALUES
    paths = {path.relative_to(top).as_posix(): path for path in _walk(folder, left_out)}
    rest = Part(
        text="", files={name: sha256(path) for name, path in sorted(paths.items()) if name not in named}
    )
    return staging and rest.joined(staging), {name: rest.joined(part) for name, part in packages.items()}


def part_of(name: str, package_parts: Mapping[str, Part]) -> Part | None:
    """Find a package's part; names that hold an expression (``pytorch-${{…}}``) match by what is fixed in them.

    Where several do it may be any of them.
    """
    if name in package_parts:
        return package_parts[name]
    joined: Part | None = None
    for other, part in package_parts.items():
        pattern = ".+".join(map(re.escape, _EXPRESSION.split(other)))
        if "${{" in other and re.fullmatch(pattern, name):
            joined = part.joined(joined)
    return joined


def _files_of(section: Mapping[str, Any], folder: Path, top: Path, *, follow: bool) -> dict[str, str]:
    """Return the files that a section names, with their sha256; also those that these run or import in turn."""
    files: set[Path] = set()
    named = [folder / word for text in _strings(section) for word in (*text.split(), *_recipe_files(text))]
    while named:
        for path in _resolve(named.pop(), folder, top):
            if path not in files:
                files.add(path)
                named += _references(path, folder, top) if follow else ()
    return {path.relative_to(top).as_posix(): sha256(path) for path in sorted(files)}


def _recipe_files(text: str) -> list[str]:
    """Return the files below the recipe's folder that a script names, comments left out."""
    return [name for line in text.splitlines() for name in _RECIPE_FILE.findall(_COMMENT.sub("", line))]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)


def _resolve(named: Path, folder: Path, top: Path) -> list[Path]:
    """Return the files that a name stands for: itself, or what lies in the folder of that name."""
    path = Path(os.path.normpath(named))
    # most words of a recipe name no file, which is told soonest by looking
    if path in (folder, top) or not os.path.exists(path) or not path.resolve().is_relative_to(top.resolve()):
        return []
    inside = path.relative_to(folder if path.is_relative_to(folder) else top)
    if inside.parts[0] in _LEFT_OUT:
        return []
    return [*_walk(path)] if path.is_dir() else [path] if path.is_file() else []


def _references(path: Path, folder: Path, top: Path) -> list[Path]:
    """Return the names of other files that a script runs or imports: code counts, comments do not.

    Raises ConfigError: It should be Python, and is not.
    """
    text = path.read_text(errors="replace")
    if path.suffix == ".sh":  # for a script that recipes share, RECIPE_DIR is its own folder
        return [base / name for name in _recipe_files(text) for base in (folder, path.parent)]
    if path.suffix != ".py":
        return []
    try:
        modules, files = _names_in(text)
    except (SyntaxError, ValueError) as error:  # the latter for null bytes, up to Python 3.11
        raise ConfigError(f"{path} is not Python: {error}", "correct it: the recipe runs it") from error
    # modules lie beside the script, or are shared by all recipes
    places = [base / f"{name}.py" for name in modules for base in (path.parent, top)]
    return places + [path.parent / name for name in files]


@functools.lru_cache
def _names_in(text: str) -> tuple[list[str], list[str]]:
    """Return the modules that Python code imports, and its texts that look like names of files."""
    modules, files = [], []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom(module=None):
                modules += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                modules.append(module)
            case ast.Constant(value=str(value)) if _FILE_NAME.fullmatch(value):
                files.append(value)
    return modules, files


def _walk(folder: Path, left_out: frozenset[str] = _LEFT_OUT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in left_out or path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink() and not (path / "recipe.yaml").is_file():
            yield from _walk(path, left_out)
        elif path.is_file() and path.suffix != ".pyc":
            yield path
