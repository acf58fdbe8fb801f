"""What stands in front of every compiler: the object cache, and behind it what shares the memory."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from groundwork import files
from megabuild.engine.compiler_gate import UNNOTED
from megabuild.plan.limits import Limits

COMPILER_LAUNCHER, GATE, _SETTINGS = "compiler-launcher", "compiler-gate", "compiler-memory"
#: Files of a state folder that are the driver's, and read by builds.
LAUNCHER_FILES = (COMPILER_LAUNCHER, GATE, _SETTINGS)
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
    # others may run the compiler elsewhere: what this process takes says nothing
    *) exec "$gate" {unnoted} "$program" "$@" ;;
esac
CCACHE_DIR={folder}
CCACHE_REMOTE_STORAGE={shared}
CCACHE_STATSLOG={stats}
CCACHE_MAXSIZE={size}
case {reshare} in yes) export CCACHE_RESHARE=1 ;; esac
export CCACHE_DIR CCACHE_REMOTE_STORAGE CCACHE_STATSLOG CCACHE_MAXSIZE CCACHE_PREFIX
exec "$program" "$@"
"""
_GATE_SCRIPT = """\
#!/bin/sh
# In front of every compiler that really runs. No Python of the build's environment where there is another one: it may
# be for another processor.
for python in {python} /opt/conda/bin/python3 /usr/bin/python3 python3; do
    command -v "$python" >/dev/null 2>&1 && break
done
exec "$python" -IS {script} {settings} {notes} "$@"
"""


def write_launcher(
    state: Path,
    limits: Limits,
    *,
    inside: str,
    scripts: str,
    python: str,
    folder: str,
    shared: str,
    reshare: bool = False,
    stats: str,
) -> None:
    """Write the files into a state folder, which builds see at ``inside``.

    ``scripts`` and ``python`` are the driver's modules and a Python there; ``folder``, ``shared`` and ``stats`` the
    object cache's own folder, its remote storage and its log. With ``reshare``, what is found in the own folder goes to
    the remote storage as well.
    """
    gate = f"{inside}/{GATE}"
    # The engine gives scripts an environment of their own, which has neither.
    program = os.environ.get("TORCH_CCACHE", "") or "ccache"
    size = os.environ.get("CCACHE_MAXSIZE", "") or "40G"
    _write(
        state / COMPILER_LAUNCHER,
        _LAUNCHER,
        program=program,
        unnoted=UNNOTED,
        gate=gate,
        folder=folder,
        shared=shared,
        reshare="yes" if reshare else "no",
        stats=stats,
        size=size,
    )
    _write(
        state / GATE,
        _GATE_SCRIPT,
        python=python,
        script=f"{scripts}/megabuild/engine/compiler_gate.py",
        settings=f"{inside}/{_SETTINGS}",
        notes=f"{inside}/tmp",
    )
    files.write(state / _SETTINGS, limits.text())


def _write(path: Path, text: str, **values: str) -> None:
    words = {name: shlex.quote(value) for name, value in values.items()}
    files.write(path, text.format(**words), mode=0o755)
