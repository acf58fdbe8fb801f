"""Plans a slimming: the files to remove and the libraries to shrink, step by step."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Runs
from cuda_code.elf_file import MAGIC
from gpu_tools.contents import Contents
from gpu_tools.file_lists import correct_list
from gpu_tools.slim.features import FEATURES, Feature, find_existing, find_unknown, is_nvidia_library
from gpu_tools.slim.library import LibrarySlimmed, Shrinking, slim_library
from gpu_tools.slim.steps import Candidate, SlimRequest, SlimStep, select_steps
from gpu_tools.subject_kind import SubjectKind
from groundwork.errors import UsageError
from groundwork.files import sync
from groundwork.progress import Notes
from groundwork.text import to_dict

#: Libraries with GPU code, by how a GPU runs it.
CodeFound = Mapping[Runs, list[str]]
#: Bytes; a file is replaced only if that saves at least one page.
_LEAST = 4096


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A step, the bytes it saves, and the number of files it removes or shrinks."""

    step: SlimStep
    saves: int
    files: int
    lost_for: tuple[str, ...] = ()  #: Packages that use the removed files, but work without.

    def to_json(self, contents: Contents) -> dict[str, Any]:
        """Return this as JSON values, with the features that ``contents`` loses."""
        return {
            "name": self.step.name,
            "saves": self.saves,
            "files": self.files,
            "loses": self.step.loses,
            "costs": [feature.name for feature in find_existing(self.step.costs, contents)],
        }


@dataclass(frozen=True, kw_only=True)
class SlimPlan:
    """The steps with their savings, and what they cost."""

    contents: Contents
    request: SlimRequest
    rows: tuple[Saving, ...]  #: Steps that save bytes or remove files.
    gone: frozenset[str]  #: Paths of files to remove.
    left_alone: Mapping[str, str]  #: Libraries that cannot be slimmed, with the reason.
    #: Per requested GPU (``sm_120``), the libraries with GPU code by the answer of :func:`cuda_archs.runs_on`.
    gpu_code: Mapping[str, CodeFound]
    #: Skipped steps, by name, with the feature or the packages that need the files.
    spared: Mapping[str, str]
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

    @property
    def lost_for(self) -> dict[str, list[str]]:
        """By step: packages that use the removed files, but work without."""
        return {row.step.name: list(row.lost_for) for row in self.rows if row.lost_for}

    @property
    def works(self) -> list[Feature]:
        """The packages' features that slimming leaves."""
        return [feature for feature in find_existing(FEATURES, self.contents) if feature not in self._broken]

    @property
    def lost(self) -> list[Feature]:
        """The packages' features that slimming breaks."""
        return [feature for feature in find_existing(FEATURES, self.contents) if feature in self._broken]

    @property
    def _broken(self) -> set[Feature]:
        return set(chain.from_iterable(row.step.costs for row in self.rows))

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "subject": self.contents.name,
            "kind": self.contents.kind,
            "gpus": list(self.request.gpus),
            "before": self.before,
            "after": self.after,
            "steps": [row.to_json(self.contents) for row in self.rows],
            "works": [feature.name for feature in self.works],
            "lost": [feature.name for feature in self.lost],
            **to_dict(self, "lost_for spared unknown gpu_code left_alone"),
            "links": len(self.contents.outside),
        }


def make_plan(contents: Contents, request: SlimRequest, note: Notes, into: Path | None = None) -> SlimPlan:
    """Compute the savings of each step; write the new files below ``into``, if given.

    Raises UsageError: ``into`` is given, and no library has code for a requested GPU.
    """
    note("finding unused files")
    selection = select_steps(contents, request)
    gone, rows = _pick_files(contents, selection.chosen)
    libraries = _slim_libraries(contents, request.gpus, selection.shrinkings, gone, note, into)
    gpu_code = {gpu: _sort_by_code(gpu, libraries) for gpu in request.gpus}
    smaller = {path: slimmed for path, slimmed in libraries.items() if slimmed.saved >= _LEAST}
    new: dict[str, Path] = {}
    if into is not None:
        _check_gpus(contents, gpu_code)
        new = {path: into / path for path in smaller}
        _write_lists(contents, gone, new, into)
    rows += _find_savings(selection.chosen, smaller.values())
    left_alone = {path: slimmed.trouble for path, slimmed in libraries.items() if slimmed.trouble}
    with_code = {contents.owners[path] for path, slimmed in libraries.items() if slimmed.code}
    return SlimPlan(
        contents=contents,
        request=request,
        rows=tuple(rows),
        gone=frozenset(gone),
        left_alone=left_alone,
        gpu_code=gpu_code,
        spared=selection.spared,
        unknown=find_unknown(contents, with_code),
        new=new,
    )


def _check_gpus(contents: Contents, gpu_code: Mapping[str, CodeFound]) -> None:
    """Raise UsageError if no library has code for one of the GPUs."""
    for gpu, found in gpu_code.items():
        if lacks_all_code(found):
            raise UsageError(
                f"{contents.name}: no library has code for GPU {cuda_archs.number(gpu) / 10:.1f}, only for other GPUs",
                "correct --arch-list (nvidia-smi --query-gpu=compute_cap --format=csv lists your GPUs), or omit it",
            )


def _sort_by_code(gpu: str, libraries: Mapping[str, LibrarySlimmed]) -> CodeFound:
    paths: dict[Runs, list[str]] = {runs: [] for runs in Runs}
    for path, library in libraries.items():
        if library.code:
            sm = [name for name in library.code if name.startswith("sm_")]
            ptx = [name for name in library.code if name.startswith("compute_")]
            paths[cuda_archs.runs_on(gpu, sm, ptx)].append(path)
    return paths


def lacks_all_code(found: CodeFound) -> bool:
    """Return whether all libraries with GPU code have code for other GPUs only."""
    return bool(found[Runs.MISSING]) and not (found[Runs.NATIVE] or found[Runs.PTX_ONLY])


def _pick_files(contents: Contents, chosen: Iterable[Candidate]) -> tuple[set[str], list[Saving]]:
    """Return the files to remove, and the savings of the steps that remove them."""
    gone: set[str] = set()
    rows = []
    for candidate in chosen:
        # removing a link to a file outside saves nothing
        picked = set(candidate.files) - gone - contents.outside.keys()
        pointing = picked
        while pointing:  # remove links together with their targets
            pointing = {path for path, to in contents.links.items() if to in pointing} - picked - gone
            picked |= pointing
        gone |= picked
        if picked:
            saves = sum(map(contents.size_of, picked))
            users = tuple(sorted(candidate.users))
            rows.append(Saving(step=candidate.step, saves=saves, files=len(picked), lost_for=users))
    return gone, rows


def _find_savings(chosen: Iterable[Candidate], smaller: Iterable[LibrarySlimmed]) -> Iterator[Saving]:
    """Yield the savings of the steps that shrink libraries."""
    libraries = list(smaller)
    for candidate in chosen:
        shrinking = candidate.step.shrinks
        if shrinking is None:
            continue
        saved = [library.saved_by(shrinking) for library in libraries]
        files = sum(map(bool, saved))
        if files:
            yield Saving(step=candidate.step, saves=sum(saved), files=files)


def _slim_libraries(
    contents: Contents,
    gpus: Sequence[str],
    shrinkings: Collection[Shrinking],
    gone: Collection[str],
    note: Notes,
    into: Path | None,
) -> dict[str, LibrarySlimmed]:
    """Slim the libraries, or forecast it if ``into`` is None; return the results by path."""
    if Shrinking.GPU_CODE not in shrinkings:
        gpus = ()
    symbols = Shrinking.SYMBOLS in shrinkings
    if not gpus and not symbols:
        return {}
    libraries: dict[str, LibrarySlimmed] = {}
    paths = list(_find_libraries(contents, gone))
    for count, path in enumerate(paths, 1):
        note(f"analysing libraries: {count} of {len(paths)} ({posixpath.basename(path)})")
        source = contents.root / path
        if into is None:
            libraries[path] = slim_library(source, None, gpus=gpus, symbols=symbols)
            continue
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        slimmed = slim_library(source, target, gpus=gpus, symbols=symbols)
        libraries[path] = slimmed
        if slimmed.saved >= _LEAST:
            _copy_status(contents, path, target)
        else:
            target.unlink(missing_ok=True)
    return libraries


def _find_libraries(contents: Contents, gone: Collection[str]) -> Iterator[str]:
    """Yield the libraries that may be slimmed.

    In packages, NVIDIA's are left out: its licence forbids passing on changed copies.
    """
    for path in sorted(contents.owners.keys() - gone):
        if contents.kind is not SubjectKind.ENVIRONMENT and is_nvidia_library(path):
            continue
        if contents.size_of(path) >= _LEAST and contents.begins_with(path, MAGIC):
            yield path


def _write_lists(contents: Contents, gone: Collection[str], new: dict[str, Path], into: Path) -> None:
    """Write corrected file lists, and add them to ``new``."""
    for listed in contents.lists:
        if listed.path not in contents.every:  # its folder is a link to another folder
            continue
        # a list has the hash of a link's target
        changed = {path: new[to] for path, to in contents.links.items() if to in new}
        changed |= new
        text = correct_list(contents.root / listed.path, listed.path, gone, changed)
        if text is not None:
            target = into / listed.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
            _copy_status(contents, listed.path, target)
            # the size may be unchanged: the date lets rsync and undo distinguish the new list from the original
            status = contents.every[listed.path]
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
            new[listed.path] = target


def _copy_status(contents: Contents, path: str, target: Path) -> None:
    """Copy mode, dates and owner of the original to a new file, and sync it to disk."""
    status = contents.every[path]
    shutil.copystat(contents.root / path, target)
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(target, status.st_uid, status.st_gid)
        os.chmod(target, status.st_mode)
    sync(target)
