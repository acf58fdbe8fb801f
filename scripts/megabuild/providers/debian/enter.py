"""Run a command inside a root folder, which stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from megabuild.errors import ProviderError


def words(root: Path) -> list[str]:
    """Words before a command that run it in `root`, read-only and without root's capabilities.

    Raises
    ------
    ProviderError
        Bubblewrap is not installed.
    """
    if not shutil.which("bwrap"):
        raise ProviderError(f"cannot enter {root}", "Install bubblewrap: sudo apt-get install bubblewrap")
    return ["bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
            "--die-with-parent", "--cap-drop", "ALL",
            "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", "--chdir", "/"]  # fmt: skip
