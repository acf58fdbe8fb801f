"""pip for somebody else's environment: its own, or this one's where it has none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import ProviderError
from megabuild.extensions.install.user_environment import UserEnvironment, clean

_QUIET = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
_LINES = 4
_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Pip:
    """Calls pip."""

    environment: UserEnvironment  #: where packages go
    #: a folder with archives that are looked at beside what pip is configured to use, or None
    links: Path | None = None
    #: for pip's temporary files, of which a pip that is killed leaves some; None for the usual one
    temporary: Path | None = None

    def run(
        self,
        command: str,
        *arguments: str,
        what: str,
    ) -> None:
        """Run a command of pip; never with its cache of built wheels, which knows nothing of how they were built.

        Parameters
        ----------
        command:
            ``install`` or ``uninstall``.
        what:
            What is being done, as the subject of a message.

        Raises
        ------
        ProviderError
            It failed; the message has pip's own words.
        """
        links = ("--find-links", str(self.links)) if self.links and command != "uninstall" else ()
        argv = [*self._program(), command, *_QUIET, "--no-cache-dir", *links, *arguments]
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                env=clean(os.environ) | ({"TMPDIR": str(self.temporary)} if self.temporary else {}),
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"{what}: no end after {_SECONDS:.0f} s", _remedy()) from error
        if done.returncode != 0:
            raise ProviderError(f"{what}: {last_words(done.stdout + done.stderr)}", _remedy())

    def _program(self) -> Sequence[str]:
        if "pip" in self.environment.distributions:
            return (str(self.environment.python), "-m", "pip")
        if importlib.util.find_spec("pip") is not None:
            return (sys.executable, "-m", "pip", "--python", str(self.environment.python))
        raise ProviderError(
            f"{self.environment.prefix} has no pip", f"put it there: {self.environment.python} -m ensurepip"
        )


def last_words(text: str) -> str:
    """Return what matters of a failed program's output: its errors, else its last lines, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [
        line for line in lines if not line.lower().startswith(("warning:", "[notice]", "note:", "hint:"))
    ]
    errors = [line for line in lines if line.lower().startswith(("error:", "fatal error:"))]
    return "; ".join((errors or lines)[-_LINES:]) or "it said nothing"


def _remedy() -> str:
    where = "name a folder of archives: --pyg-sources FOLDER"
    return f"check the network and pip's configuration (pip config list), or {where}"
