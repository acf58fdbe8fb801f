"""rehearsal/image/make-image.sh with fake apt-get, mmdebstrap and docker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from small_files import program

from megabuild.plan.choose_isolation import rehearsal_image

TARGETS = """
http://mirror.example/debian/ {release} main
http://mirror.example/debian/ {release} contrib
http://mirror.example/debian/ {release}-updates main
http://mirror.example/security/ {release}-security main
http://tools.example/repo/ {release}-extra main
http://tools.example/repo/ nodistro main
"""


class FakeTools:
    """A folder with fake programs, which note what they get."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        release = rehearsal_image().partition(":")[2]
        (folder / "targets").write_text(TARGETS.format(release=release).lstrip())
        program(folder / "apt-get", f"cat {folder}/targets")
        program(
            folder / "mmdebstrap",
            f'cat > {folder}/sources; for word; do case $word in *.tar) echo system > "$word";; esac; done',
        )
        program(
            folder / "docker",
            f'echo "$*" >> {folder}/docker.asked; case $* in *.tar*) cat "$4" > {folder}/image;; esac',
        )

    def make(self, repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        script = repository / "rehearsal" / "image" / "make-image.sh"
        (self.folder / "tmp").mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "TMPDIR": str(self.folder / "tmp"),
        }
        return subprocess.run([str(script), *arguments], env=environment, capture_output=True, text=True)


@pytest.fixture
def tools(tmp_path: Path) -> FakeTools:
    if rehearsal_image().partition(":")[2].replace(".", "").isdigit() or "unknown" in rehearsal_image():
        pytest.skip("this system's release has no codename")
    return FakeTools(tmp_path)


def test_an_image_is_whole_and_has_this_systems_release(tools: FakeTools, repository: Path) -> None:
    done = tools.make(repository)
    assert (done.returncode, done.stdout.strip()) == (0, rehearsal_image())
    release = rehearsal_image().partition(":")[2]
    assert (tools.folder / "sources").read_text().splitlines() == [
        f"deb http://mirror.example/debian/ {release} main",
        f"deb http://mirror.example/debian/ {release}-updates main",
        f"deb http://mirror.example/security/ {release}-security main",
    ]
    assert (tools.folder / "image").read_text() == "system\n"
    assert rehearsal_image() in (tools.folder / "docker.asked").read_text()
    # half a system never becomes an image
    (tools.folder / "docker.asked").unlink()
    program(
        tools.folder / "mmdebstrap",
        'for word; do case $word in *.tar) echo half > "$word";; esac; done; exit 1',
    )
    done = tools.make(repository)
    assert done.returncode == 1
    assert "mmdebstrap failed" in done.stderr
    assert not (tools.folder / "docker.asked").exists()
    assert list((tools.folder / "tmp").iterdir()) == []
    # nor do half of the sources make an image
    program(tools.folder / "apt-get", f"head -n 1 {tools.folder}/targets; exit 100")
    done = tools.make(repository)
    assert (done.returncode, done.stderr) == (1, "make-image.sh: error: cannot list apt's sources\n")
    assert not (tools.folder / "docker.asked").exists()
    program(tools.folder / "apt-get", f"cat {tools.folder}/targets")
    (tools.folder / "targets").write_text("")  # an apt without sources
    assert "apt-get update" in tools.make(repository).stderr
