"""What a store keeps, what it refuses, and a tree that comes back as it was."""

from __future__ import annotations

import copy
import errno
import os
import signal
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from audit_site import Handler, serving

from groundwork import interrupts
from groundwork.errors import IntegrityError, UsageError
from megabuild.store import server, tree_archive
from megabuild.store.server import Store, StoreError


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
    assert [*here.put("a/b", content)] == [1000, 2000, 3000, 3500]
    record = here.find("a/b")
    assert record is not None
    assert (record.size, len(record.parts)) == (3500, 4)
    assert [*here.fetch(record, tmp_path / "back")] == [1000, 2000, 3000, 3500]
    assert (tmp_path / "back").read_bytes() == content.read_bytes()


def test_parts_that_are_there_are_not_sent_again_and_cut_ones_are(
    here: Store, content: Path, tmp_path: Path
) -> None:
    [*here.put("a", content)]
    parts = {path: path.stat().st_mtime_ns for path in Path(here.address).glob("parts/*/*")}
    cut = next(iter(parts))
    cut.write_bytes(cut.read_bytes()[:-1])
    [*here.put("b", content)]
    assert [path for path, when in parts.items() if path.stat().st_mtime_ns != when] == [cut]
    record = here.find("a")
    assert record is not None
    [*here.fetch(record, tmp_path / "back")]


def test_what_was_exchanged_is_refused_and_nothing_is_left_of_it(
    here: Store, content: Path, tmp_path: Path
) -> None:
    [*here.put("a", content)]
    record = here.find("a")
    assert record is not None
    last = record.parts[-1]
    path = Path(here.address, "parts", last[:2], last)
    path.write_bytes(bytes(500))
    with pytest.raises(IntegrityError, match=last):
        [*here.fetch(record, tmp_path / "back")]
    path.unlink()
    with pytest.raises(StoreError, match="missing"):
        [*here.fetch(record, tmp_path / "back")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["content", "store"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"key": "b", "size": 0, "parts": []}',
        '{"key": "a", "size": 1, "parts": ["../../etc"]}',
        f'{{"key": "a", "size": 1, "parts": ["{"0" * 64}", "../../etc"]}}',
        f'{{"key": "a", "size": 1, "parts": ["../../etc", "{"0" * 64}"]}}',
    ],
)
def test_a_record_of_something_else_is_refused(here: Store, text: str) -> None:
    Path(here.address).mkdir()
    Path(here.address, "a.json").write_text(text)
    with pytest.raises(IntegrityError):
        here.find("a")


def test_a_server_that_is_not_there_is_said_without_the_password() -> None:
    gone = Store("http://user:sesame@127.0.0.1:9/store")
    with pytest.raises(StoreError, match=r"^http://127.0.0.1:9/store: ") as caught:
        gone.find("a")
    assert "sesame" not in str(caught.value)


def test_an_upload_to_a_bucket_that_does_not_exist_fails_and_names_the_store(content: Path) -> None:
    class Bucket:
        def head(self, path: str) -> None:
            raise FileNotFoundError(path)

        def put(self, path: str, content: bytes) -> None:
            raise FileNotFoundError(f"Object at location {path} not found\n\nDebug source:\nNotFound {{")

    store = Store("s3://typing-error/prefix", writes=True)
    store.__dict__["_remote"] = Bucket()
    with pytest.raises(StoreError, match=r"^s3://typing-error/prefix: no such bucket or folder$"):
        [*store.put("a", content)]


def boast(handler: Handler) -> None:
    """Announce more than a machine's memory holds."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000000000")
    handler.end_headers()
    handler.wfile.write(b"{}")


@pytest.mark.parametrize("difference", [-1, 1])
def test_parts_of_another_size_than_the_records_are_refused(
    here: Store, content: Path, tmp_path: Path, difference: int
) -> None:
    [*here.put("a", content)]
    record = here.find("a")
    assert record is not None
    record.size += difference
    with pytest.raises(IntegrityError):
        [*here.fetch(record, tmp_path / "back")]
    assert not (tmp_path / "back").exists()


def test_an_answer_too_long_for_what_was_asked_is_not_read(tmp_path: Path) -> None:
    part = "0" * 64
    with serving({"/a.json": boast, f"/parts/00/{part}": boast}) as site:
        store = Store(site.url)
        with pytest.raises(IntegrityError, match="100000000000 bytes"):
            store.find("a")
        with pytest.raises(IntegrityError, match="100000000000 bytes"):
            [*store.fetch(server.Record(key="a", size=1, parts=[part]), tmp_path / "part")]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that takes connections and never answers."""
    monkeypatch.setattr(server, "_silent", set())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Store(f"http://127.0.0.1:{listening.getsockname()[1]}/store")


def test_a_silent_store_is_asked_once(silent: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_ANSWER_SECONDS", 0.3)
    with pytest.raises(StoreError, match="no answer"):
        silent.find("a")
    monkeypatch.setattr(server, "_ANSWER_SECONDS", 60)
    for again in (silent, Store(silent.address)):
        with pytest.raises(StoreError, match="not asked"):
            again.find("b")


def test_a_store_that_this_user_may_not_read_is_named() -> None:
    class Closed:
        def get(self, path: str) -> None:
            raise PermissionError(f"{path}: Permission denied")

    store = Store("/closed")
    store.__dict__["_remote"] = Closed()
    with pytest.raises(StoreError, match=r"^/closed: a\.json: Permission denied$"):
        store.find("a")


def test_another_store_than_a_silent_one_is_asked(
    here: Store, content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_silent", {"https://silent.example"})
    for _ in here.put("a", content):
        pass
    assert here.find("a") is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_for_a_silent_store_is_interrupted(silent: Store, number: signal.Signals) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    with interrupts.stop_on_signals(), pytest.raises(KeyboardInterrupt):
        silent.find("a")


def test_the_environment_names_it(tmp_path: Path) -> None:
    assert server.named_store({}) is None
    found = server.named_store({server.STORE: "s3://bucket/prefix"})
    assert found == Store("s3://bucket/prefix")
    found = server.named_store({server.STORE: str(tmp_path), server.WRITES: "1"})
    assert found is not None
    assert found.writes
    for no in ("", "0"):
        found = server.named_store({server.STORE: str(tmp_path), server.WRITES: no})
        assert found is not None
        assert not found.writes
    for wrong in ("ftp://host", "http://", "redis://host"):
        with pytest.raises(UsageError, match=server.STORE):
            server.named_store({server.STORE: wrong})


def test_a_tree_comes_back_with_its_dates_modes_and_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "locked" / "below").mkdir(parents=True)
    (tree / "run").write_text("#!/bin/sh")
    (tree / "run").chmod(0o755)
    (tree / "locked" / "below" / "object.o").write_bytes(bytes(1000))
    (tree / "locked" / "below" / "object.o").chmod(0o464)
    (tree / "link").symlink_to("locked/below")
    os.link(tree / "run", tree / "same")
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
        exact = 1_700_000_000_003_456_789 + number
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
    with zstandard.open(tmp_path / "packed") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
        assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in archive} == {(0, 0, "", "")}


def test_links_keep_their_targets_where_the_filter_shortens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "f").write_text("reached")
    (tree / "d").symlink_to("a/b")
    (tree / "x").symlink_to("d/../f")
    former = tarfile.data_filter

    def shorten(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
        """As Python 3.13.5 does it."""
        safe = former(member, folder)
        return safe.replace(linkname=os.path.normpath(safe.linkname), deep=False) if safe.issym() else safe

    monkeypatch.setattr(tarfile, "data_filter", shorten)
    tree_archive.pack({"tree": tree}, tmp_path / "packed")
    tree_archive.unpack(tmp_path / "packed", tmp_path / "back")
    assert os.readlink(tmp_path / "back" / "tree" / "x") == "d/../f"
    assert (tmp_path / "back" / "tree" / "x").read_text() == "reached"


def _member(name: str, kind: bytes = tarfile.REGTYPE, leads_to: str = "", date: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, leads_to
    member.pax_headers = {"mtime": date} if date else {}
    return member


SYM, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    "members",
    [
        [_member("tree", SYM, "OUTSIDE"), _member("tree/planted")],
        [_member("tree", FOLDER), _member("tree/x", HARD, "OUTSIDE/victim"), _member("tree/x")],
        [_member("tree", FOLDER), _member("tree/x", HARD, "../../victim"), _member("tree/x")],
        [_member("tree", FOLDER), _member("tree/x", HARD, "../../victim")],
        [_member("tree", FOLDER), _member("tree/x", SYM, "../../victim")],
        [_member("tree", FOLDER), _member("tree/x", SYM, "OUTSIDE/victim")],
        # each leads inside at the moment in which it is unpacked
        [_member("tree", FOLDER), _member("tree/x", SYM, "later/../.."), _member("tree/later", SYM, ".")],
        [_member("tree", FOLDER), _member("tree/x", SYM, "."), _member("tree/x/planted")],
        [
            _member("tree", FOLDER),
            _member("tree/x", SYM, "y"),
            _member("tree/y"),
            _member("tree/z", HARD, "tree/x"),
        ],
        [_member("tree", FOLDER), _member("tree/x", SYM, "."), _member("tree/x/y/z/planted")],
        [_member("tree/a", FOLDER), _member("tree/a/x", SYM, "."), _member("tree/a/x/planted")],
        [_member("tree/x"), _member("tree/x")],
        [_member("tree/../../planted")],
        [_member("tree/device", tarfile.CHRTYPE)],
        [_member(f"tree/{'n' * 300}")],
        [_member("tree/" + "n/" * 2500 + "f")],
        [_member("tree/f", date="9" * 30)],
        [_member("tree", FOLDER, date="9" * 30)],
    ],
)
def test_a_tree_that_reaches_outside_is_refused(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    for victim in (tmp_path / "victim", tmp_path / "outside" / "victim"):
        victim.write_text("mine")
        victim.chmod(0o600)
    with (
        zstandard.open(tmp_path / "evil", "wb") as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for member in members:
            changed = copy.copy(member)
            changed.linkname = changed.linkname.replace("OUTSIDE", str(tmp_path / "outside"))
            archive.addfile(changed)
    with pytest.raises(IntegrityError, match="evil"):
        tree_archive.unpack(tmp_path / "evil", tmp_path / "back" / "unpacked")
    assert not (tmp_path / "back" / "unpacked").exists()
    left = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert left == [tmp_path / "evil", tmp_path / "outside" / "victim", tmp_path / "victim"]
    assert {(path.read_text(), path.stat().st_mode & 0o777) for path in left[1:]} == {("mine", 0o600)}


def test_a_tree_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "object").write_bytes(os.urandom(5000))
    tree_archive.pack({"tree": tmp_path / "tree"}, tmp_path / "packed")
    (tmp_path / "rest").write_bytes((tmp_path / "packed").read_bytes()[:-200])
    with pytest.raises(IntegrityError):
        tree_archive.unpack(tmp_path / "rest", tmp_path / "again")


def test_a_full_disk_is_no_damaged_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    tree_archive.pack({"tree": tmp_path / "tree"}, tmp_path / "packed")

    def fail(*_: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extract", fail)
    with pytest.raises(OSError, match="No space left"):
        tree_archive.unpack(tmp_path / "packed", tmp_path / "again")


def test_a_pipe_in_a_tree_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    with pytest.raises(IntegrityError, match="pipe"):
        tree_archive.pack({"tree": tmp_path / "tree"}, tmp_path / "packed")
