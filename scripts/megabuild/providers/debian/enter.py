"""Run a command inside a root folder, which stays as it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from megabuild.errors import ProviderError


def words(root: Path) -> list[str]:
    """Words before a command that run it in `root`: bubblewrap (read-only), else chroot.

    Raises
    ------
    ProviderError
        Neither is possible for this user.
    """
    if shutil.which("bwrap"):
        return ["bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
                "--die-with-parent", "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", "--chdir", "/"]  # fmt: skip
    if os.geteuid() == 0 and shutil.which("chroot"):
        return ["chroot", str(root), "env", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"]
    raise ProviderError(f"cannot enter {root}", "Install bubblewrap: sudo apt-get install bubblewrap")
