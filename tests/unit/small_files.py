"""Files and programs for tests, in one line each."""

from __future__ import annotations

import subprocess
from pathlib import Path


def write(path: Path, content: str | bytes = "") -> Path:
    """Write a file, with the folders that it needs; return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def program(path: Path, script: str) -> Path:
    """Write a shell script that can be started; return it."""
    write(path, f"#!/bin/sh\n{script}\n").chmod(0o755)
    return path


def shared_library(path: Path, source: str, *words: str, compiler: str = "cc") -> Path:
    """Compile a shared library, with the folders that it needs; return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    language = "c++" if compiler == "g++" else "c"
    command = [compiler, "-shared", "-fPIC", "-x", language, "-", "-x", "none", *words, "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path
