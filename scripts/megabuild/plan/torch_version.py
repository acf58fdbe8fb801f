"""The PyTorch of a run: another release than the config's, the user's own source, and what either requires."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from groundwork import files
from groundwork.errors import IntegrityError, PreflightError, UsageError
from megabuild.configs.config import Config
from megabuild.configs.overrides import TARBALLS, other_torch
from megabuild.plan.options import Options

_RELEASE = "take a release's pytorch-v tarball, or a clone made with `git clone --recursive`"
_TARBALL = "https://github.com/pytorch/pytorch/releases/download/v{0}/pytorch-v{0}.tar.gz"
_REQUIRES_PYTHON = re.compile(r"""^requires-python\s*=\s*["']([^"']+)["']""", re.MULTILINE)
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class TorchRelease:
    """What a run has to know of its PyTorch beside the config."""

    source: Path | None = None  #: the user's source tree, unpacked
    triton: str | None = None  #: the version of Triton in place of the config's
    left_out: Mapping[str, str] = field(default_factory=dict)  #: Pythons that it is not for, with the reason
    notes: tuple[str, ...] = ()  #: sentences for the plan


def with_torch(config: Config, version: str | None, source: Path | None) -> Config:
    """Return the config for another release, or for the user's own source.

    Raises UsageError: The config's recipe or its provider cannot have that.
    """
    if version is None and source is None:
        return config
    if not config.torch_version:
        raise UsageError(
            f"the recipe of {config.name} takes no version of PyTorch from its configs",
            "leave out --torch and --torch-source",
        )
    if source is not None and config.provider == "wheel":
        raise UsageError(
            f"{config.name} compiles no PyTorch, it takes wheels apart", "leave out --torch-source"
        )
    if version is None or version == config.torch_version:
        return config
    return other_torch(config, version)


def read_release(options: Options, report: Callable[[str], None]) -> TorchRelease:
    """Check the source that the user names, and read the release's Triton and Pythons from it, else keep the config's.

    Raises UsageError: There is no such source, or none for this release.
    Raises IntegrityError: A tarball is not the official one, or it is damaged.
    Raises PreflightError: The source is not PyTorch's, or its submodules are missing.
    """
    config, version = options.config, options.config.torch_version
    if config.provider == "wheel" or not version:
        return TorchRelease()  # every wheel has its own metadata; other recipes name what they need
    tree, triton, pythons, notes = None, "", "", []
    is_other = bool(options.torch) and not options.rehearse
    if options.torch_source is not None:
        report(f"reading {options.torch_source.name}")
        tree, digest = _unpacked(options.torch_source, version, options.cache / "torch-source")
        notes = [f"source of PyTorch {version}: {tree}{digest}"]
        _check_tree(tree, version, submodules=config.provider == "conda-forge" and not options.rehearse)
        triton = _text(tree / ".ci" / "docker" / "triton_version.txt").strip()
        pythons = "".join(_REQUIRES_PYTHON.findall(_text(tree / "pyproject.toml"))[:1])
        if is_other and (not pythons or (config.cuda_version is not None and not triton)):
            notes.append(
                f"the source of PyTorch {version} names no Triton or Pythons: the config's are taken"
            )
    elif is_other:
        raise UsageError(
            f"{config.name} has no source of PyTorch {version}",
            f"get {_TARBALL.format(version)} and name the file with --torch-source",
        )
    return TorchRelease(
        source=tree,
        triton=triton if triton and config.cuda_version else None,
        left_out=_unsupported(config, pythons),
        notes=tuple(notes),
    )


def _unsupported(config: Config, specifiers: str) -> dict[str, str]:
    try:
        allowed = SpecifierSet(specifiers)
    except InvalidSpecifier:
        return {}
    reason = f"PyTorch {config.torch_version} requires Python {specifiers}"
    # any patch release
    left_out = (name for name in config.pythons if not allowed.contains(f"{name.removesuffix('t')}.99"))
    return dict.fromkeys(left_out, reason)


def _unpacked(source: Path, version: str, cache: Path) -> tuple[Path, str]:
    """Return the tree of a folder or a tarball, unpacked once for every content; and words on the tarball's sha256."""
    if source.is_dir():
        return source.absolute(), ""
    if not source.is_file():
        raise UsageError(f"there is no {source}", "--torch-source takes a folder or a tarball")
    digest, official = files.sha256(source), TARBALLS.get(version, ("",))[0]
    if official not in ("", digest):
        raise IntegrityError(
            f"{source} has sha256 {digest}, the official tarball of PyTorch {version} has {official}",
            "get it again, or name its unpacked folder",
        )
    final = cache / digest[:16]
    if not final.is_dir():
        with files.scratch(cache) as empty:
            files.unpack(source, empty / "unpacked")
            with suppress(OSError):  # another run was faster
                os.replace(empty / "unpacked", final)
    folders = [path for path in final.iterdir() if path.is_dir()]
    tree = folders[0] if len(folders) == 1 and not (final / "version.txt").is_file() else final
    return tree, "" if official else f" (sha256 {digest}, not compared with an official one)"


def _check_tree(tree: Path, version: str, *, submodules: bool) -> None:
    """Refuse a tree of another version, whatever follows there (``2.13.0a0``), or one without its submodules."""
    text = _text(tree / "version.txt").strip()
    try:
        release = Version(text).base_version
    except InvalidVersion as error:
        raise PreflightError(
            f"{tree}: version.txt is missing or names no version, so this is not a tree of PyTorch", _RELEASE
        ) from error
    if release != Version(version).base_version:
        raise UsageError(
            f"{tree} is PyTorch {text}, and {version} is to be built",
            f"build it as what it is with --torch {release}, or name the other release's source",
        )
    names = _SUBMODULE.findall(_text(tree / ".gitmodules")) if submodules else []
    missing = [name for name in names if not (tree / name).is_dir() or not any((tree / name).iterdir())]
    if missing:
        raise PreflightError(
            f"{tree} lacks {len(missing)} of its submodules, {missing[0]} for one",
            f"`git submodule update --init --recursive` in a clone; GitHub's own archives have none: {_RELEASE}",
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
