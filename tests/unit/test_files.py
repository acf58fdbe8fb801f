"""Atomic writes, temporary folders after a kill, untrusted files and locks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import psutil
import pytest
from small_files import write
from tiny import wait_for

from groundwork import files
from groundwork.errors import BusyError, IntegrityError, PreflightError

START = """
import sys
import threading
from pathlib import Path
from groundwork import files
from megabuild.providers import command
with files.scratch(Path(sys.argv[1])) as folder:
    words = ["sh", "-c", "sleep 600 & echo $! $$ >%s/pids; wait" % sys.argv[1]]
    command.run(words, what="resolving", guarded=True)
"""


def test_after_a_kill_children_end_and_the_temporary_folder_is_removed(tmp_path: Path) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}
    )
    pids = tmp_path / "pids"
    assert wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for pid in map(int, pids.read_text().split()):
        assert wait_for(lambda pid=pid: not psutil.pid_exists(pid), 30)  # type: ignore[misc]
    (left,) = tmp_path.glob(".scratch-*")
    with files.scratch(tmp_path) as first, files.scratch(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [pids]


def test_a_folder_named_like_a_temporary_one_stays(tmp_path: Path) -> None:
    mine = [tmp_path / name for name in (".scratch-notes", ".scratch-2024", ".scratch-")]
    for folder in mine:
        folder.mkdir()
    with files.scratch(tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == sorted(mine)


def test_a_file_is_written_whole_or_not_at_all_and_never_through_a_link(tmp_path: Path) -> None:
    files.write(tmp_path / "a" / "b", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        files.write(tmp_path / "folder", "text")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "folder"]
    private = tmp_path / "private"
    private.write_text("private")
    (tmp_path / f"run.json.{os.getpid()}-{threading.get_ident()}.new").symlink_to(private)
    files.write(tmp_path / "run.json", "ours")
    assert (private.read_text(), (tmp_path / "run.json").read_text()) == ("private", "ours")


def test_a_file_is_on_the_disk_before_a_note_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, note = tmp_path / "wheel", tmp_path / "wheel.checked"
    path.write_bytes(b"content")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_ino, note.exists())))
    assert not files.verified(path, "other")
    assert files.verified(path, files.sha256(path))
    assert note.exists()
    assert files.verified(path, files.sha256(path))
    assert synced == [(path.stat().st_ino, False)]


def test_a_copy_has_the_content_and_the_date_but_not_the_inode(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    source.write_bytes(b"content")
    os.utime(source, ns=(5, 7_000_000_001))
    files.copy(source, target)
    assert target.read_bytes() == b"content"
    assert target.stat().st_mtime_ns == 7_000_000_001
    assert target.stat().st_ino != source.stat().st_ino
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_are_not_followed_and_pipes_do_not_block(tmp_path: Path, kind: str) -> None:
    secret, path = tmp_path / "secret", tmp_path / "path"
    secret.write_text("secret")
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(IntegrityError, match="link" if kind == "link" else "regular"):
        files.open_regular(path)
    with pytest.raises(IntegrityError):
        files.copy(path, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_link_among_the_folders_of_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "log", "private")
    write(tmp_path / "state" / "out" / "log", "a build's")
    (tmp_path / "state" / "bld").symlink_to(tmp_path / "elsewhere")
    with files.open_regular(tmp_path / "state" / "out" / "log", below=tmp_path / "state") as file:
        assert file.read() == b"a build's"
    with pytest.raises(OSError, match="Not a directory"):
        files.open_regular(tmp_path / "state" / "bld" / "log", below=tmp_path / "state")
    with pytest.raises(FileNotFoundError):
        files.open_regular(tmp_path / "state" / "out" / "gone" / "log", below=tmp_path / "state")


def test_a_foreign_file_leaves_nothing_open_whether_it_is_read_or_refused(tmp_path: Path) -> None:
    """A run reads thousands of them."""
    write(tmp_path / "out" / "a" / "log")
    (tmp_path / "out" / "link").symlink_to("a")
    os.mkfifo(tmp_path / "out" / "a" / "pipe")
    before = psutil.Process().num_fds()
    for place in ("a/log", "link/log", "a/pipe", "a", "link", "gone/log"):
        for below in (tmp_path, None):
            files.read_untrusted(tmp_path / "out" / place, below=below)
    assert psutil.Process().num_fds() == before


def test_a_linked_file_replaces_the_former_one_in_one_step(tmp_path: Path) -> None:
    source, target = tmp_path / "torch-1-0.conda", tmp_path / "channel" / "torch-1-0.conda"
    source.write_text("new")
    write(target, "old")
    for _ in range(2):  # the second time, both are the same file
        files.link(source, target)
        assert target.samefile(source)
        assert list(target.parent.iterdir()) == [target]


def test_a_link_is_replaced_in_one_step_and_named_if_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have no links."""
    link = tmp_path / "latest"
    for target in ("one", "two"):
        files.replace_link(link, target)
        assert (os.readlink(link), list(tmp_path.iterdir())) == (target, [link])

    def refuse(path: Path, _: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(PermissionError, match=rf"Operation not permitted: '{link}'"):
        files.replace_link(link, "three")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"[1]", b'{"a": "\xff"}', b'{"a": ' + b"[" * 100_000],
    ids=lambda one: str(one)[:20],
)
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    path, decoder = tmp_path / "record.json", msgspec.json.Decoder(dict[str, Any])
    if content is not None:
        path.write_bytes(content)
    assert files.read_record(path, decoder) is None
    path.write_text('{"a": "b"}')
    assert files.read_record(path, decoder) == {"a": "b"}


def test_a_file_of_another_size_is_not_taken_for_unchanged_whatever_its_date(tmp_path: Path) -> None:
    """After a power cut, a file may have its date and no content."""
    path = write(tmp_path / "file", "content")
    digest, when = files.sha256(path), path.stat().st_mtime_ns
    assert files.intact(path, digest=digest, size=len("content"), when=when)
    path.write_bytes(b"")
    os.utime(path, ns=(when, when))
    assert not files.intact(path, digest=digest, size=len("content"), when=when)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOENT])
def test_a_file_that_cannot_be_read_is_not_taken_for_unchanged(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "file", "content")
    digest = files.sha256(path)

    def refuse(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "sha256", refuse)
    assert not files.intact(path, digest=digest, size=len("content"), when=0)
    assert not files.verified(path, digest)
    monkeypatch.setattr(files, "open_regular", refuse)
    assert files.read_untrusted(path) is None


def test_a_second_user_of_a_lock_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with files.sole_user(lock, "in use"), pytest.raises(BusyError, match="in use"):
        files.sole_user(lock, "in use").__enter__()
    with files.sole_user(lock, "in use"):
        pass


def test_a_folder_is_checked_without_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.check_creatable(tmp_path / "a" / "b", "remedy")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match="file is not writable"):
        files.check_creatable(tmp_path / "file" / "b", "remedy")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PreflightError, match=f"{tmp_path} is not writable"):
        files.check_creatable(tmp_path / "a", "remedy")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_file_is_copied_to_another_file_system_only(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that fails for another reason has not happened."""
    source = write(tmp_path / "a", "content")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", refuse)
    target = tmp_path / "there/b"
    with nullcontext() if number == errno.EXDEV else pytest.raises(OSError, match=os.strerror(number)):
        files.move(source, target)
    assert target.exists() == (number == errno.EXDEV)
    assert source.exists() != target.exists(), "no disk has to hold gigabytes twice"


def test_a_file_stays_where_it_is_until_another_file_system_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a", "content")
    for name, number in (("rename", errno.EXDEV), ("replace", errno.ENOSPC)):
        monkeypatch.setattr(os, name, Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(OSError, match="No space"):
        files.move(source, tmp_path / "there" / "b")
    assert source.read_text() == "content"
    assert not list((tmp_path / "there").iterdir())


def test_of_a_link_to_a_folder_the_link_alone_is_removed(tmp_path: Path) -> None:
    kept = write(tmp_path / "folder" / "file")
    link = tmp_path / "link"
    link.symlink_to("folder")
    assert files.remove(link) is None
    assert sorted(tmp_path.rglob("*")) == [kept.parent, kept]
