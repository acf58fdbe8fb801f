"""Package an interpreter of this machine as `python` and `python_abi`, with conda-forge's build strings."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from groundwork import process
from groundwork.errors import ProviderError
from groundwork.files import below, walk
from megabuild.providers.command import refuse_full_disk
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage

#: Ignored files of the standard library: tests, Tk programs, caches, static libraries.
_ignored = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "site-packages", "dist-packages",
    "sitecustomize.py", "EXTERNALLY-MANAGED", "_tkinter.*.so", "_test*.so", "xxlimited*.so", "*.a", "*.o", "*.pyc",
)  # fmt: skip

#: Debian's line in sysconfig, which installs modules to local/ and dist-packages, and upstream's: to site-packages.
_DEBIAN_SCHEME = ("prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'")

#: Debian's module that has setuptools install to local/ and dist-packages.
_DEBIAN_DISTUTILS = "_distutils_system_mod.py"

#: Debian's site module is compiled into the interpreter and does not search site-packages.
_SITECUSTOMIZE = """\
import site, sys

if sys.prefix == sys.base_prefix:
    site.addsitedir(sys.prefix + "/lib/python%d.%d/site-packages" % sys.version_info[:2])
"""


def packages(
    interpreter: Interpreter, platform: str, running: Interpreter
) -> tuple[LocalPackage, LocalPackage]:
    """Describe the packages `python` and `python_abi` of an interpreter, in the subdir `platform`.

    ``running``: an interpreter of the same X.Y that this machine runs: itself, unless it is for another machine.
    """
    python = interpreter.python
    tag = f"cp{python.replace('.', '')}"  # ends conda-forge's build strings
    number_only = python.removesuffix("t")
    # as on conda-forge: with two builds of a version, the one with a GIL wins by its number
    suffix = "cpython"
    number = 0
    if interpreter.sort_key[1] >= 13:
        suffix = tag
        number = 0 if interpreter.free_threaded else 100
    abi = f"python_abi {number_only}.* *_{tag}"
    inputs = {"interpreter": str(interpreter.prefix), "files": _signature(interpreter)}
    if interpreter.debian_layout:
        inputs["without"] = _DEBIAN_DISTUTILS
    main = LocalPackage(
        name="python",
        version=interpreter.version,
        build=f"h{{hash}}_{number}_{suffix}",
        build_number=number,
        platform=platform,
        constrains=(abi,),
        run_exports={"noarch": ("python",), "weak": (abi,)},
        inputs=inputs,
        fill=partial(_fill, interpreter),
        # in Debian's files "/usr" can also mean the system's own folders
        relocate="" if interpreter.debian_layout else str(interpreter.prefix),
        interpreter=running.executable,
        relink=True,
        site_packages=f"lib/python{python}/site-packages",
        summary=f"CPython {interpreter.version} found at {interpreter.prefix}",
    )
    abi_package = LocalPackage(
        name="python_abi",
        version=number_only,
        build=f"8_{tag}",  # conda-forge's build number
        build_number=8,
        platform=platform,
        noarch="generic",
        constrains=(f"python {number_only}.* *_{suffix}",),
        summary="The ABI tag of a Python",
    )
    return main, abi_package


def _parts(interpreter: Interpreter) -> Iterator[tuple[Path, str]]:
    """Yield the interpreter's existing files and folders with their paths in a prefix."""
    python = interpreter.python
    yield interpreter.stdlib, f"lib/python{python}"
    yield interpreter.include, f"include/python{python}"
    libraries = {interpreter.library_folder, interpreter.prefix / "lib"}
    for folder in sorted(libraries):
        for library in sorted(folder.glob(f"libpython{python}.so*")) + sorted(folder.glob("libpython3.so")):
            yield library, f"lib/{library.name}"
        for description in sorted(folder.glob(f"pkgconfig/python-{python}*.pc")):
            yield description, f"lib/pkgconfig/{description.name}"
    for name in (f"python{python}", f"python{python}-config"):
        program = interpreter.executable.parent / name
        if program.exists():
            yield program, f"bin/{name}"


def _signature(interpreter: Interpreter) -> str:
    """Return a sha256 of names, sizes and mtimes of all files to package; reading their content is too slow."""
    digest = hashlib.sha256(repr(interpreter).encode())
    for source, inside in _parts(interpreter):
        for path in _files(source):
            status = path.lstat()
            digest.update(f"{inside} {path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        yield source
        return
    for folder, subfolders, names in walk(source):
        left_out = _ignored(folder, subfolders + names)
        subfolders[:] = sorted(set(subfolders) - left_out)
        for name in sorted(set(names) - left_out):
            yield Path(folder, name)


def _fill(interpreter: Interpreter, prefix: Path) -> None:
    python = interpreter.python
    for source, inside in _parts(interpreter):
        target = prefix / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=_ignored)
        elif not target.exists():
            sibling = source.is_symlink() and os.sep not in os.readlink(source)
            shutil.copy2(source, target, follow_symlinks=not sibling)
    for alias in ("python", "python3", f"python{python.removesuffix('t')}"):
        if not (prefix / "bin" / alias).exists():
            (prefix / "bin" / alias).symlink_to(f"python{python}")
    if interpreter.debian_layout:
        _undo_debian(interpreter, prefix)
    site_packages = prefix / f"lib/python{python}/site-packages"
    site_packages.mkdir()
    (site_packages / "README.txt").write_text("Modules of other packages are installed here.\n")
    if not interpreter.machine:  # Debian's programs for another processor have no debug symbols
        _strip(prefix)


def _undo_debian(interpreter: Interpreter, prefix: Path) -> None:
    """Make Debian's interpreter install modules to site-packages and search them there."""
    stdlib = prefix / f"lib/python{interpreter.python}"
    sysconfig = stdlib / "sysconfig" / "__init__.py"
    if not sysconfig.exists():
        sysconfig = stdlib / "sysconfig.py"
    debian_line, upstream_line = _DEBIAN_SCHEME
    text = sysconfig.read_text()
    if debian_line not in text:
        raise ProviderError(
            f"{interpreter.executable}: {sysconfig} does not have Debian's line {debian_line!r}",
            f"run: uv python install {interpreter.python}, or pyenv install {interpreter.python}",
        )
    sysconfig.write_text(text.replace(debian_line, upstream_line))
    (stdlib / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    (stdlib / _DEBIAN_DISTUTILS).unlink(missing_ok=True)
    for link in stdlib.glob("config-*/*.so"):  # points to the system's library folder
        link.unlink()
    real_config = interpreter.include.parent / interpreter.multiarch / interpreter.include.name / "pyconfig.h"
    if real_config.is_file():
        shutil.copy2(real_config, prefix / f"include/python{interpreter.python}/pyconfig.h")


def _strip(prefix: Path) -> None:
    """Drop debug symbols, which are most of the size, if binutils is installed.

    Raises OutOfSpaceError: The disk is full, on which strip can leave half a library.
    """
    libraries = [path for path in below(prefix) if ".so" in path.name]
    binaries = [*libraries, *prefix.glob("bin/python*")]
    own = [path for path in binaries if path.is_file() and not path.is_symlink()]
    for path in own:
        path.chmod(path.stat().st_mode | 0o200)
    done = process.run(["strip", "--strip-debug", *own], timeout=None)
    if done.returncode:  # also for files that are no libraries
        refuse_full_disk("removing debug symbols of Python", prefix, done.stderr)
