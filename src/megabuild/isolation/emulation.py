"""Runs the programs of another processor: by an emulator that Linux knows, or that a build registers for itself.

Linux starts a foreign program with the emulator that binfmt_misc names for its processor. From Linux 6.7 on, a user
namespace can have a binfmt_misc of its own. An emulator registered in it works for the processes of the namespace and
ends with them, and any user may register one. With an older kernel, only the machine's own registration works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path("/proc/sys/fs/binfmt_misc")
_OWN_FROM = (6, 7)
#: Numbers of processors in the head of an ELF file (e_machine), by conda's platform.
_MACHINES = {"linux-64": 62, "linux-aarch64": 183, "linux-ppc64le": 21, "linux-riscv64": 243}
#: The dynamic loader of a platform's programs.
LOADERS = {"linux-64": "/lib64/ld-linux-x86-64.so.2", "linux-aarch64": "/lib/ld-linux-aarch64.so.1"}
_ELF = b"\x7fELF\x02\x01"  # 64 bits, little endian
#: The head of a program, up to the processor, and the bits of it that count: a program may also be of the kind that can
#: be loaded anywhere.
_HEAD = bytes([*_ELF, 1, *[0] * 9, 2, 0])
_MASK = bytes([*[255] * 7, 0, *[255] * 8, 254, 255, 255, 255])
_LENGTH = len(_MASK)
#: The kernel opens the emulator when it is registered, so that a root folder or container need not have it.
_FIXED = "F"
_REGISTER = f"""\
mount -t binfmt_misc binfmt_misc {_FOLDER}
printf %s "$1" >{_FOLDER}/register
shift
exec "$@"
"""
#: Separators of a registration's fields; no path has all control characters.
_SEPARATORS = (":", *map(chr, range(1, 32)))
#: The file of the folder with the switch of all emulators.
_STATUS = "status"
_OFF = "disabled"


def is_registered(platform: str, *, folder: Path = _FOLDER) -> bool:
    """Return whether programs of a platform run on this machine, also in root folders and containers."""
    machine = _MACHINES.get(platform)
    if machine is None or _read(folder / _STATUS).strip() == _OFF:
        return False
    return machine in set(_registered(folder))


def remedy(platform: str) -> str:
    """Return how to make a platform's programs run on this machine; empty if no emulator is known for them."""
    if platform not in _MACHINES:
        return ""
    return "run: sudo apt-get install qemu-user-static"


def _read(path: Path) -> str:
    """Return the text of a file of the kernel; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _registered(folder: Path) -> Iterator[int]:
    """Yield the processors with an enabled emulator that root folders and containers need not have."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        words = dict(re.findall(r"^(\w+):? ?(.*)$", _read(entry), re.MULTILINE))
        magic = words.get("magic", "")
        is_open = "enabled" in words and _FIXED in words.get("flags", "")
        if not is_open or not re.fullmatch(rf"([0-9a-f]{{2}}){{{_LENGTH},}}", magic):
            continue
        head = bytes.fromhex(magic)
        if head.startswith(_ELF):
            yield int.from_bytes(head[_LENGTH - 2 : _LENGTH], "little")


def can_register() -> bool:
    """Return whether Linux is new enough for an emulator of one build."""
    release = re.findall(r"\d+", os.uname().release)
    return tuple(map(int, release[:2])) >= _OWN_FROM


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """A static program that runs a platform's programs, for one build."""

    program: Path
    platform: str  #: conda's

    @property
    def before(self) -> list[str]:
        """The beginning of a command line that runs the rest with the emulator, as the root user of a namespace."""
        head = _HEAD + _MACHINES[self.platform].to_bytes(2, "little")
        program = str(self.program.resolve())
        fields = ["", "megabuild", "M", "", _escape(head), _escape(_MASK), program, _FIXED]
        line = _separator_for(program).join(fields)
        return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", _REGISTER, "sh", line]


def _separator_for(path: str) -> str:
    """Return a sign that is not in a path: Linux takes the first one of a registration as its separator."""
    return next(sign for sign in _SEPARATORS if sign not in path)


def _escape(content: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in content)
