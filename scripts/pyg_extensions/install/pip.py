"""pip for the user's environment: its own, or this one's if it has none."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import MegabuildError, OutOfSpaceError, PreflightError, ProviderError
from groundwork.process import run
from pyg_extensions.install.user_environment import UserEnvironment, clean

_QUIET = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
_LINES = 4
_SECONDS = 600.0
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]")
_REFUSED = re.compile(r"Permission denied|Read-only file system|\[Errno (?:13|30)\]")
_NO_ANSWER = re.compile(
    r"((?:connection broken by|The repository located at|40[13] Error|Could not fetch URL|Cannot determine).*)"
)


@dataclass(frozen=True, kw_only=True)
class Pip:
    """Calls pip."""

    environment: UserEnvironment  #: where packages go
    #: a folder with archives, used besides pip's configured indexes, or None
    links: Path | None = None
    #: for pip's temporary files, which a killed pip leaves behind; None for the usual one
    temporary: Path | None = None

    def run(self, command: str, *arguments: str, what: str) -> None:
        """Install or uninstall; never with pip's cache of built wheels, which knows nothing of how they were built.

        ``what`` is the subject of a message.

        Raises OutOfSpaceError: The disk is full.
        Raises PreflightError: A folder cannot be written to.
        Raises ProviderError: It failed otherwise; the message has pip's own words.
        """
        links = ("--find-links", str(self.links)) if self.links and command != "uninstall" else ()
        argv = [*self._program(), command, *_QUIET, "--no-cache-dir", *links, *arguments]
        environ = clean(os.environ) | ({"TMPDIR": str(self.temporary)} if self.temporary else {})
        done = run(argv, timeout=_SECONDS, environ=environ)
        if done.returncode != 0:
            raise self._failure(what, done.stdout + done.stderr)

    def _failure(self, what: str, text: str) -> MegabuildError:
        message, site = f"{what}: {extract_errors(text)}", self.environment.site
        if _FULL.search(text):
            return OutOfSpaceError(message, f"free some space in {site} and {self.temporary or 'TMPDIR'}")
        if _REFUSED.search(text):
            return PreflightError(message, f"check the permissions of {site}")
        return ProviderError(
            message,
            "check the network and pip's configuration (pip config list), or name a folder of archives: "
            "--pyg-sources FOLDER",
        )

    def _program(self) -> Sequence[str]:
        if "pip" in self.environment.distributions:
            return (str(self.environment.interpreter), "-m", "pip")
        if importlib.util.find_spec("pip") is not None:
            return (sys.executable, "-m", "pip", "--python", str(self.environment.interpreter))
        raise ProviderError(
            f"{self.environment.prefix} has no pip",
            f"install it: {self.environment.interpreter} -m ensurepip",
        )


def extract_errors(text: str) -> str:
    """Return what matters of a failed program's output, in one line: its errors, else its last lines.

    Why an index gave nothing is in one of pip's warnings.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((found[1] for line in reversed(lines) if (found := _NO_ANSWER.search(line))), "")
    lines = [
        line for line in lines if not line.lower().startswith(("warning:", "[notice]", "note:", "hint:"))
    ]
    errors = [line for line in lines if line.lower().startswith(("error:", "fatal error:"))]
    return "; ".join([*filter(None, [reason]), *(errors or lines)[-_LINES:]]) or "it printed nothing"
