"""What scikit-build-core (PyTorch >= 2.14) keeps beside the cache, and what the Python swap does to it.

Standard library only, CPython >= 3.10. scikit-build-core configures on every build, starting from a CMakeInit.txt that
it writes afresh, and throws CMakeCache.txt and CMakeFiles/ away when ``.skbuild-info.json`` names another place of its
own code. That place is inside the packages of one Python, so every other Python would start from nothing. Naming the
new interpreter's scikit-build-core there says the truth about who will build next, and keeps the tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from python_entries import Change
from python_facts import PythonFacts

INFO = ".skbuild-info.json"
INIT = "CMakeInit.txt"
# set(NAME [===[VALUE]===] CACHE TYPE "" FORCE), one per line
_SET = re.compile(
    r"^set\((?P<name>\S+) \[===\[(?P<value>[^\n]*?)\]===\] CACHE (?P<type>[A-Z]+) (?P<rest>[^\n]*)$", re.MULTILINE
)


class SkbuildError(Exception):
    """State that cannot be read, or an interpreter without scikit-build-core."""


def present(build_dir: Path) -> bool:
    """Whether a tree is scikit-build-core's rather than setup.py's."""
    return (build_dir / INFO).exists() or (build_dir / INIT).exists()


def patch(build_dir: Path, changes: Sequence[Change], facts: PythonFacts) -> Mapping[str, bytes]:
    """Return the new content of the files that must change, by name; nothing is written.

    Raises SkbuildError when a file is broken, or the interpreter lacks scikit-build-core.
    """
    patched: dict[str, bytes] = {}
    info = build_dir / INFO
    if info.exists():
        patched[INFO] = _info(info, facts)
    init = build_dir / INIT
    if init.exists():
        patched[INIT] = _init(init, changes)
    return patched


def _info(path: Path, facts: PythonFacts) -> bytes:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkbuildError(f"{path} cannot be read ({error}); scikit-build-core would start from nothing") from error
    if not isinstance(state, dict) or "skbuild_path" not in state:
        raise SkbuildError(f"{path} does not say where scikit-build-core is; this version of it is not known here")
    if not facts.skbuild:
        raise SkbuildError(f"{facts.executable} has no scikit-build-core, which built this tree")
    state["skbuild_path"] = facts.skbuild
    if "python_executable" in state:
        state["python_executable"] = facts.executable
    return json.dumps(state, indent=2).encode()


def _init(path: Path, changes: Sequence[Change]) -> bytes:
    new = {change.name: change.new for change in changes if change.new is not None}

    def replace(match: re.Match[str]) -> str:
        value = new.get(match["name"])
        if value is None:
            return match[0]
        return f"set({match['name']} [===[{value}]===] CACHE {match['type']} {match['rest']}"

    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return _SET.sub(replace, text).encode("utf-8", "surrogateescape")
