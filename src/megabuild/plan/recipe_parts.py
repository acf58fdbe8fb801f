"""Finds the text and the files that each output of a recipe depends on."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundwork.damage import reading
from groundwork.errors import ConfigError
from groundwork.files import sha256
from megabuild.configs.recipe_document import parse_recipe

_LEFT_OUT = frozenset({"recipe.yaml", "README.md", "patches", "output", "pyg", "wheel", "__pycache__"})
#: Variant files: a package's plan has the values that it is built with.
_VALUES = frozenset({"variants.yaml", "conda_build_config.yaml"})
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_LITERAL = re.compile(r""""[^"]*"|'[^']*'""")
#: YAML keys whose values are expressions without braces.
_CONDITIONS = frozenset({"if", "skip"})
_RECIPE_FILE = re.compile(r"""\$\{?RECIPE_DIR\}?"?/([\w.-]+(?:/[\w.-]+)*)""")
#: ``$name`` and ``${name`` of a shell, ``"name"`` of Python.
_VARIABLE = re.compile(r"""(?:\$\{?|["'])([A-Za-z_]\w*)""")
_FILE_NAME = re.compile(r"[\w./-]{1,100}\.\w+")
_COMMENT = re.compile(r"(^|\s)#.*")
_PATCHES = "patches"
_COMPILER_KEYS = re.compile(r"(c|cxx|cuda|fortran)_(compiler|stdlib)(_version)?$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One output of a recipe."""

    text: str  #: its section and the context values it uses, without comments, layout and lists of patches
    patches: str = ""  #: its lists of patches
    #: sha256 of the files that it runs, directly or indirectly, by path below the recipes' folder
    files: Mapping[str, str]
    names: frozenset[str] = frozenset()  #: words of its expressions and conditions, also of context values

    def pins(self, keys: Iterable[str], top: Path) -> set[str]:
        """Return those of the :meth:`variant_keys` that only choose versions of requirements.

        The others are in an expression, choose a compiler, or are variables of a script.
        """
        variables = set[str]()
        for name in self.files:
            variables.update(_VARIABLE.findall((top / name).read_text(errors="replace")))
        used = variables | self.names
        return {key for key in keys if key not in used and not _COMPILER_KEYS.match(key)}

    def variant_keys(self, keys: Iterable[str], top: Path) -> list[str]:
        """Return the config's keys that the section or one of its scripts names; ``top`` as for :func:`parts`."""
        words = set(re.findall(r"\w+", self.text + self.patches))
        for name in self.files:
            words.update(re.findall(r"\w+", (top / name).read_text(errors="replace")))
        return sorted(key for key in keys if key in words or _COMPILER_KEYS.match(key))

    def joined(self, other: Part | None) -> Part:
        """Return both parts as one."""
        if other is None:
            return self
        return Part(
            text=other.text + self.text,
            patches=other.patches + self.patches,
            files={**other.files, **self.files},
            names=other.names | self.names,
        )


def parts(recipe: Path, top: Path | None = None, *, own: bool = True) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe into its staging output, and its package outputs by their unrendered names.

    Outputs of one name are joined, and so are several stagings. ``top``: the folder with all files that the recipe
    uses, default its own. This repository's ``own`` recipes and scripts name all files that they use. In other
    feedstocks, scripts are not read, and a file that no output names counts for every output.
    """
    with reading(recipe, "correct the recipe"):
        document = parse_recipe(recipe.read_text(encoding="utf-8"))
    reader = _Recipe(document=document, folder=recipe.parent, top=top or recipe.parent, own=own)
    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            staging = reader.staging(output).joined(staging)
        else:
            name = str(output["package"]["name"])
            packages[name] = reader.package(output).joined(packages.get(name))
    if own:
        return staging, packages
    shared = reader.unnamed_files(staging, packages.values())
    packages = {name: shared.joined(part) for name, part in packages.items()}
    if staging is not None:
        staging = shared.joined(staging)
    return staging, packages


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    document: Mapping[str, Any]
    folder: Path
    top: Path  #: as for :func:`parts`
    own: bool

    def staging(self, output: Mapping[str, Any]) -> Part:
        """Return the part of a staging output; its tests change no object."""
        section = {**self._common("source"), **output}
        section.pop("tests", None)
        return self._part(section)

    def package(self, output: Mapping[str, Any]) -> Part:
        """Return the part of a package output."""
        return self._part({**self._common("build", "source", "about"), **output})

    def _common(self, *keys: str) -> dict[str, Any]:
        """Return sections of the recipe's top level, which all outputs inherit."""
        return {key: self.document[key] for key in keys if key in self.document}

    def _part(self, section: Mapping[str, Any]) -> Part:
        patches: list[Any] = []
        text = json.dumps(_without_patches(section, patches), sort_keys=True, default=str)
        context = self._context_of(section)
        text += json.dumps(context, sort_keys=True)
        files = _files_of(section, self.folder, self.top, follow=self.own)
        return Part(
            text=text,
            patches=json.dumps(patches, sort_keys=True, default=str) if patches else "",
            files=files,
            names=_names_used(section) | _names_used(context),
        )

    def _context_of(self, section: Mapping[str, Any]) -> dict[str, str]:
        """Return the context values that a section's expressions use, directly or through one another.

        Other words do not count: the recipe's value ``build`` is no input of each section with the key ``build``.
        """
        context = self.document.get("context") or {}
        used: dict[str, str] = {}
        while True:
            words = _names_used(section) | _names_used(used)
            more = {str(key): str(value) for key, value in context.items() if str(key) in words}
            if more == used:
                return used
            used = more

    def unnamed_files(self, staging: Part | None, packages: Iterable[Part]) -> Part:
        """Return the files that no output names; they may belong to any."""
        named = set[str]()
        left_out = _LEFT_OUT | _VALUES
        for part in packages:
            named.update(part.files)
        if staging is None:
            left_out -= {"patches"}  # they are a part of each package
        else:  # its fingerprint has the patches
            named.update(staging.files)
        files = {}
        for path in _walk(self.folder, left_out):
            name = path.relative_to(self.top).as_posix()
            if name not in named:
                files[name] = sha256(path)
        return Part(text="", files=dict(sorted(files.items())))


def part_of(name: str, package_parts: Mapping[str, Part]) -> Part | None:
    """Find a package's part; a name with an expression (``pytorch-${{…}}``) matches by its fixed text.

    Several matching parts are joined.
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
    """Return the sha256 of the files that a section names, and of the files that these run or import."""
    files: set[Path] = set()
    named: list[Path] = []
    for text in _strings(section):
        named += [folder / word for word in (*text.split(), *_recipe_files(text))]
    while named:
        for path in _resolve(named.pop(), folder, top):
            if path not in files:
                files.add(path)
                if follow:
                    named += _references(path, folder, top)
    return {path.relative_to(top).as_posix(): sha256(path) for path in sorted(files)}


def _without_patches(value: Any, patches: list[Any]) -> Any:
    """Return a section without its sources' lists of patches, which are appended to ``patches``."""
    if isinstance(value, list):
        return [_without_patches(item, patches) for item in value]
    if not isinstance(value, dict):
        return value
    rest = {}
    for key, content in value.items():
        if key == _PATCHES:
            patches.append(content)
        else:
            rest[key] = _without_patches(content, patches)
    return rest


def _recipe_files(text: str) -> list[str]:
    """Return the files below the recipe's folder that a script names outside comments."""
    names: list[str] = []
    for line in text.splitlines():
        names += _RECIPE_FILE.findall(_COMMENT.sub("", line))
    return names


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            yield from _strings(list(value.values()))
        case list():
            for inner in value:
                yield from _strings(inner)


def _names_used(value: Any) -> frozenset[str]:
    """Return the words of all expressions below a value, without quoted texts."""
    words: set[str] = set()
    for expression in _expressions(value):
        words.update(re.findall(r"\w+", _LITERAL.sub("", expression)))
    return frozenset(words)


def _expressions(value: Any) -> Iterator[str]:
    """Yield the expressions below a value: between ``${{`` and ``}}``, and conditions."""
    match value:
        case str():
            yield from _EXPRESSION.findall(value)
        case Mapping():
            for key, inner in value.items():
                if key in _CONDITIONS:
                    yield from _strings(inner)
                yield from _expressions(inner)
        case list():
            for inner in value:
                yield from _expressions(inner)


def _resolve(named: Path, folder: Path, top: Path) -> list[Path]:
    """Return the file of that name, or all files in the folder of that name."""
    path = Path(os.path.normpath(named))
    # most words of a recipe name no file, so this cheap test comes first
    if path in (folder, top) or not os.path.exists(path):
        return []
    if not path.resolve().is_relative_to(top.resolve()):
        return []
    base = folder if path.is_relative_to(folder) else top
    if path.relative_to(base).parts[0] in _LEFT_OUT:
        return []
    if path.is_dir():
        return list(_walk(path))
    return [path] if path.is_file() else []


def _references(path: Path, folder: Path, top: Path) -> list[Path]:
    """Return the other files that a script's code, not its comments, runs or imports.

    Raises ConfigError: A ``.py`` file is not valid Python.
    """
    text = path.read_text(errors="replace")
    named: list[Path] = []
    match path.suffix:
        case ".sh":
            for name in _recipe_files(
                text
            ):  # in a script that recipes share, RECIPE_DIR is the script's folder
                named += [folder / name, path.parent / name]
        case ".py":
            try:
                modules, files = _names_in(text)
            except (SyntaxError, ValueError) as error:  # the latter for null bytes, up to Python 3.11
                raise ConfigError(
                    f"{path}: invalid Python: {error}", "correct the file: the recipe runs it"
                ) from error
            for name in modules:  # next to the script, or shared by all recipes
                named += [path.parent / f"{name}.py", top / f"{name}.py"]
            named += [path.parent / name for name in files]
    return named


@functools.lru_cache
def _names_in(text: str) -> tuple[list[str], list[str]]:
    """Return the modules that Python code imports, and its string constants that look like file names."""
    modules: list[str] = []
    files: list[str] = []
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
