"""The date that packages and wheels carry: the recipe's last change, so that the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from groundwork import process
from groundwork.errors import PreflightError
from groundwork.files import OLDEST_IN_ZIP

VARIABLE = "SOURCE_DATE_EPOCH"
_SECONDS = 60.0
#: The last date that a zip file can hold, in seconds since 1970.
LATEST = int(datetime(2107, 12, 31, 23, 59, 59, tzinfo=timezone.utc).timestamp())
_PATHS = ("recipe", "conda_build_config.yaml")
_SET_IT = f"set {VARIABLE} to make the packages that others make"


@dataclass(frozen=True, kw_only=True)
class SourceDate:
    """A date, and its origin if it is neither SOURCE_DATE_EPOCH nor the recipe's last change."""

    seconds: int  #: since 1970
    note: str = ""


def source_date(root: Path, environ: Mapping[str, str]) -> SourceDate:
    """Return the date for what is made from a checkout.

    That is ``SOURCE_DATE_EPOCH`` where it is set (https://reproducible-builds.org/specs/source-date-epoch), else the
    last commit that changed the recipe or the matrix, else 1980.

    Raises PreflightError: ``SOURCE_DATE_EPOCH`` is not a date that a package can have.
    """
    value = environ.get(VARIABLE, "")
    if value:
        return _from_variable(value)
    folder = next((place for place in (root, *root.absolute().parents) if (place / ".git").exists()), None)
    if folder is None:
        return SourceDate(
            seconds=OLDEST_IN_ZIP,
            note=f"packages carry the date 1980-01-01: {root} is not a git checkout, so the recipe's last change "
            f"is unknown; {_SET_IT}",
        )
    # Explicit, so that git neither checks the checkout's owner nor follows a hook's GIT_DIR.
    git = ["git", f"--git-dir={folder / '.git'}", f"--work-tree={folder}", "-c", "log.showSignature=false"]
    git += [
        "-c",
        "core.fsmonitor=false",
        "-c",
        "protocol.allow=never",
    ]  # what another's checkout has set runs nothing
    fields = _git([*git, "log", "-1", "--format=%ct %H", "--", *_PATHS], root, environ).split()
    if len(fields) != 2:
        return SourceDate(
            seconds=OLDEST_IN_ZIP,
            note=f"packages carry the date 1980-01-01: git does not say when the recipe in {root} "
            f"last changed; {_SET_IT}",
        )
    seconds, commit = max(int(fields[0]), OLDEST_IN_ZIP), fields[1]
    if commit in _shallow_commits(git, root, environ):
        day = datetime.fromtimestamp(seconds, timezone.utc).date()
        return SourceDate(
            seconds=seconds,
            note=f"packages carry the date {day}, on which this shallow clone begins: the recipe may have last changed "
            f"before; fetch the history (git fetch --unshallow), or {_SET_IT}",
        )
    return SourceDate(seconds=seconds)


def _from_variable(value: str) -> SourceDate:
    if not (value.isascii() and value.isdecimal()) or int(value) > LATEST:
        raise PreflightError(
            f"{VARIABLE} is {value!r}, not a date that a package can have: whole seconds since 1970, at most {LATEST} "
            "(the end of 2107)",
            "correct it, or unset it: packages then carry the date of the recipe's last change",
        )
    if int(value) < OLDEST_IN_ZIP:
        note = f"packages carry the date 1980-01-01, the first that a package can have: {VARIABLE} is {value}"
        return SourceDate(seconds=OLDEST_IN_ZIP, note=note)
    return SourceDate(seconds=int(value))


def _shallow_commits(git: list[str], root: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the oldest commits of a shallow clone; none of a whole one."""
    path = _git([*git, "rev-parse", "--git-path", "shallow"], root, environ).strip()
    try:
        return (root / path).read_text().split()
    except OSError:
        return []


def _git(command: list[str], root: Path, environ: Mapping[str, str]) -> str:
    """Return git's output; nothing where it fails, or is not installed."""
    own = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    return process.run(command, timeout=_SECONDS, environ=own, folder=root).stdout
