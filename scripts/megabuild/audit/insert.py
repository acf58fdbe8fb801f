"""Puts text between two markers of a file, and touches nothing else of it."""

from __future__ import annotations

from pathlib import Path

from megabuild.audit.report.jsonfile import write
from megabuild.errors import UsageError

BEGIN = "<!-- audit:begin -->"
END = "<!-- audit:end -->"
_REMEDY = f"put a line with {BEGIN} and one with {END} where the table is to stand"


def insert(path: Path, text: str) -> bool:
    """Replace what stands between the markers; the file is written whole or not at all.

    Parameters
    ----------
    path:
        A file in UTF-8 with each marker once, alone on its line.
    text:
        What is to stand there.

    Returns
    -------
    Whether that changed the file.

    Raises
    ------
    UsageError
        The file cannot be read, or its markers are not as they should be.
    """
    content = _content(path)
    before, _, after = _parts(path, content)
    end_of_line = "\r\n" if "\r\n" in before else "\n"
    inserted = text.strip("\n").replace("\n", end_of_line)
    new = end_of_line.join([before, inserted, "", after])
    if new == content:
        return False
    write(new, path)
    return True


def inserted(path: Path) -> str:
    """Return what stands between the markers, without the empty lines around it.

    Raises
    ------
    UsageError
        As for `insert`.
    """
    return _parts(path, _content(path))[1].replace("\r\n", "\n").strip("\n")


def _content(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}", "name a file with the markers"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", "name a file with the markers") from error


def _parts(path: Path, content: str) -> tuple[str, str, str]:
    """Return what comes up to the first marker and with it, what stands between them, and the rest."""
    lines = content.splitlines(keepends=True)
    begins = [number for number, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [number for number, line in enumerate(lines) if line.strip() == END]
    for marker, found in ((BEGIN, begins), (END, ends)):
        if len(found) != 1:
            how_many = "is not there" if not found else f"is there {len(found)} times"
            raise UsageError(f"{path}: the marker {marker} {how_many}", _REMEDY)
    first, last = begins[0], ends[0]
    if last < first:
        raise UsageError(f"{path}: {END} stands before {BEGIN}", _REMEDY)
    return "".join(lines[: first + 1]), "".join(lines[first + 1 : last]), "".join(lines[last:])
