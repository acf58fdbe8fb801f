"""The date that packages and wheels carry: the recipe's last change, so that the same inputs give the same bytes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from groundwork.errors import PreflightError
from groundwork.files import OLDEST_IN_ZIP

VARIABLE = "SOURCE_DATE_EPOCH"
#: The last date that a zip file can hold, in seconds since 1970.
LATEST = int(datetime(2107, 12, 31, 23, 59, 59, tzinfo=timezone.utc).timestamp())
_PATHS = ("recipe", "conda_build_config.yaml")
_SET_IT = f"set {VARIABLE} to make the packages that others make"


@dataclass(frozen=True, kw_only=True)
class SourceDate:
    """A date, and where it comes from if it is neither what was asked for nor the recipe's last change."""

    seconds: int  #: since 1970
    note: str = ""


def source_date(root: Path, environ: Mapping[str, str]) -> SourceDate:
    """Return the date for what is made from a checkout.

    That is ``SOURCE_DATE_EPOCH`` where it is set (https://reproducible-builds.org/specs/source-date-epoch), else the
    last commit that changed the recipe or the matrix, else 1980.

    Raises
    ------
    PreflightError
        ``SOURCE_DATE_EPOCH`` is not a date that a package can have.
    """
    told = environ.get(VARIABLE, "")
    if told:
        return _asked_for(told)
    folder = next((place for place in (root, *root.absolute().parents) if (place / ".git").exists()), None)
    if folder is None:
        return SourceDate(
            seconds=OLDEST_IN_ZIP,
            note=f"packages carry the date 1980-01-01: {root} is not a git checkout, which would tell when the recipe "
            f"last changed; {_SET_IT}",
        )
    # Named, so that git neither asks who owns the checkout nor looks where a hook's GIT_DIR points.
    git = ["git", f"--git-dir={folder / '.git'}", f"--work-tree={folder}", "-c", "log.showSignature=false"]
    said = _said([*git, "log", "-1", "--format=%ct %H", "--", *_PATHS], root, environ).split()
    if len(said) != 2:
        return SourceDate(
            seconds=OLDEST_IN_ZIP,
            note=f"packages carry the date 1980-01-01: git does not say when the recipe in {root} "
            f"last changed; {_SET_IT}",
        )
    seconds, commit = max(int(said[0]), OLDEST_IN_ZIP), said[1]
    if commit in _where_history_ends(git, root, environ):
        day = datetime.fromtimestamp(seconds, timezone.utc).date()
        return SourceDate(
            seconds=seconds,
            note=f"packages carry the date {day}, on which this shallow clone begins: the recipe may have last changed "
            f"before; fetch the history (git fetch --unshallow), or {_SET_IT}",
        )
    return SourceDate(seconds=seconds)


def _asked_for(told: str) -> SourceDate:
    if not (told.isascii() and told.isdecimal()) or int(told) > LATEST:
        raise PreflightError(
            f"{VARIABLE} is {told!r}, not a date that a package can have: whole seconds since 1970, at most {LATEST} "
            "(the end of 2107)",
            "correct it, or unset it: packages then carry the date of the recipe's last change",
        )
    if int(told) < OLDEST_IN_ZIP:
        note = f"packages carry the date 1980-01-01, the first that a package can have: {VARIABLE} is {told}"
        return SourceDate(seconds=OLDEST_IN_ZIP, note=note)
    return SourceDate(seconds=int(told))


def _where_history_ends(git: list[str], root: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the oldest commits of a shallow clone; none of a whole one."""
    path = _said([*git, "rev-parse", "--git-path", "shallow"], root, environ).strip()
    try:
        return (root / path).read_text().split()
    except OSError:
        return []


def _said(command: list[str], root: Path, environ: Mapping[str, str]) -> str:
    """Return what git prints; nothing where it fails, or is not installed."""
    own = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            command, cwd=root, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return ""
