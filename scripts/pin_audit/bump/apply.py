"""Write what is certain of a bump, and give the files back byte for byte.

Before the first file is written, all of them lie in a folder of the cache with a record of what they will be. So a run
that is killed can be taken back, and a file that somebody changed afterwards is recognized and left alone.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError, MegabuildError, OutOfSpaceError, UsageError, of_system
from megabuild.configs.config import RECIPES
from megabuild.configs.matrix import MATRIX_FILE, write
from pin_audit.bump.changes import Bump, Edit, applied
from pin_audit.bump.places import parsed

_RECORD = "record.json"


class _File(msgspec.Struct):
    """A file that was written; ``before`` is empty where there was none."""

    path: str
    before: str  #: sha256
    after: str  #: sha256


class _Record(msgspec.Struct):
    """One run of ``--fix``."""

    root: str
    package: str
    old: str
    new: str
    files: list[_File]


def fix(bump: Bump, root: Path, cache: Path) -> tuple[str, ...]:
    """Write what is certain; returns the files' names, none where nothing is certain.

    Raises MegabuildError: A file is not what was read, or would no longer be read; then nothing is written.
    """
    texts = {name: _edited(root, name, edits) for name, edits in _by_file(bump.edits()).items()}
    if MATRIX_FILE in texts:
        texts |= _generated(root, texts[MATRIX_FILE])
    if not texts:
        return ()
    written = []
    records = _records(root, cache)
    folder = cache / f"{len(records) + 1:04}"
    try:
        files.writable(folder, "choose another folder with MEGABUILD_CACHE")
        for number, (name, content) in enumerate(texts.items()):
            old = _content(root, name)
            if old is not None:
                files.write(folder / str(number), old)
            written.append(_File(path=name, before=_sha256(old), after=_sha256(content)))
        record = _Record(root=str(root), package=bump.package, old=bump.old, new=bump.new, files=written)
        files.write(folder / _RECORD, msgspec.json.format(msgspec.json.encode(record)))
        for name, content in texts.items():
            _write(root / name, content)
    except OSError as error:
        raise _unwritable(error, "the files that were written are given back by --back") from error
    return tuple(texts)


def back(root: Path, cache: Path) -> tuple[_Record, tuple[str, ...]]:
    """Give back what the last `fix` wrote; returns its record and the names of files.

    Raises UsageError: Nothing of the kind was written.
    Raises IntegrityError: A file was changed since; then none is touched.
    """
    folders = _records(root, cache)
    if not folders:
        raise UsageError(f"--bump --fix has written nothing in {root}", "name the repository: --root DIR")
    folder = folders[-1]
    try:
        record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=_Record)
        now = {one.path: _sha256(_content(root, one.path)) for one in record.files}
        changed = [one.path for one in record.files if now[one.path] not in (one.before, one.after)]
        if changed:
            raise IntegrityError(
                f"changed since --fix wrote them: {', '.join(changed)}; nothing was given back",
                f"what they were lies in {folder}; or take your changes back first",
            )
        kept = [
            (folder / str(number)).read_bytes() if one.before else None
            for number, one in enumerate(record.files)
        ]
        broken = [one.path for one, old in zip(record.files, kept, strict=True) if _sha256(old) != one.before]
        if broken:
            raise IntegrityError(f"{folder} no longer has what {', '.join(broken)} was", "take it from git")
        for one, old in zip(record.files, kept, strict=True):
            if now[one.path] == one.before:
                continue
            if old is None:
                (root / one.path).unlink()
            else:
                _write(root / one.path, old)
    except (OSError, msgspec.MsgspecError) as error:
        raise _unwritable(error, "run it again: what is given back already stays so") from error
    shutil.rmtree(folder)
    return record, tuple(one.path for one in record.files)


def folder_of(root: Path, cache: Path) -> Path:
    """Return where the records about a repository lie."""
    return cache / "bump" / hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]


def _by_file(edits: Iterable[Edit]) -> Mapping[str, list[Edit]]:
    found: dict[str, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.file, []).append(edit)
    return found


def _edited(root: Path, name: str, edits: list[Edit]) -> bytes:
    """Return a file with edits made, which YAML still reads if it did before."""
    try:
        text = (_content(root, name) or b"").decode("utf-8")
        new = applied(text, edits)
    except ValueError as error:
        raise IntegrityError(f"{name} is not as it was read: {error}", "run it again") from error
    if not name.endswith("meta.yaml"):
        parsed(new, name)
    return new.encode()


def _generated(root: Path, matrix: bytes) -> dict[str, bytes]:
    """Return what is generated from a matrix and is other now, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / MATRIX_FILE).write_bytes(matrix)
        stand_in = folder / RECIPES / "recipe.yaml"
        stand_in.parent.mkdir()
        stand_in.touch()
        write(folder)
        made = (path for path in folder.rglob("*") if path.is_file() and path != stand_in)
        found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(made)}
    return {
        place: text for place, text in found.items() if place != MATRIX_FILE and _content(root, place) != text
    }


def _content(root: Path, name: str) -> bytes | None:
    """Return a file's content, or None where there is none; raises IntegrityError for a link."""
    try:
        with files.open_regular(root / name, below=root) as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode & 0o7777 if path.exists() else None
    files.write(path, content, mode=mode)


def _sha256(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _records(root: Path, cache: Path) -> list[Path]:
    """Return the folders with records, the last one last."""
    return sorted(path.parent for path in cache.glob(f"[0-9]*/{_RECORD}"))


def _unwritable(error: Exception, remedy: str) -> MegabuildError:
    known = of_system(error) if isinstance(error, OSError) else None
    if isinstance(known, OutOfSpaceError):
        return known
    return IntegrityError(f"a file cannot be read or written: {error}", remedy)
