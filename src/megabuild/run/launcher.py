"""Writes the compiler launcher, which adds the object cache, and the gate, which limits parallel heavy compiles.

The gate also notes every compile that the cache cannot replace, for the picture of the run (:mod:`megabuild.timeline`).
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from groundwork import files
from megabuild.engine.compile_notes import NOTES
from megabuild.plan.options import object_cache_program

COMPILER_LAUNCHER = "compiler-launcher"
HEAVY_GATE = "heavy-gate"
#: Files in a state folder that the driver writes and builds read.
LAUNCHER_FILES = (COMPILER_LAUNCHER, HEAVY_GATE)
#: ccache's own variable: the user's cache server. The value may contain a password.
REMOTE_STORAGE = "CCACHE_REMOTE_STORAGE"
#: nvcc's objects that need several times the memory of others: attention, quantized and grouped products, sorting.
_HEAVY = (
    "*flash_att*", "*mem_eff_att*", "*fbgemm_genai*", "*GroupMM*", "*RowwiseScaledMM*", "*SparseSemiStructured*",
    "*/Indexing", "*/MixedDtypesLinear", "*/UniqueCub",
)  # fmt: skip
_LAUNCHER = """\
#!/bin/sh
# Launches every compiler of this config: through the object cache if installed, else directly. This file's path never
# changes, because another command line would recompile everything.
program={program}
# Avoid an endless loop: a build may have put this file on PATH under the cache's name.
case "${{MEGABUILD_LAUNCHED:-}}" in xx*) exec "$@" ;; esac
MEGABUILD_LAUNCHED="x${{MEGABUILD_LAUNCHED:-}}"
export MEGABUILD_LAUNCHED
gate={gate}
# A line without an object: from this second on, objects without a note of the gate are from the cache.
begin_notes() {{ [ -e {notes} ] || echo "$(date +%s)" 2>/dev/null >>{notes}; }}
command -v "$program" >/dev/null 2>&1 || {{ begin_notes; exec "$gate" "$@"; }}
case "${{program##*/}}" in
    # only compilers that really run wait for memory: ccache calls its prefix after a miss, and does not hash it
    ccache*) begin_notes; CCACHE_PREFIX=$gate ;;
    *) exec "$program" "$@" ;;  # no gate: a server that it leaves running would keep the slot
esac
CCACHE_DIR={folder}
# Builds write the cache's folder: a configuration in it would choose programs that another build runs.
CCACHE_CONFIGPATH=/dev/null
CCACHE_REMOTE_STORAGE={storage}
CCACHE_MAXSIZE={size}
export CCACHE_DIR CCACHE_CONFIGPATH CCACHE_REMOTE_STORAGE CCACHE_MAXSIZE CCACHE_PREFIX
exec "$program" "$@"
"""
_GATE = """\
#!/bin/sh
# Runs every compiler that the cache cannot replace, and notes its object; a heavy object first waits for a slot. The
# compiler inherits the slot's lock, which the kernel frees when its last process ends, even if it was killed.
slots={slots}
heavy=
object=
before=
for word; do
    case $word in {heavy}) heavy=$slots ;; esac
    case $before in -o) object=$word ;; esac
    before=$word
done
[ -z "$object" ] || echo "$(date +%s) $object" 2>/dev/null >>{notes}
[ -n "$heavy" ] && command -v flock >/dev/null && (: >>{locks}/heavy-1) 2>/dev/null || exec "$@"
while :; do
    for slot in $slots; do
        exec 9>>{locks}/heavy-"$slot"
        flock -n 9 && exec "$@"
        [ $? = 1 ] || exec "$@"  # not held by another compiler: the file system has no locks
    done
    sleep 0.2
done
"""


def write_launcher(state: Path, *, inside: str, folder: str, heavy_jobs: int = 0, locks: str = "") -> None:
    """Write launcher and gate to a state folder, which builds see at ``inside``.

    The files contain the settings, because rattler-build passes scripts no environment. ``folder`` is the config's
    object cache. At most ``heavy_jobs`` compilers of heavy objects run in parallel; 0 means no limit. All builds with
    the folder ``locks`` share this number; by default, the builds of the state folder.
    """
    values = {
        "program": object_cache_program(),
        "gate": f"{inside}/{HEAVY_GATE}",
        "folder": folder,
        "storage": os.environ.get(REMOTE_STORAGE, ""),
        "size": os.environ.get("CCACHE_MAXSIZE", "") or "20G",
        "slots": " ".join(str(number + 1) for number in range(heavy_jobs)),
        "locks": locks or f"{inside}/tmp",
        "notes": f"{inside}/{NOTES}",
    }
    words = {name: shlex.quote(value) for name, value in values.items()}
    words["heavy"] = "|".join(f"{pattern}.cu.o" for pattern in _HEAVY)
    for name, text in ((COMPILER_LAUNCHER, _LAUNCHER), (HEAVY_GATE, _GATE)):
        # readable by this user only: it may contain the cache server's password
        files.write(state / name, text.format(**words), mode=0o700)
