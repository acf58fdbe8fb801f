"""The zip of a run's logs: new logs only, no links, all or nothing."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from small_files import write
from stop_at_write import watched

from megabuild.run.log_archive import LogArchive


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output folder with a log of an earlier run, which is left out."""
    write(tmp_path / "linux_64_cpu" / "logs" / "old.log", "old")
    return tmp_path


def test_it_has_the_new_logs_of_configs_and_extensions_and_new_crash_files(output: Path) -> None:
    archive = LogArchive(output, [output / "linux_64_cpu", output / "linux_64_cuda130"])
    new = [
        "linux_64_cpu/logs/new.log",
        "linux_64_cpu/pyg/scatter-py312/logs/new.log",
        "linux_64_cuda130/logs/new.log",
        "logs/crash-1.txt",
    ]
    for name in new:
        write(output / name, f"text of {name}")
    write(output / "another" / "logs" / "new.log", "of another command")
    (output / "linux_64_cpu" / "logs" / "latest.log").symlink_to("new.log")
    (output / "linux_64_cpu" / "logs" / "passwords.log").symlink_to("/etc/passwd")
    path = archive.write(["config  result"])
    assert path is not None
    assert path.parent == output / "logs"
    with zipfile.ZipFile(path) as file:
        assert sorted(file.namelist()) == sorted([*new, "results.txt"])
        assert file.read(new[1]).decode() == f"text of {new[1]}"
        assert file.read("results.txt") == b"config  result\n"


def test_without_a_new_log_there_is_no_zip(output: Path) -> None:
    assert LogArchive(output, [output / "linux_64_cpu"]).write([]) is None
    assert not (output / "logs").exists()


def test_a_log_that_a_build_replaces_meanwhile_is_left_out(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = output / "linux_64_cpu"
    archive = LogArchive(output, [state])
    log = write(state / "logs" / "new.log", "new")
    link = log.with_name("link.log")
    link.symlink_to(write(output / "secret", "secret"))
    monkeypatch.setattr(archive, "_logs", lambda: [link, log])
    path = archive.write([])
    assert path is not None
    with zipfile.ZipFile(path) as file:
        assert file.namelist() == ["results.txt", "linux_64_cpu/logs/new.log"]


def test_a_failed_zip_leaves_nothing(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = LogArchive(output, [output / "linux_64_cpu"])
    write(output / "linux_64_cpu" / "logs" / "new.log", "new")

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        archive.write([])
    assert list((output / "logs").iterdir()) == []


def test_a_zip_has_its_name_when_it_is_complete(output: Path) -> None:
    archive = LogArchive(output, [output / "linux_64_cpu"])
    write(output / "linux_64_cpu" / "logs" / "new.log", "new")
    with watched(output / "logs") as calls:
        path = archive.write([])
    assert path is not None
    assert calls.index(f"rename {path.name}") > 0
    opened = [call.removeprefix("open ") for call in calls if call.startswith("open ")]
    assert [name.startswith(".") for name in opened] == [True], "globs and CI's uploads leave it out"
