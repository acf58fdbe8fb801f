"""pip for somebody else's environment: its own, or this one's where it has none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import ProviderError
from megabuild.prebuilt.install.environment import Environment

_QUIET = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
_LINES = 4


@dataclass(frozen=True, kw_only=True)
class Pip:
    """Calls pip.

    Parameters
    ----------
    environment:
        Where packages go.
    links:
        A folder with archives that are looked at beside what pip is configured to use, or None.
    """

    environment: Environment
    links: Path | None = None

    def run(
        self,
        command: str,
        *arguments: str,
        what: str,
        environ: Mapping[str, str] | None = None,
        seconds: float = 600.0,
    ) -> None:
        """Run a command of pip; never with its cache of built wheels, which knows nothing of how they were built.

        Parameters
        ----------
        command:
            ``install``, ``download``, ``uninstall``.
        what:
            What is being done, as the subject of a message.
        environ:
            Environment variables; None for this process's without those that lead Python elsewhere.
        seconds:
            Time after which it is given up.

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
                timeout=seconds,
                env=dict(clean(os.environ) if environ is None else environ),
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"{what}: no end after {seconds:.0f} s", _remedy()) from error
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


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that lead a Python to another one's modules."""
    kept = {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "PIP_DEFAULT_TIMEOUT": "10"}


def last_words(text: str) -> str:
    """Return what matters of a failed program's output: its errors, else its last lines, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [
        line for line in lines if not line.lower().startswith(("warning:", "[notice]", "note:", "hint:"))
    ]
    errors = [line for line in lines if line.lower().startswith(("error:", "fatal error:"))]
    return "; ".join((errors or lines)[-_LINES:]) or "it said nothing"


def _remedy() -> str:
    return "check the network and pip's configuration (pip config list), or name a folder of archives: --sdists FOLDER"
