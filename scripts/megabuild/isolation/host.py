"""No isolation: the build runs beside everything else on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import MegabuildError
from megabuild.isolation.base import Isolation, Mount, require_sources


@dataclass(frozen=True, kw_only=True)
class Host(Isolation):
    """Runs commands as they are, with the caller's environment underneath."""

    name: str = "host"

    def check(self) -> None:
        """Nothing to check."""

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the command behind a shell that changes to ``cwd``; mounts are where they are."""
        require_sources(mounts)
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the caller's environment with ``env`` on top."""
        return {**os.environ, **env}

    def path(self, target: str, source: Path) -> str:
        """Return the source: nothing is moved."""
        return str(source)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Return None: there is nothing between the worker and us."""
        return None
