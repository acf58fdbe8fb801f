"""What a slimming takes away, step by step."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from gpu_tools.slim.fat_binary import code_for
from gpu_tools.slim.features import FEATURES, Feature, find_unknown
from gpu_tools.slim.library import LibrarySlimmed, slim_library
from gpu_tools.slim.listing import ELF, Contents, ListedFile, Note
from gpu_tools.slim.records import correct_list
from gpu_tools.slim.steps import SlimRequest, SlimStep, select_steps
from groundwork.errors import UsageError
from groundwork.files import sync
from groundwork.text import counted

#: Saving less than a page of a file is not worth a new one.
_LEAST = 4096


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A step: the bytes it gives, the files it removes or makes smaller, and of which packages it removes some."""

    step: SlimStep
    saves: int
    files: int
    packages: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class GpuSupport:
    """The libraries with GPU code by what they have for a GPU (``sm_120``): machine code, PTX only, neither."""

    name: str
    own: tuple[str, ...]
    ptx: tuple[str, ...]
    none: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SlimPlan:
    """What goes and what stays."""

    contents: Contents
    request: SlimRequest
    rows: tuple[Saving, ...]  #: Of the steps, those that give something.
    gone: frozenset[str]  #: Files to remove.
    slimmed: Mapping[str, LibrarySlimmed]  #: Libraries that become smaller.
    left_alone: Mapping[str, str]  #: Libraries that are not understood, with the reason.
    gpus: tuple[GpuSupport, ...]  #: What there is for each GPU that was named.
    #: Steps that were left out, by name, with the feature or the packages that need what they take.
    spared: Mapping[str, str]
    lost_for: Mapping[str, tuple[str, ...]]  #: By step: packages that use what it takes, and go on without.
    unknown: tuple[str, ...]  #: Packages for GPUs of which nothing here knows what they need as they run.
    #: For files that change (libraries, lists) where their new content lies; empty while it is only a plan.
    new: Mapping[str, Path]

    @property
    def before(self) -> int:
        """Bytes of all files."""
        return self.contents.size

    @property
    def after(self) -> int:
        """Bytes that stay."""
        return self.before - sum(row.saves for row in self.rows)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What packages like these can do."""
        packages = frozenset(self.contents.owners.values())
        return tuple(feature for feature in FEATURES if feature.is_in(packages))

    @property
    def lost(self) -> tuple[Feature, ...]:
        """What does not work any more."""
        return tuple(
            feature for feature in self.features if any(feature in row.step.costs for row in self.rows)
        )

    @property
    def limited(self) -> tuple[Feature, ...]:
        """What works in part only."""
        every = {feature for row in self.rows for feature in row.step.limits}
        return tuple(feature for feature in self.features if feature in every and feature not in self.lost)

    @property
    def works(self) -> tuple[Feature, ...]:
        """What still works, if it did before."""
        return tuple(
            feature for feature in self.features if feature not in self.lost and feature not in self.limited
        )

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "subject": str(self.contents.name),
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
                    "costs": [feature.name for feature in row.step.costs if feature in self.features],
                    "limits": [feature.name for feature in row.step.limits if feature in self.features],
                }
                for row in self.rows
            ],
            "works": [feature.name for feature in self.works],
            "limited": [feature.name for feature in self.limited],
            "lost": [feature.name for feature in self.lost],
            "lost_for": {step: list(packages) for step, packages in self.lost_for.items()},
            "spared": dict(self.spared),
            "unknown": list(self.unknown),
            "gpu_code": [
                {"gpu": gpu.name, "own": len(gpu.own), "ptx": len(gpu.ptx), "none": list(gpu.none)}
                for gpu in self.gpus
            ],
            "links": len(self.contents.outside),
            "left_alone": [{"path": path, "reason": why} for path, why in self.left_alone.items()],
        }


def make_plan(contents: Contents, request: SlimRequest, note: Note, into: Path | None = None) -> SlimPlan:
    """Find out what each step gives; the new content of files that change is written below ``into``, if that is given.

    Raises UsageError: It is to be written, and nothing has code for a GPU that was named.
    """
    steps, spared = select_steps(request, contents)
    note("looking for what nothing needs")
    gone, rows = _pick_files(contents, request, steps)
    libraries = _slim_libraries(contents, request, steps, gone, note, into)
    slimmed = {
        path: library for path, library in libraries.items() if library.before - library.after >= _LEAST
    }
    gpus = tuple(_judge_gpu(gpu, libraries) for gpu in request.gpus)
    if into is not None:
        _refuse_without_code(contents, gpus)
    for step in steps:
        if step.picks is None:
            saved = [
                library.gpu_code if step.name == "gpu-code" else library.symbols
                for library in slimmed.values()
            ]
            rows.append(Saving(step=step, saves=sum(saved), files=sum(map(bool, saved))))
    new: dict[str, Path] = {}
    if into is not None:
        new = {path: into / path for path in slimmed}
        _write_lists(contents, gone, new, into)
    return SlimPlan(
        contents=contents,
        request=request,
        rows=tuple(row for row in rows if row.saves or row.files),
        gone=frozenset(gone),
        slimmed=slimmed,
        left_alone={
            path: library.how.partition(": ")[2]
            for path, library in libraries.items()
            if library.how.startswith("left alone")
        },
        gpus=gpus,
        spared=spared,
        lost_for={
            row.step.name: users.trying
            for row in rows
            if (users := row.step.users_in(contents, request)).trying
        },
        unknown=find_unknown(
            contents, {contents.owners[path] for path, library in libraries.items() if library.code}
        ),
        new=new,
    )


def _judge_gpu(gpu: str, libraries: Mapping[str, LibrarySlimmed]) -> GpuSupport:
    paths: dict[str, list[str]] = {"own": [], "ptx": [], "none": []}
    for path, library in libraries.items():
        if library.code:
            paths[code_for(gpu, library.code)].append(path)
    return GpuSupport(name=gpu, **{kind: tuple(found) for kind, found in paths.items()})


def _refuse_without_code(contents: Contents, gpus: Iterable[GpuSupport]) -> None:
    for gpu in gpus:
        if gpu.none and not (gpu.own or gpu.ptx):
            number = cuda_archs.number(gpu.name)
            raise UsageError(
                f"nothing in {contents.name} has code for a GPU of {number // 10}.{number % 10}: "
                f"{counted(len(gpu.none), 'file')} with code for others",
                "correct --arch-list (nvidia-smi --query-gpu=compute_cap --format=csv tells), or leave it out",
            )


def _pick_files(
    contents: Contents, request: SlimRequest, steps: list[SlimStep]
) -> tuple[set[str], list[Saving]]:
    gone: set[str] = set()
    rows = []
    for step in steps:
        # to remove a link to what lies elsewhere gives nothing
        picked = set(step.picks(contents, request)) - gone - contents.outside.keys() if step.picks else set()
        pointing = picked
        while pointing:  # a link goes with what it points to
            pointing = {path for path, to in contents.links.items() if to in pointing} - picked - gone
            picked |= pointing
        gone |= picked
        if picked:
            saved = sum(contents.every[path].size for path in picked)
            packages = frozenset(contents.owners[path] for path in picked)
            rows.append(Saving(step=step, saves=saved, files=len(picked), packages=packages))
    return gone, rows


def _slim_libraries(
    contents: Contents,
    request: SlimRequest,
    steps: list[SlimStep],
    gone: set[str],
    note: Note,
    into: Path | None,
) -> dict[str, LibrarySlimmed]:
    names = {step.name for step in steps}
    gpus = request.gpus if "gpu-code" in names else ()
    if not gpus and "symbols" not in names:
        return {}
    libraries: dict[str, LibrarySlimmed] = {}
    paths = sorted(
        path
        for path in contents.owners
        if path not in gone and contents.every[path].size >= _LEAST and contents.every[path].begins_with(ELF)
    )
    for count, path in enumerate(paths, 1):
        note(f"libraries {count}/{len(paths)}: {posixpath.basename(path)}")
        entry = contents.every[path]
        target = None if into is None else into / path
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
        library = libraries[path] = slim_library(
            entry.source, target, gpus=gpus, symbols="symbols" in names, keep_lto=request.lto_ir
        )
        if target and library.before - library.after >= _LEAST:
            _copy_status(entry, target)
        elif target:
            target.unlink(missing_ok=True)
    return libraries


def _write_lists(contents: Contents, gone: set[str], new: dict[str, Path], into: Path) -> None:
    for record in contents.records:
        entry = contents.every.get(record.path)
        if entry is None:  # in a folder that is a link to another place
            continue
        # lists tell of a link what its target holds
        linked = {path: new[to] for path, to in contents.links.items() if to in new}
        text = correct_list(entry.source, record.path, gone, {**linked, **new})
        if text is not None:
            target = into / record.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
            _copy_status(entry, target)
            # of the same size at times: by date, too, rsync and undoing tell it from the original
            os.utime(target, ns=(entry.status.st_atime_ns, entry.status.st_mtime_ns + 10**9))
            new[record.path] = target


def _copy_status(entry: ListedFile, target: Path) -> None:
    """Give a new file mode, dates and owner of the original, and see that it is on the disk."""
    shutil.copystat(entry.source, target)
    if (entry.status.st_uid, entry.status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(target, entry.status.st_uid, entry.status.st_gid)
        os.chmod(target, entry.status.st_mode)
    sync(target)
