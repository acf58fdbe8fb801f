"""Reads another release of PyTorch, or the user's own source: version, Triton and Pythons."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from groundwork import archives, files
from groundwork.errors import IntegrityError, PreflightError, UsageError
from groundwork.progress import Notes
from megabuild.configs.config import Config
from megabuild.configs.overrides import TARBALLS
from megabuild.plan.options import Options
from megabuild.providers.select import provider_of

_RELEASE = "use a release's pytorch-v tarball, or a clone made with `git clone --recursive`"
_TARBALL = "https://github.com/pytorch/pytorch/releases/download/v{0}/pytorch-v{0}.tar.gz"
_REQUIRES_PYTHON = re.compile(r"""^requires-python\s*=\s*["']([^"']+)["']""", re.MULTILINE)
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class TorchRelease:
    """Facts about a run's PyTorch that are not in the config."""

    source: Path | None = None  #: the user's source tree, unpacked
    #: variant values: the source, and the version of Triton, if it is not the config's
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  #: unsupported Pythons, with the reason
    notes: tuple[str, ...] = ()  #: notes of the plan


def with_torch(config: Config, version: str | None, source: Path | None) -> Config:
    """Return the config for another release, whose source is not downloaded, or for the user's own source.

    Raises UsageError: The config's recipe or provider does not support it.
    """
    if version is None and source is None:
        return config
    if not config.torch_version:
        raise UsageError(
            f"{config.name}: its recipe has no variant key torch_version",
            "omit --torch and --torch-source",
        )
    if source is not None and not provider_of(config).compiles:
        raise UsageError(f"{config.name} unpacks wheels and compiles no PyTorch", "omit --torch-source")
    if version is None or version == config.torch_version:
        return config
    form = r"\d+\.\d+\.\d+"
    example = "'2.15.0'"
    if provider_of(config).has_nightlies:
        form += r"(\.dev\d{8})?"
        example += ", or '2.16.0.dev20261120' for a nightly build"
    if not re.fullmatch(form, version):
        raise UsageError(f"'{version}': not a release of PyTorch", f"write it like {example}")
    changed = {"torch_version": (version,), "torch_sha256": ("None",)}
    return replace(config, torch_version=version, variant={**config.variant, **changed})


def read_release(options: Options, report: Notes) -> TorchRelease:
    """Check the user's source, and read its Triton and Pythons; if it names none, the config's are used.

    Raises UsageError: The source does not exist, is of another release, or is missing for another release.
    Raises IntegrityError: A tarball is not the official one, or it is damaged.
    Raises PreflightError: The source is not PyTorch's, or its submodules are missing.
    """
    config = options.config
    version = config.torch_version
    if not version or not provider_of(config).compiles:
        return TorchRelease()  # wheels have their own metadata; other recipes name their requirements
    is_other = bool(options.torch) and not options.rehearse
    if options.torch_source is None and is_other:
        raise UsageError(
            f"{config.name}: no source of PyTorch {version}",
            f"download {_TARBALL.format(version)} and pass it with --torch-source",
        )
    if options.torch_source is None:
        return TorchRelease()
    report(f"reading {options.torch_source.name}")
    tree, digest = _unpacked(options.torch_source, version, options.cache / "torch-source")
    notes = [f"source of PyTorch {version}: {tree}{digest}"]
    submodules = provider_of(config).needs_submodules and not options.rehearse
    _check_tree(tree, version, submodules=submodules)
    triton = _text(tree / ".ci" / "docker" / "triton_version.txt").strip()
    pythons = _REQUIRES_PYTHON.search(_text(tree / "pyproject.toml"))
    lacks_triton = config.cuda_version is not None and not triton
    if is_other and (pythons is None or lacks_triton):
        notes.append(f"the source of PyTorch {version} names no Triton or Pythons: the config's are used")
    overrides = {"torch_source_path": (str(tree),)}
    if triton and config.cuda_version:
        overrides["triton_version"] = (triton,)
    left_out = _unsupported(config, pythons[1]) if pythons else {}
    return TorchRelease(source=tree, overrides=overrides, left_out=left_out, notes=tuple(notes))


def _unsupported(config: Config, specifiers: str) -> dict[str, str]:
    try:
        allowed = SpecifierSet(specifiers)
    except InvalidSpecifier:
        return {}
    left_out = {}
    for python in config.pythons:
        newest_patch = f"{python.removesuffix('t')}.99"  # it decides
        if not allowed.contains(newest_patch):
            left_out[python] = f"PyTorch {config.torch_version} requires Python {specifiers}"
    return left_out


def _unpacked(source: Path, version: str, cache: Path) -> tuple[Path, str]:
    """Return the tree of a folder or tarball, which is unpacked once per sha256, and a remark on the sha256."""
    if source.is_dir():
        return source.absolute(), ""
    if not source.is_file():
        raise UsageError(
            f"{source}: no such file or folder", "pass --torch-source with a folder or a tarball"
        )
    digest = files.sha256(source)
    official = TARBALLS.get(version)
    if official and official.sha256 != digest:
        raise IntegrityError(
            f"{source}: sha256 {digest}, but the official tarball of PyTorch {version} has {official.sha256}",
            "download the tarball again, or pass an unpacked folder",
        )
    tree = _unpack_once(source, cache, cache / digest[:16])
    if official:
        return tree, ""
    return tree, f" (sha256 {digest}, not compared with an official one)"


def _unpack_once(source: Path, cache: Path, final: Path) -> Path:
    """Unpack a tarball to ``final``, unless another run has; return the tree in it."""
    if not final.is_dir():
        with files.scratch(cache) as empty:
            archives.unpack(source, empty / "unpacked")
            os.sync()  # a power cut must not leave a complete folder with empty files
            with suppress(OSError):  # another run has unpacked it
                os.replace(empty / "unpacked", final)
    if (final / "version.txt").is_file():
        return final
    folders = [path for path in final.iterdir() if path.is_dir()]
    return folders[0] if len(folders) == 1 else final


def _check_tree(tree: Path, version: str, *, submodules: bool) -> None:
    """Refuse a tree of another release (``2.13.0a0`` is one of 2.13.0), or one without its submodules."""
    text = _text(tree / "version.txt").strip()
    try:
        release = Version(text).base_version
    except InvalidVersion as error:
        raise PreflightError(
            f"{tree}: not a source tree of PyTorch: version.txt is missing or has no version", _RELEASE
        ) from error
    if release != Version(version).base_version:
        raise UsageError(
            f"{tree}: source of PyTorch {text}, not of {version}",
            f"pass --torch {release}, or the source of PyTorch {version}",
        )
    missing = []
    if submodules:
        names = _SUBMODULE.findall(_text(tree / ".gitmodules"))
        missing = [name for name in names if _is_empty(tree / name)]
    if missing:
        raise PreflightError(
            f"{tree}: {len(missing)} submodules are missing, for example {missing[0]}",
            f"in a clone, run `git submodule update --init --recursive`; else {_RELEASE}, not GitHub's archive",
        )


def _is_empty(folder: Path) -> bool:
    return not folder.is_dir() or not any(folder.iterdir())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):  # an unreadable file is no missing one
        return ""
