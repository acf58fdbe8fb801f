"""The date of files in packages and wheels: the recipe's last change, so that equal inputs give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from groundwork import process
from groundwork.errors import PreflightError
from groundwork.files import OLDEST_IN_ZIP

VARIABLE = "SOURCE_DATE_EPOCH"
#: The last date that a zip file can hold, the end of 2107, in seconds since 1970.
LATEST = 4354819199
_SECONDS = 60.0
_LAST_CHANGE = (
    *("git", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false"),
    *("log", "-1", "--format=%ct", "--", "recipe", "conda_build_config.yaml"),
)
#: Git must not fetch a commit that a clone lacks; no setting of a repository overrides these variables.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


def source_date(root: Path, environ: Mapping[str, str]) -> int:
    """Return the date of packages made from a checkout, in seconds since 1970.

    It is ``SOURCE_DATE_EPOCH`` if set (https://reproducible-builds.org/specs/source-date-epoch), else the date of the
    last commit that changed the recipe or the matrix, else 1980, for example if git refuses another user's checkout.

    Raises PreflightError: ``SOURCE_DATE_EPOCH`` is not a number from 0 to `LATEST`.
    """
    date = environ.get(VARIABLE, "")
    if date and (not (date.isascii() and date.isdecimal()) or int(date) > LATEST):
        raise PreflightError(
            f"{VARIABLE}={date!r}: not a number of seconds since 1970, at most {LATEST}",
            f"unset {VARIABLE}, to use the date of the recipe's last change",
        )
    if not date:
        date = _last_change(root, environ)
    return max(int(date or 0), OLDEST_IN_ZIP)


def _last_change(root: Path, environ: Mapping[str, str]) -> str:
    """Return the date of the last commit that changed the recipe or the matrix, or an empty string."""
    own = dict(_NO_FETCH)
    for name, value in environ.items():
        if not name.startswith("GIT_"):
            own[name] = value
    return process.run(_LAST_CHANGE, timeout=_SECONDS, environ=own, folder=root).stdout.strip()
