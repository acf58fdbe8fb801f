"""A shell where a build failed cannot type commands for the shell that it was started from."""

from __future__ import annotations

import os
import pty
import select
import shlex
from pathlib import Path

import pytest
from engines import bubblewrap

from megabuild.engine.supervisor import Place
from megabuild.run.failure_shell import write_program

TYPED = "touch pwned"
#: What a build may have left in its environment file: it types into whatever terminal it finds.
ATTACK = f"""
import fcntl, os, termios
for descriptor in (0, 1, 2):
    for letter in {TYPED!r}:
        try:
            fcntl.ioctl(descriptor, termios.TIOCSTI, letter.encode())
        except OSError:
            pass
print("tried")
"""


def typed_after(program: str) -> bytes:
    """Run a program on a terminal and return what is left there for a shell to read."""
    child, terminal = pty.fork()
    if child == 0:
        os.system(f"stty -icanon -echo; {program}")
        if select.select([0], [], [], 1.0)[0]:
            os.write(1, b"READ:" + os.read(0, 100))
        os._exit(0)
    shown = b""
    while True:
        try:
            block = os.read(terminal, 1000)
        except OSError:  # the child has ended
            break
        if not block:
            break
        shown += block
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"tried" in shown, shown
    return shown.partition(b"READ:")[2]


@pytest.mark.parametrize("with_script", [True, False])
def test_what_a_build_left_types_nothing_outside(with_script: bool, tmp_path: Path) -> None:
    isolation = bubblewrap()
    sandbox = Place(
        isolation=isolation, state=tmp_path, state_inside="/tmp", packages_inside="", python="", site_inside="",
        mounts=[], recipe="", channels=(), source=None, environment={}, more={},
    )  # fmt: skip
    write_program(tmp_path / "enter", sandbox, [f"/usr/bin/python3 -c {shlex.quote(ATTACK)}"], name="enter")
    bare = isolation.command(["/usr/bin/python3", "-c", ATTACK], mounts=[], env={}, cwd="/", name="bare")
    if TYPED.encode() not in typed_after(shlex.join(bare)):
        pytest.skip("this kernel lets no program type into its terminal")
    if not with_script:
        program = (tmp_path / "enter").read_text().replace("command -v script", "false")
        (tmp_path / "enter").write_text(program)
    assert typed_after(str(tmp_path / "enter")) == b""
