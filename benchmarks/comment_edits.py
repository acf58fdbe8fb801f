"""List the packages that a new comment would rebuild: `python benchmarks/comment_edits.py CONFIG [option ...]`.

Pass the arguments of a finished run, such as `linux_64_cpu --rehearse --python 3.12`. The script appends a comment to
each text file of recipe/ in turn, asks the driver for its plan, and restores the file. It prints one row per file: the
plan for the compiled tree, and the packages that the driver would rebuild.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_COMMENT = {
    ".py": "# x",
    ".sh": "# x",
    ".cmake": "# x",
    ".txt": "# x",
    ".yaml": "# x",
    ".patch": "x",
    ".md": "x",
    ".cpp": "// x",
}


def plan(arguments: list[str]) -> tuple[str, list[str]]:
    """Ask the driver; return its decision on the compiled tree with reasons, and the packages it would build."""
    command = [sys.executable, str(ROOT / "build-locally.py"), *arguments, "--plan", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    if done.returncode:
        return f"exit {done.returncode}", []
    staging = answer["staging"]
    made = [row["file_name"].rsplit("-", 2)[0] for row in answer["packages"] if not row["exists"]]
    return "; ".join([staging["decision"], *staging["reasons"]]), made


def show(edited: str, arguments: list[str]) -> None:
    decision, made = plan(arguments)
    print(f"{edited:48} {decision:60} {', '.join(made) or '-'}", flush=True)


def main() -> None:
    """Print a row without an edit, then one for each text file of recipe/."""
    arguments = sys.argv[1:]
    show("no edit", arguments)
    tracked = subprocess.run(
        ["git", "ls-files", "recipe"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix not in _COMMENT or name.startswith("recipe/pyg/"):
            continue
        before = path.read_bytes()
        try:
            path.write_bytes(before + f"\n{_COMMENT[path.suffix]}\n".encode())
            show(name, arguments)
        finally:
            path.write_bytes(before)


if __name__ == "__main__":
    main()
