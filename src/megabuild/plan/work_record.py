"""The driver's own record of the builds that wrote a config's work: isolated ones, or builds on the host."""

from __future__ import annotations

from pathlib import Path

from groundwork import files
from megabuild.isolation.base import Isolation

_NAME = "isolation"
_ON_HOST = b"host"
_ISOLATED = b"isolated"


def is_foreign(state: Path, isolation: Isolation) -> bool:
    """Return whether a build on the host would run programs that isolated builds left in ``state``.

    Work without a record counts as isolated. An isolated build may use the host's work.
    """
    return isolation.is_host and files.read_untrusted(state / _NAME) != _ON_HOST


def write_record(state: Path, isolation: Isolation) -> None:
    """Note that builds in this isolation write the work from now on."""
    files.write(state / _NAME, _ON_HOST if isolation.is_host else _ISOLATED)
