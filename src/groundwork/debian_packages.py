"""Names the command with which this user can install Debian packages. Standard library only."""

from __future__ import annotations

import os
import shutil


def install_command(*packages: str, options: str = "") -> str:
    """Return ``apt-get install PACKAGES``, with sudo or su unless this user is root."""
    words = " ".join(filter(None, ("apt-get install", options, *packages)))
    if os.geteuid() == 0:
        return words
    if shutil.which("sudo"):
        return f"sudo {words}"
    return f"su -c '{words}'"
