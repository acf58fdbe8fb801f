"""What a store keeps, what it refuses, and a tree that comes back as it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from groundwork.errors import IntegrityError, UsageError
from megabuild.store import server, tree_archive
from megabuild.store.server import Store, StoreError


def nothing(done: int) -> None:
    """Take how far it has got."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(server, "_PART", 1000)
    return Store(str(tmp_path / "store"), writes=True)


@pytest.fixture
def content(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(os.urandom(3500))
    return path


def test_a_file_comes_back_in_parts(here: Store, content: Path, tmp_path: Path) -> None:
    assert here.find("a/b") is None
    went: list[int] = []
    here.put("a/b", {"file": content}, went.append)
    assert went == [1000, 2000, 3000, 3500]
    record = here.find("a/b")
    assert record is not None
    assert (record.size, len(record.files["file"].parts)) == (3500, 4)
    here.fetch(record.files["file"], tmp_path / "back", nothing)
    assert (tmp_path / "back").read_bytes() == content.read_bytes()


def test_parts_that_are_there_are_not_sent_again(here: Store, content: Path) -> None:
    here.put("a", {"file": content}, nothing)
    parts = {path: path.stat().st_mtime_ns for path in Path(here.address).glob("parts/*/*")}
    assert len(parts) == 4
    here.put("b", {"file": content}, nothing)
    assert {path: path.stat().st_mtime_ns for path in Path(here.address).glob("parts/*/*")} == parts


def test_a_part_that_broke_off_is_sent_again(here: Store, content: Path, tmp_path: Path) -> None:
    here.put("a", {"file": content}, nothing)
    cut = next(Path(here.address).glob("parts/*/*"))
    cut.write_bytes(cut.read_bytes()[:-1])
    here.put("a", {"file": content}, nothing)
    record = here.find("a")
    assert record is not None
    here.fetch(record.files["file"], tmp_path / "back", nothing)


def test_what_was_exchanged_is_refused_and_nothing_is_left_of_it(
    here: Store, content: Path, tmp_path: Path
) -> None:
    here.put("a", {"file": content}, nothing)
    record = here.find("a")
    assert record is not None
    last = record.files["file"].parts[-1]
    path = Path(here.address, "parts", last[:2], last)
    path.write_bytes(bytes(500))
    with pytest.raises(IntegrityError, match=last):
        here.fetch(record.files["file"], tmp_path / "back", nothing)
    path.unlink()
    with pytest.raises(StoreError, match="gone"):
        here.fetch(record.files["file"], tmp_path / "back", nothing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["content", "store"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"key": "b", "files": {}}',
        '{"key": "a", "files": {"x": {"size": 1, "parts": ["../../etc"]}}}',
    ],
)
def test_a_record_of_something_else_is_refused(here: Store, text: str) -> None:
    Path(here.address).mkdir()
    Path(here.address, "a.json").write_text(text)
    with pytest.raises(IntegrityError):
        here.find("a")


def test_only_what_somebody_trusted_has_signed_is_taken(here: Store, content: Path, tmp_path: Path) -> None:
    def key(name: str) -> Path:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
        return tmp_path / name

    ours, theirs = key("ours"), key("theirs")
    signers = tmp_path / "signers"
    signers.write_text(f"ci@example.org {ours.with_suffix('.pub').read_text()}")
    careful = Store(here.address, signers=signers)
    here.put("a", {"file": content}, nothing)
    with pytest.raises(IntegrityError, match="not signed"):
        careful.find("a")
    Store(here.address, key=theirs).put("a", {"file": content}, nothing)
    with pytest.raises(IntegrityError, match="whom you trust"):
        careful.find("a")
    Store(here.address, key=ours).put("a", {"file": content}, nothing)
    assert careful.find("a")
    for name in ("json", "json.sig"):  # signed, but as something else
        Path(here.address, f"b.{name}").write_bytes(Path(here.address, f"a.{name}").read_bytes())
    with pytest.raises(IntegrityError, match="no record"):
        careful.find("b")
    record = Path(here.address, "a.json")
    record.write_bytes(record.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match="whom you trust"):
        careful.find("a")


def test_a_server_that_is_not_there_is_said_without_the_password() -> None:
    gone = Store("http://user:sesame@127.0.0.1:9/store")
    with pytest.raises(StoreError, match=r"^http://127.0.0.1:9/store: ") as caught:
        gone.find("a")
    assert "sesame" not in str(caught.value)


def test_the_environment_names_it(tmp_path: Path) -> None:
    assert server.store({}) is None
    found = server.store({server.STORE: "s3://bucket/prefix"})
    assert found == Store("s3://bucket/prefix")
    found = server.store({server.STORE: str(tmp_path), server.WRITES: "1"})
    assert found is not None
    assert found.writes
    for wrong in ("ftp://host", "http://", "redis://host"):
        with pytest.raises(UsageError, match=server.STORE):
            server.store({server.STORE: wrong})
    with pytest.raises(UsageError, match=server.SIGNERS):
        server.store({server.STORE: str(tmp_path), server.SIGNERS: str(tmp_path / "none")})


def test_a_tree_comes_back_with_its_dates_modes_and_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "locked" / "below").mkdir(parents=True)
    (tree / "run").write_text("#!/bin/sh")
    (tree / "run").chmod(0o755)
    (tree / "locked" / "below" / "object.o").write_bytes(bytes(1000))
    (tree / "link").symlink_to("/usr/lib/libc.so")
    os.link(tree / "run", tree / "same")
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
        exact = 1_700_000_000_123_456_789 + number
        os.utime(path, ns=(exact, exact), follow_symlinks=False)
    (tree / "locked").chmod(0o555)
    tree_archive.pack({"tree": tree}, tmp_path / "packed")
    tree_archive.unpack(tmp_path / "packed", tmp_path / "back")

    def seen(folder: Path) -> dict[str, tuple[int, int, str]]:
        return {
            path.relative_to(folder).as_posix(): (
                path.lstat().st_mtime_ns,
                path.lstat().st_mode,
                os.readlink(path) if path.is_symlink() else "",
            )
            for path in sorted(folder.rglob("*"))
        }

    assert seen(tmp_path / "back" / "tree") == seen(tree)
    assert (tmp_path / "back" / "tree" / "same").read_text() == "#!/bin/sh"


def test_a_tree_that_reaches_outside_is_refused(tmp_path: Path) -> None:
    import tarfile

    import zstandard

    with (
        zstandard.open(tmp_path / "evil", "wb") as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        link = tarfile.TarInfo("tree")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("tree/planted"))
    with pytest.raises(IntegrityError, match="cannot be unpacked"):
        tree_archive.unpack(tmp_path / "evil", tmp_path / "back")
    assert not (tmp_path / "planted").exists()
    (tmp_path / "rest").write_bytes((tmp_path / "evil").read_bytes()[:-20])
    with pytest.raises(IntegrityError):
        tree_archive.unpack(tmp_path / "rest", tmp_path / "again")


def test_a_pipe_in_a_tree_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    with pytest.raises(IntegrityError, match="pipe"):
        tree_archive.pack({"tree": tmp_path / "tree"}, tmp_path / "packed")
