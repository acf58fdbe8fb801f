"""Finds out whether Linux runs the programs of another processor here: by an emulator registered in binfmt_misc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FOLDER = Path("/proc/sys/fs/binfmt_misc")
#: Numbers of processors in the head of an ELF file (e_machine), by conda's platform.
_MACHINES = {"linux-64": 62, "linux-aarch64": 183}
_HEAD = b"\x7fELF\x02\x01"  # 64 bits, little endian
#: Bytes of the head up to the processor.
_LENGTH = 20
#: The kernel opened the emulator when it was registered, so that a root folder or container need not have it.
_FIXED = "F"
REMEDY = "run: sudo apt-get install qemu-user-static"


def is_registered(platform: str, *, folder: Path = _FOLDER) -> bool:
    """Return whether programs of a platform run on this machine, also in root folders and containers."""
    machine = _MACHINES.get(platform)
    if machine is None:
        return False
    return machine in set(_registered(folder))


def _registered(folder: Path) -> Iterator[int]:
    """Yield the processors with an enabled emulator that root folders and containers need not have."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        words = dict(re.findall(r"^(\w+):? ?(.*)$", text, re.MULTILINE))
        magic = words.get("magic", "")
        if (
            "enabled" not in words
            or _FIXED not in words.get("flags", "")
            or not re.fullmatch(r"(..){20,}", magic)
        ):
            continue
        head = bytes.fromhex(magic)
        if head.startswith(_HEAD):
            yield int.from_bytes(head[_LENGTH - 2 : _LENGTH], "little")
