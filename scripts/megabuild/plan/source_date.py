"""The date that packages and wheels carry: the recipe's last change, so that the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from groundwork import process
from groundwork.errors import PreflightError
from groundwork.files import OLDEST_IN_ZIP

VARIABLE = "SOURCE_DATE_EPOCH"
#: The last date that a zip file can hold, the end of 2107, in seconds since 1970.
LATEST = 4354819199
_SECONDS = 60.0
_PATHS = ("recipe", "conda_build_config.yaml")
_GIT = ("git", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false")
#: No setting of a repository overrides these: a commit that is missing there is not fetched, by whatever program.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, kw_only=True)
class SourceDate:
    """A date, and why it may not be that of the recipe's last change."""

    seconds: int  #: since 1970
    note: str = ""


def source_date(root: Path, environ: Mapping[str, str]) -> SourceDate:
    """Return the date for what is made from a checkout.

    That is ``SOURCE_DATE_EPOCH`` where it is set (https://reproducible-builds.org/specs/source-date-epoch), else the
    last commit that changed the recipe or the matrix, else 1980: also where git refuses a checkout of another user.

    Raises PreflightError: ``SOURCE_DATE_EPOCH`` is not a date that a package can have.
    """
    if value := environ.get(VARIABLE, ""):
        if not (value.isascii() and value.isdecimal()) or int(value) > LATEST:
            raise PreflightError(
                f"{VARIABLE} is {value!r}, not a date that a package can have: seconds since 1970, at most {LATEST}",
                "correct it, or unset it: packages then carry the date of the recipe's last change",
            )
        return SourceDate(seconds=max(int(value), OLDEST_IN_ZIP))
    asked = _run_git(root, environ, "log", "-1", "--format=%ct %P", "--", *_PATHS)
    date, *parents = asked.stdout.split() or [""]
    if not date:
        reason = next(iter(asked.stderr.strip().splitlines()), "no commit has changed it")
        note = f"packages carry the date 1980-01-01: git on the recipe in {root}: {reason}; set {VARIABLE}"
        return SourceDate(seconds=OLDEST_IN_ZIP, note=note)
    shallow = not parents and "true" in _run_git(root, environ, "rev-parse", "--is-shallow-repository").stdout
    note = f"packages carry the date of this shallow clone's first commit: git fetch --unshallow, or set {VARIABLE}"
    return SourceDate(seconds=max(int(date), OLDEST_IN_ZIP), note=note if shallow else "")


def _run_git(root: Path, environ: Mapping[str, str], *arguments: str) -> CompletedProcess[str]:
    own = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    return process.run([*_GIT, *arguments], timeout=_SECONDS, environ=own | _NO_FETCH, folder=root)
