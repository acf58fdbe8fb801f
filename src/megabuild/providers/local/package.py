"""One package of the local channel: its metadata, its inputs, and how it is built."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from cuda_code.elf_file import NotElf, opened
from groundwork import files, process
from groundwork.errors import ProviderError, of_text
from groundwork.keys import Key
from groundwork.names import PackageId
from megabuild.engine import reproducible
from megabuild.providers.command import refuse_full_disk, run
from megabuild.providers.local import assemble

#: Part of every package's key: raise it when this module builds packages differently.
_FORMAT = 2

#: Modification time of all files in a package, in seconds since 1970.
_DATE = 1_000_000_000

#: Exit code of compileall for modules with syntax errors, and for system errors, which it prints only.
_NOT_COMPILED = 1
#: compileall's line of a system error, such as that of a full disk.
_SYSTEM_ERROR = re.compile(r"^\w+: \[Errno \d+\] .*", re.MULTILINE)

#: Inputs that are programs of this machine or of a root: a package with such an input starts them.
_PROGRAMS = frozenset({"compiler", "program", "root"})
_TIMEOUT = 3600.0  # seconds, enough for the largest package

_SCRIPT = """\
set -euo pipefail
if [ -n {relocate} ]; then
  # exit code 1: no file names it; 2: a file cannot be read
  {{ grep -rIlZF -e {relocate} {staged} || [ $? = 1 ]; }} | xargs -0 -r sed -i {pattern}"$PREFIX|g"
fi
mkdir -p "$PREFIX"
find {staged} -mindepth 1 -maxdepth 1 -exec mv -t "$PREFIX" {{}} +
"""


class _Identity(NamedTuple):
    name: str
    version: str
    build: str
    build_number: int
    subdir: str
    noarch: str | None


class _Content(NamedTuple):
    relocate: str
    relink: bool
    site_packages: str | None
    summary: str


@dataclass(frozen=True, kw_only=True)
class LocalPackageInputs(Key):
    """Everything that a package of the local channel depends on; the fields are those of :class:`LocalPackage`."""

    format: int
    package: _Identity
    depends: Sequence[str]
    constrains: Sequence[str]
    run_exports: Mapping[str, Sequence[str]]
    inputs: Mapping[str, str]
    content: _Content


@dataclass(frozen=True, kw_only=True)
class LocalPackage:
    """A package of the local channel, built when it is not in the store yet."""

    name: str
    version: str
    platform: str  #: Subdir of the channel, such as "linux-64"; ignored for noarch packages.
    #: Build string. "{hash}" becomes the first seven digits of the key, so a changed input changes the string.
    build: str = "h{hash}_0"
    build_number: int = 0
    #: "python" for pure Python files under site-packages, "generic" for files without a platform.
    noarch: Literal["python", "generic"] | None = None
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    #: Specs by kind: "strong", "weak" or "noarch".
    run_exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Everything the content is made from, as text (hashes, versions). Part of the key.
    inputs: Mapping[str, str] = field(default_factory=dict)
    #: Writes the package's files into a folder, as if that folder were an environment's prefix.
    fill: Callable[[Path], None] = field(default=lambda _: None, compare=False)
    #: A folder that text files name: packing replaces it by the prefix, so that installing rewrites it.
    relocate: str = ""
    #: The Python that compiles the modules in lib/ to byte code; None if the package has none.
    interpreter: Path | None = field(default=None, compare=False)
    relink: bool = False  #: Have the engine rewrite existing RPATHs to point into the environment.
    site_packages: str | None = None  #: For interpreters: where noarch packages go, relative to the prefix.
    summary: str = ""  #: One line for the metadata.
    python: str = ""  #: X.Y(t) if the package is for one Python only.
    size: int = 0  #: Bytes of the package's wheel, if it is made from one.

    @cached_property
    def key(self) -> str:
        """sha256 over everything the package depends on."""
        return self.all_inputs.digest

    @property
    def all_inputs(self) -> LocalPackageInputs:
        """Everything the package depends on."""
        return LocalPackageInputs(
            format=_FORMAT,
            package=_Identity(
                self.name, self.version, self.build, self.build_number, self.subdir, self.noarch
            ),
            depends=self.depends,
            constrains=self.constrains,
            run_exports=self.run_exports,
            inputs=self.inputs,
            content=_Content(self.relocate, self.relink, self.site_packages, self.summary),
        )

    @property
    def build_string(self) -> str:
        """The build string with the key's first digits in place of "{hash}"."""
        return self.build.replace("{hash}", self.key[:7])

    @property
    def starts_programs(self) -> bool:
        """Whether the package works only with the programs that this machine or a root had when it was made."""
        return not _PROGRAMS.isdisjoint(self.inputs)

    @property
    def id(self) -> PackageId:
        return PackageId(self.name, self.version, self.build_string)

    @property
    def path(self) -> str:
        """Its path in a channel, which two platforms may share; they may have packages of one file name."""
        return f"{self.subdir}/{self.id.file_name}"

    @property
    def subdir(self) -> str:
        if self.noarch:
            return "noarch"
        return self.platform


def alias(name: str, target: str, version: str, platform: str, *exported: str) -> LocalPackage:
    """Describe an empty package `name` that depends on the same version of `target`, with weak run_exports."""
    return LocalPackage(
        name=name,
        version=version,
        platform=platform,
        depends=(f"{target} =={version}",),
        run_exports={"weak": exported} if exported else {},
        summary=f"Another name for {target}",
    )


def build(package: LocalPackage, work: Path) -> Path:
    """Build `package` in the empty folder `work` and return the path of the package file.

    Raises ProviderError: The engine failed. OutOfSpaceError: The disk is full.
    """
    staged = work / "staged"
    output = work / "output"
    staged.mkdir(parents=True)
    package.fill(staged)
    if package.interpreter is not None:
        _compile_modules(package, package.interpreter, staged)
    pattern = "s|" + re.sub(r"[].*^$|\\[]", r"\\\g<0>", package.relocate) + "|"
    script = _SCRIPT.format(
        staged=shlex.quote(str(staged)),
        relocate=shlex.quote(package.relocate),
        pattern=shlex.quote(pattern),
    )
    recipe = work / "recipe.json"  # JSON is YAML, too
    relinked: list[str] = []
    if package.relink:
        relinked = _files_with_rpath(staged)
    recipe.write_text(json.dumps(_recipe(package, script, relinked)))
    temporary = work / "tmp"  # the engine copies the package here, and if killed leaves the copy
    temporary.mkdir()
    run(
        [sys.executable, "-I", assemble.__file__, str(recipe), str(output), package.platform],
        what=f"packaging {package.name} {package.version}",
        timeout=_TIMEOUT,
        env=os.environ | {"TMPDIR": str(temporary)},
        guarded=True,
        writes=work,
    )
    (built,) = output.glob(f"{package.subdir}/*.conda")
    # with the engine's current time, headers would be newer than a build tree of another machine: ninja would recompile
    reproducible.normalise(built, work / built.name, _DATE, level=1)
    return work / built.name


def _compile_modules(package: LocalPackage, interpreter: Path, prefix: Path) -> None:
    """Add byte code. Without it, each start of Python compiles all modules that it imports: pip in 2.4 s, not 0.6.

    A module with a syntax error, such as a template, gets none. Modules that name the prefix get none, either: their
    text changes when the package is installed.

    Raises ProviderError: The interpreter does not run, or could not write. OutOfSpaceError: The disk is full.
    """
    modules = prefix / "lib"
    argv = [str(interpreter), "-I", "-m", "compileall", "-q", "--invalidation-mode", "timestamp"]
    argv += ["-s", str(prefix), "-x", r"[/\\]tests?[/\\]", str(modules)]
    environ = os.environ | {"PYTHONHASHSEED": "0"}  # Python 3.10 writes sets in the order of their hashes
    done = process.run(argv, timeout=_TIMEOUT, environ=environ)
    if done.returncode:
        what = f"compiling the modules of {package.name} {package.version}"
        refused = _SYSTEM_ERROR.search(done.stdout)
        reason = refused[0] if refused else ""
        refuse_full_disk(what, prefix, reason)
        if reason:
            raise of_text(reason, str(prefix)) or ProviderError(f"{what}: {reason}")
        if done.returncode != _NOT_COMPILED:
            failed = f"{interpreter} failed with exit status {done.returncode}: {done.stderr}"
            raise ProviderError(f"{what}: {failed}")
    if package.relocate:
        for module in files.below(modules):
            if module.suffix == ".py" and package.relocate.encode() in module.read_bytes():
                _remove_byte_code(module)


def _remove_byte_code(module: Path) -> None:
    for code in (module.parent / "__pycache__").glob(f"{glob.escape(module.stem)}.*.pyc"):
        code.unlink()


def _files_with_rpath(folder: Path) -> list[str]:
    paths: list[str] = []
    for path in files.below(folder):
        if path.is_file() and not path.is_symlink() and has_rpath(path):
            paths.append(str(path.relative_to(folder)))
    return paths


def has_rpath(path: Path) -> bool:
    """Whether a file is a library or program with an RPATH or RUNPATH."""
    with contextlib.suppress(NotElf), opened(path) as library:
        return bool(library.rpath())
    return False


def _recipe(package: LocalPackage, script: str, relinked: list[str]) -> dict[str, object]:
    python: dict[str, object] = {
        "skip_pyc_compilation": ["**/*.py"],  # the engine would start a process for every file
    }
    if package.site_packages:
        python["site_packages_path"] = package.site_packages
    linking: dict[str, object] = {
        "overlinking_behavior": "ignore",
        "missing_dso_allowlist": ["*"],
        "binary_relocation": relinked or False,
    }
    if relinked:
        linking["rpaths"] = ["lib/"]
    how: dict[str, object] = {
        "number": package.build_number,
        "string": package.build_string,
        "script": script,
        "python": python,
        "dynamic_linking": linking,
    }
    if package.noarch:
        how["noarch"] = package.noarch
    requirements: dict[str, object] = {
        "run": list(package.depends),
        "run_constraints": list(package.constrains),
    }
    if package.run_exports:
        requirements["run_exports"] = {kind: list(specs) for kind, specs in package.run_exports.items()}
    return {
        "package": {"name": package.name, "version": package.version},
        "build": how,
        "requirements": requirements,
        "about": {"summary": package.summary or f"{package.name}, packaged on this machine"},
    }
