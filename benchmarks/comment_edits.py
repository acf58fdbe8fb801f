"""Which packages a comment would make again: `python benchmarks/comment_edits.py CONFIG [option ...]`.

Give the arguments of a finished run, `linux_64_cpu --rehearse --python 3.12` for example. A comment is appended to each
text file of recipe/ in turn, the driver is asked for its plan, and the file is put back. Prints one row per file: what
would happen to the compiled tree, and the packages that would be made again.
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
    """Ask the driver; returns what would happen to the compiled tree, and the packages that would be built."""
    command = [sys.executable, str(ROOT / "build-locally.py"), *arguments, "--plan", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    if done.returncode:
        return f"exit {done.returncode}", []
    staging = answer["staging"]
    made = [row["file_name"].rsplit("-", 2)[0] for row in answer["packages"] if not row["exists"]]
    return "; ".join([staging["decision"], *staging["reasons"]]), made


def show(edited: str, arguments: list[str]) -> None:
    """Print a row."""
    decision, made = plan(arguments)
    print(f"{edited:48} {decision:60} {', '.join(made) or '-'}", flush=True)


def main() -> None:
    """Edit, ask, put back."""
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
