"""A shared library with GPU code in it, laid out as nvcc does and as NVIDIA's libraries are, without CUDA."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MACHINE_CODE, PTX, LTO_IR = 2, 1, 8
FOR_ONE, FOR_FAMILY = 0x100011, 0x200011

_SOURCE = """
struct wrapper { int magic, version; const void *data; void *more; };
#define WRAPPED(n) extern const char fat##n[] __attribute__((visibility("hidden")));
%(declared)s
extern const char resources[] __attribute__((visibility("hidden")));
static struct wrapper wrappers[] __attribute__((section(".nvFatBinSegment"), used)) = {%(wrappers)s};
char zeros[100000];
int data[3000] = {1, 2, 3};
const void *fat(int n) { return wrappers[n].data; }
const void *resource(int at) { return resources + at; }
%(more)s
"""
_ASSEMBLER = """
.section .nv_fatbin,"a"
.balign 8
%(own)s
.section .cask_resource,"a"
.balign 8
resources: .globl resources
.incbin "resources.bin"
.section .note.GNU-stack,"",@progbits
"""
_READ = """
import ctypes, hashlib, json, sys
library = ctypes.CDLL(sys.argv[1])
for function in (library.fat, library.resource):
    function.restype = ctypes.c_void_p
def read(start):
    size = int.from_bytes(ctypes.string_at(start + 8, 8), "little")
    return hashlib.sha256(ctypes.string_at(start, 16 + size)).hexdigest()
fats = [read(library.fat(number)) for number in range(int(sys.argv[2]))]
print(json.dumps([fats, [read(library.resource(int(at))) for at in sys.argv[3:]], library.work(4)]))
"""


def entry(kind: int, arch: int, flags: int = 0x11, size: int = 40_000) -> bytes:
    """Make an entry of a fat binary, with content that is another one for every architecture."""
    payload = hashlib.shake_256(f"{kind} {arch} {flags} {size}".encode()).digest(size)
    header = struct.pack("<HHIQ", kind, 0x101, 64, size) + bytes(12) + struct.pack("<I", arch)
    return header + bytes(8) + struct.pack("<Q", flags) + bytes(16) + payload


def fatbin(*entries: bytes) -> bytes:
    """Make a fat binary."""
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def build(
    folder: Path,
    own: Sequence[bytes],
    resources: bytes = b"none",
    *,
    flags: Sequence[str] = (),
    more: str = "int work(int x) { return data[1] + zeros[x]; }",
    unwrapped: int = 0,
) -> Path:
    """Link a library.

    `own`: Fat binaries as nvcc lays them: in its section, each with a wrapper.
    `unwrapped`: how many of ``own``, counted from the beginning, have no wrapper.
    """
    numbers = range(unwrapped, len(own))
    (folder / "resources.bin").write_bytes(resources)
    for number, content in enumerate(own):
        (folder / f"{number}.bin").write_bytes(content)
    symbols = (f'.globl fat{n}\n.hidden fat{n}\nfat{n}: .incbin "{n}.bin"' for n in range(len(own)))
    (folder / "code.s").write_text(_ASSEMBLER % {"own": "\n".join(symbols)})
    declared = "\n".join(f"WRAPPED({number})" for number in numbers)
    wrappers = ", ".join(f"{{0x466243b1, 1, fat{number}, 0}}" for number in numbers)
    (folder / "code.c").write_text(_SOURCE % {"declared": declared, "wrappers": wrappers, "more": more})
    command = ["gcc", "-shared", "-fPIC", "-g", "-o", "library.so", "code.c", "code.s", *flags]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "library.so"


def seen_in_memory(library: Path, fats: int, resources: Sequence[int] = ()) -> tuple[list[str], list[str]]:
    """Load a library in a process of its own, and return digests of the fat binaries as its code finds them."""
    command = [sys.executable, "-c", _READ, str(library), str(fats), *map(str, resources)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second, worked = json.loads(done.stdout)
    assert worked == 2
    return first, second


def digest(content: bytes) -> str:
    """Return what :func:`seen_in_memory` says of a fat binary."""
    return hashlib.sha256(content).hexdigest()
