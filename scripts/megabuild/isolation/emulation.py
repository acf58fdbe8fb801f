"""Running programs of another architecture in one process tree, without a change to the machine.

Linux has a program of another architecture run by whatever is registered for it in binfmt_misc. From Linux 6.7 on a
user namespace can have a binfmt_misc of its own: what is registered there counts for the processes in it and goes with
them, and any user may do it. On an older kernel the machine's own registration has to do, which is its owner's to make.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_OWN_FROM = (6, 7)
_FOLDER = "/proc/sys/fs/binfmt_misc"
REMEDY = (
    "from Linux 6.7 on nothing needs to be done but to permit user namespaces; on an older kernel register qemu for all"
    " of the machine: apt-get install qemu-user-static"
)

#: How an executable begins, and which bits of that count: ELF, 64 bits, little endian, a program (or one that can lie
#: anywhere), machine.
_MACHINES = {"aarch64": 0xB7}
_HEAD = bytes([0x7F, *b"ELF", 2, 1, 1, *[0] * 9, 2, 0])
_MASK = bytes([*[255] * 7, 0, *[255] * 8, 254, 255, 255, 255])
#: F: the interpreter is opened now, so that it need not be found in the root folder, nor in a container.
_REGISTER = f"""\
mount -t binfmt_misc binfmt_misc {_FOLDER}
printf %s "$1" >{_FOLDER}/register
shift
exec "$@"
"""


def machine(emulator: Path) -> str:
    """Return whose programs an emulator runs: ``aarch64`` for ``qemu-aarch64``, also with ``-static``."""
    return emulator.name.split("-")[1]


def before(emulator: Path) -> list[str]:
    """Return words before a command, by which it and all that it starts may run another architecture's programs.

    It is started as the root user of a user namespace, or as it is where the kernel is too old for that.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if release < _OWN_FROM:
        return []
    head = _HEAD + _MACHINES[machine(emulator)].to_bytes(2, "little")
    line = f":{emulator.name}:M::{_escape(head)}:{_escape(_MASK)}:{emulator.resolve()}:F"
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", _REGISTER, "sh", line]


def _escape(content: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in content)
