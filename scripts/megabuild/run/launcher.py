"""What stands in front of every compiler: the object cache, and behind it slots for what needs most memory."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from groundwork import files

COMPILER_LAUNCHER, HEAVY_GATE = "compiler-launcher", "heavy-gate"
#: Files of a state folder that are the driver's, and read by builds.
LAUNCHER_FILES = (COMPILER_LAUNCHER, HEAVY_GATE)
#: ccache's own: a server of the user's. May have a password.
REMOTE_STORAGE = "CCACHE_REMOTE_STORAGE"
#: Objects of nvcc that take several times the memory of others: attention, quantized and grouped products, sorting.
_HEAVY = (
    "*flash_att*", "*mem_eff_att*", "*fbgemm_genai*", "*GroupMM*", "*RowwiseScaledMM*", "*SparseSemiStructured*",
    "*/Indexing", "*/MixedDtypesLinear", "*/UniqueCub",
)  # fmt: skip
_LAUNCHER = """\
#!/bin/sh
# In front of every compiler of this config: the object cache where there is one, else the compiler itself. Always this
# file, since another command line would compile everything again.
program={program}
# A build may have put us on PATH under the cache's name: round and round it would go.
case "${{MEGABUILD_LAUNCHED:-}}" in xx*) exec "$@" ;; esac
MEGABUILD_LAUNCHED="x${{MEGABUILD_LAUNCHED:-}}"
export MEGABUILD_LAUNCHED
gate={gate}
command -v "$program" >/dev/null 2>&1 || exec "$gate" "$@"
case "${{program##*/}}" in
    # only a compiler that really runs waits for memory: the prefix is no part of what is looked for in the cache
    ccache*) CCACHE_PREFIX=$gate ;;
    *) exec "$program" "$@" ;;  # may leave a server behind, which would keep the slot
esac
CCACHE_DIR={folder}
CCACHE_REMOTE_STORAGE={storage}
CCACHE_MAXSIZE={size}
export CCACHE_DIR CCACHE_REMOTE_STORAGE CCACHE_MAXSIZE CCACHE_PREFIX
exec "$program" "$@"
"""
_GATE = """\
#!/bin/sh
# In front of every compiler that really runs: one of a heavy object waits for a slot. The compiler inherits the lock:
# the kernel frees the slot when the last process of the compiler has ended, however that was.
slots={slots}
heavy=
for word; do
    case $word in {heavy}) heavy=$slots ;; esac
done
[ -n "$heavy" ] && command -v flock >/dev/null && (: >>{locks}/heavy-1) 2>/dev/null || exec "$@"
while :; do
    for slot in $slots; do
        exec 9>>{locks}/heavy-"$slot"
        flock -n 9 && exec "$@"
    done
    sleep 0.2
done
"""


def write_launcher(state: Path, *, inside: str, folder: str, heavy_jobs: int = 0) -> None:
    """Write the files into a state folder, which builds see at ``inside``; the engine gives scripts no environment.

    ``folder`` has the config's own objects. So many compilers of heavy objects as ``heavy_jobs`` says run at a time;
    where that is 0, all of them.
    """
    values = {
        "program": os.environ.get("TORCH_CCACHE", "") or "ccache",
        "gate": f"{inside}/{HEAVY_GATE}",
        "folder": folder,
        "storage": os.environ.get(REMOTE_STORAGE, ""),
        "size": os.environ.get("CCACHE_MAXSIZE", "") or "40G",
        "slots": " ".join(str(number + 1) for number in range(heavy_jobs)),
        "locks": f"{inside}/tmp",
    }
    words = {name: shlex.quote(value) for name, value in values.items()}
    words["heavy"] = "|".join(f"{pattern}.cu.o" for pattern in _HEAVY)
    for name, text in ((COMPILER_LAUNCHER, _LAUNCHER), (HEAVY_GATE, _GATE)):
        # for this user alone: it may hold the password of a storage
        files.write(state / name, text.format(**words), mode=0o700)
