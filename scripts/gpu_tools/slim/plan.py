"""Plans a slimming: the files to remove and the libraries to shrink, step by step."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from gpu_tools.contents import ELF, Contents
from gpu_tools.file_lists import correct_list
from gpu_tools.slim.features import FEATURES, find_unknown, is_nvidia_library
from gpu_tools.slim.library import LibrarySlimmed, slim_library
from gpu_tools.slim.steps import SlimRequest, SlimStep, find_files, find_users, select_steps
from groundwork.errors import UsageError
from groundwork.files import sync
from groundwork.progress import Notes
from groundwork.text import to_dict

#: Bytes; a file is replaced only if that saves at least one page.
_LEAST = 4096


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A step, the bytes it saves, and the number of files it removes or shrinks."""

    step: SlimStep
    saves: int
    files: int


@dataclass(frozen=True, kw_only=True)
class SlimPlan:
    """The steps with their savings, and what they cost."""

    contents: Contents
    request: SlimRequest
    rows: tuple[Saving, ...]  #: Steps that save bytes or remove files.
    gone: frozenset[str]  #: Paths of files to remove.
    left_alone: Mapping[str, str]  #: Libraries that cannot be slimmed, with the reason.
    #: Per requested GPU (``sm_120``), the libraries with GPU code by the answer of :func:`cuda_archs.runs_on`.
    gpu_code: Mapping[str, Mapping[str, list[str]]]
    #: Skipped steps, by name, with the feature or the packages that need the files.
    spared: Mapping[str, str]
    lost_for: Mapping[str, list[str]]  #: By step: packages that use the removed files, but work without.
    unknown: tuple[str, ...]  #: GPU packages whose needs at run time are unknown.
    #: New files by the paths of the libraries and lists that they replace; empty if none were written.
    new: Mapping[str, Path]

    @property
    def before(self) -> int:
        """Bytes of all files."""
        return self.contents.size

    @property
    def after(self) -> int:
        """Bytes of all files after slimming."""
        return self.before - sum(row.saves for row in self.rows)

    @cached_property
    def features(self) -> dict[str, list[str]]:
        """Names of the packages' features that slimming leaves (``works``) and breaks (``lost``)."""
        lost = {name for row in self.rows for name in row.step.costs}
        names = self.name_existing(FEATURES)
        return {
            "works": [name for name in names if name not in lost],
            "lost": [name for name in names if name in lost],
        }

    def name_existing(self, features: Iterable[str]) -> list[str]:
        """Return those ``features`` that the installed packages have."""
        packages = frozenset(self.contents.owners.values())
        return [name for name in features if FEATURES[name].is_in(packages)]

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "subject": self.contents.name,
            "kind": self.contents.kind,
            "gpus": list(self.request.gpus),
            "before": self.before,
            "after": self.after,
            "steps": [
                {
                    "name": row.step.name,
                    "saves": row.saves,
                    "files": row.files,
                    "loses": row.step.loses,
                    "costs": self.name_existing(row.step.costs),
                }
                for row in self.rows
            ],
            **self.features,
            **to_dict(self, "lost_for spared unknown gpu_code left_alone"),
            "links": len(self.contents.outside),
        }


def make_plan(contents: Contents, request: SlimRequest, note: Notes, into: Path | None = None) -> SlimPlan:
    """Compute the savings of each step; write the new files below ``into``, if given.

    Raises UsageError: ``into`` is given, and no library has code for a requested GPU.
    """
    note("finding unused files")
    files = find_files(contents, request)
    users = find_users(contents, files)
    steps, spared = select_steps(request, contents, files, users)
    gone, rows = _pick_files(contents, files, steps)
    libraries = _slim_libraries(contents, request, {step.name for step in steps}, gone, note, into)
    gpu_code = {gpu: _sort_by_code(gpu, libraries) for gpu in request.gpus}
    for gpu, code in gpu_code.items():
        if into is not None and lacks_all_code(code):
            raise UsageError(
                f"{contents.name}: no library has code for GPU {cuda_archs.number(gpu) / 10:.1f}, only for other GPUs",
                "correct --arch-list (nvidia-smi --query-gpu=compute_cap --format=csv lists your GPUs), or omit it",
            )
    smaller = {
        path: slimmed for path, slimmed in libraries.items() if slimmed.before - slimmed.after >= _LEAST
    }
    parts = {
        "gpu-code": [slimmed.gpu_code for slimmed in smaller.values()],
        "symbols": [slimmed.symbols for slimmed in smaller.values()],
    }
    for step in steps:
        if saved := parts.get(step.name):
            rows.append(Saving(step=step, saves=sum(saved), files=sum(map(bool, saved))))
    with_code = {contents.owners[path] for path, slimmed in libraries.items() if slimmed.code}
    return SlimPlan(
        contents=contents,
        request=request,
        rows=tuple(row for row in rows if row.saves or row.files),
        gone=frozenset(gone),
        left_alone={path: slimmed.trouble for path, slimmed in libraries.items() if slimmed.trouble},
        gpu_code=gpu_code,
        spared=spared,
        lost_for={row.step.name: sorted(users[row.step.name]) for row in rows if users.get(row.step.name)},
        unknown=find_unknown(contents, with_code),
        new=_write_lists(contents, gone, {path: into / path for path in smaller}, into) if into else {},
    )


def _sort_by_code(gpu: str, libraries: Mapping[str, LibrarySlimmed]) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {"native": [], "PTX-only": [], "missing": []}
    for path, library in libraries.items():
        if library.code:
            sm, ptx = (
                [name for name in library.code if name.startswith(kind)] for kind in ("sm_", "compute_")
            )
            paths[cuda_archs.runs_on(gpu, sm, ptx)].append(path)
    return paths


def lacks_all_code(libraries: Mapping[str, list[str]]) -> bool:
    """Return whether all libraries with GPU code have code for other GPUs only."""
    return bool(libraries["missing"]) and not (libraries["native"] or libraries["PTX-only"])


def _pick_files(
    contents: Contents, files: Mapping[str, Sequence[str]], steps: Iterable[SlimStep]
) -> tuple[set[str], list[Saving]]:
    gone: set[str] = set()
    rows = []
    for step in steps:
        # removing a link to a file outside saves nothing
        picked = set(files.get(step.name, ())) - gone - contents.outside.keys()
        pointing = picked
        while pointing:  # remove links together with their targets
            pointing = {path for path, to in contents.links.items() if to in pointing} - picked - gone
            picked |= pointing
        gone |= picked
        if picked:
            rows.append(Saving(step=step, saves=sum(map(contents.size_of, picked)), files=len(picked)))
    return gone, rows


def _slim_libraries(
    contents: Contents,
    request: SlimRequest,
    steps: Collection[str],
    gone: Collection[str],
    note: Notes,
    into: Path | None,
) -> dict[str, LibrarySlimmed]:
    gpus = request.gpus if "gpu-code" in steps else ()
    if not gpus and "symbols" not in steps:
        return {}
    libraries: dict[str, LibrarySlimmed] = {}
    paths = [
        path
        for path in sorted(contents.owners)
        if path not in gone
        and contents.size_of(path) >= _LEAST
        and contents.begins_with(path, ELF)
        # NVIDIA's licence forbids passing on changed copies of its libraries
        and (contents.kind == "environment" or not is_nvidia_library(path))
    ]
    for count, path in enumerate(paths, 1):
        note(f"analysing libraries: {count} of {len(paths)} ({posixpath.basename(path)})")
        target = None if into is None else into / path
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
        slimmed = slim_library(contents.root / path, target, gpus=gpus, symbols="symbols" in steps)
        libraries[path] = slimmed
        if target and slimmed.before - slimmed.after >= _LEAST:
            _copy_status(contents, path, target)
        elif target:
            target.unlink(missing_ok=True)
    return libraries


def _write_lists(
    contents: Contents, gone: Collection[str], new: dict[str, Path], into: Path
) -> dict[str, Path]:
    """Write corrected file lists; return ``new`` with them added."""
    for listed in contents.lists:
        if listed.path not in contents.every:  # its folder is a link to another folder
            continue
        # a list has the hash of a link's target
        linked = {path: new[to] for path, to in contents.links.items() if to in new}
        text = correct_list(contents.root / listed.path, listed.path, gone, {**linked, **new})
        if text is not None:
            target = new[listed.path] = into / listed.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
            _copy_status(contents, listed.path, target)
            # the size may be unchanged: the date lets rsync and undo distinguish the new list from the original
            status = contents.every[listed.path]
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    return new


def _copy_status(contents: Contents, path: str, target: Path) -> None:
    """Copy mode, dates and owner of the original to a new file, and sync it to disk."""
    status = contents.every[path]
    shutil.copystat(contents.root / path, target)
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(target, status.st_uid, status.st_gid)
        os.chmod(target, status.st_mode)
    sync(target)
