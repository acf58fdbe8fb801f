"""Package files that depend on their content alone."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import py_compile
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard
from package_files import entries
from rattler.package import IndexJson, PathsJson
from rattler.package_streaming import extract
from rattler_build import assemble_package

from groundwork.errors import IntegrityError
from megabuild.engine import archive, reproducible

DATE = 1_750_000_000


def package(folder: Path, *, modified: int, depends: list[str]) -> Path:
    """Assemble a package with a module and its byte code, made at a time."""
    content = folder / "content" / "lib" / "site-packages"
    content.mkdir(parents=True)
    module = content / "module.py"
    module.write_text("ANSWER = 42\n")
    os.utime(module, (modified, modified))
    py_compile.compile(
        str(module), dfile="module.py", invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP
    )
    return assemble(folder, folder / "content", depends, modified)


def assemble(folder: Path, content: Path, depends: list[str], modified: int = DATE) -> Path:
    """Assemble a package of files."""
    assemble_package(
        name="one", version="1.0", build_string="0", target_platform="linux-64", output_dir=folder,
        files_dir=content, depends=depends, detect_prefix=False,
        timestamp=datetime.fromtimestamp(modified, timezone.utc),
    )  # fmt: skip
    (made,) = folder.rglob("*.conda")
    return made


def test_time_place_and_order_leave_no_trace(tmp_path: Path) -> None:
    one = package(tmp_path / "one", modified=1_600_000_000, depends=["python", "libc"])
    two = package(tmp_path / "two", modified=1_700_000_000, depends=["libc", "python"])
    assert one.read_bytes() != two.read_bytes()
    for made in (one, two):
        reproducible.normalise(made, made, DATE, level=1)
        assert not list(made.parent.glob(".tmp*"))
    assert one.read_bytes() == two.read_bytes()
    again = hashlib.sha256(one.read_bytes()).hexdigest()
    reproducible.normalise(one, one, DATE, level=1)
    assert hashlib.sha256(one.read_bytes()).hexdigest() == again, "twice is once"


def test_what_is_installed_is_what_the_package_says_and_python_uses_its_byte_code(tmp_path: Path) -> None:
    made = package(tmp_path / "one", modified=1_600_000_000, depends=["python"])
    reproducible.normalise(made, made, DATE, level=1)
    index = IndexJson.from_package_archive(made)
    assert index.timestamp is not None
    assert index.timestamp.timestamp() == DATE
    assert archive.read(made).files
    extract(made, tmp_path / "prefix")
    for entry in PathsJson.from_package_archive(made).paths:
        content = (tmp_path / "prefix" / entry.relative_path).read_bytes()
        assert entry.sha256 is not None
        assert (entry.sha256.hex(), entry.size_in_bytes) == (
            hashlib.sha256(content).hexdigest(),
            len(content),
        )
    modules = tmp_path / "prefix" / "lib" / "site-packages"
    said = subprocess.run(
        [sys.executable, "-v", "-c", "import module"], capture_output=True, text=True, check=True,
        cwd=modules, env={"PYTHONPATH": str(modules)},
    ).stderr  # fmt: skip
    cached = importlib.util.cache_from_source(str(modules / "module.py"))
    assert f"code object from '{cached}'" in said, "stale byte code would be compiled anew at every start"


def test_a_program_stays_one_and_a_link_leads_where_it_led(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.mkdir()
    for name, mode in {"program": 0o750, "library": 0o640}.items():
        (content / name).write_text(name)
        (content / name).chmod(mode)
    (content / "link").symlink_to("library")
    made = assemble(tmp_path / "one", content, [])
    reproducible.normalise(made, made, DATE, level=1)
    found = {name: (one.mode, one.link) for name, one in entries(made).items() if name in os.listdir(content)}
    assert (found["program"], found["library"], found["link"][1]) == (("0o755", ""), ("0o644", ""), "library")


def test_a_kill_in_the_middle_leaves_the_package_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package(tmp_path / "one", modified=1_600_000_000, depends=[])
    before = made.read_bytes()

    def full(name: str, *_: object) -> None:
        if name == "info/paths.json":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(reproducible, "_edit", full)
    with pytest.raises(OSError, match="No space"):
        reproducible.normalise(made, made, DATE, level=1)
    assert made.read_bytes() == before
    assert not list(made.parent.glob(".tmp*"))


@pytest.mark.parametrize("reads", [0, 1])
def test_a_copy_ends_when_the_run_does(reads: int, tmp_path: Path) -> None:
    made = package(tmp_path / "one", modified=1_600_000_000, depends=[])
    target = tmp_path / "finished" / made.name
    counted: list[int] = []

    def halt() -> None:
        counted.append(1)
        if len(counted) > reads:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproducible.normalise(made, target, DATE, level=1, halt=halt)
    assert not list(target.parent.iterdir())


def test_a_package_that_cannot_be_read_is_named_with_a_remedy(tmp_path: Path) -> None:
    made = package(tmp_path / "one", modified=1_600_000_000, depends=[])
    content = made.read_bytes()
    for cut in (0, 30, len(content) // 2, len(content) - 5):
        made.write_bytes(content[:cut])
        with pytest.raises(IntegrityError, match=made.name) as caught:
            reproducible.normalise(made, tmp_path / "finished" / made.name, DATE, level=1)
        assert caught.value.remedy == "delete this package and run again"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("local", [True, False])
def test_a_package_asks_for_the_glibc_that_its_symbols_need(tmp_path: Path, local: bool) -> None:
    lib = tmp_path / "content" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "one.c").write_text(
        "#include <sys/random.h>\nint f(char *p) { return getrandom(p, 1, 0); }\n"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(lib / "libone.so"), str(tmp_path / "one.c")], check=True
    )
    (lib / "torn.so").write_bytes((lib / "libone.so").read_bytes()[:100])
    made = assemble(
        tmp_path, tmp_path / "content", ["__glibc >=2.41,<3.0.a0", "__glibc >=2.5", "libgcc >=12"]
    )
    reproducible.normalise(made, made, DATE, level=1, local=local)
    pin = "__glibc >=2.25,<3.0.a0" if local else "__glibc >=2.41,<3.0.a0"  # getrandom came with 2.25
    assert IndexJson.from_package_archive(made).depends == sorted(["__glibc >=2.5", pin, "libgcc >=12"])
    extract(made, tmp_path / "prefix")
    assert (tmp_path / "prefix" / "lib" / "libone.so").read_bytes() == (lib / "libone.so").read_bytes()


def test_marks_that_are_no_versions_count_and_nobody_has_an_older_glibc_than_the_oldest() -> None:
    pin = "__glibc >={},<3.0.a0"
    for needed, version in (
        ({"ABI_DT_RELR"}, "2.36"), ({"ABI_OF_2031", "2.9"}, "2.41"), ({"2.2.5"}, "2.17"), ({"2.9", "2.32"}, "2.32"),
    ):  # fmt: skip
        assert reproducible.pin_glibc([pin.format("2.41")], needed) == [pin.format(version)]


def test_what_a_build_may_have_made_is_neither_followed_nor_written_to(tmp_path: Path) -> None:
    made = package(tmp_path / "one", modified=DATE, depends=[])
    before, mine = made.read_bytes(), tmp_path / "mine"
    mine.write_text("mine")
    target = tmp_path / "finished" / "linux-64" / made.name
    target.parent.mkdir(parents=True)
    (target.parent / f".tmp-{made.name}").symlink_to(mine)
    reproducible.normalise(made, target, DATE, level=1)
    assert (made.read_bytes(), mine.read_text()) == (before, "mine")
    assert archive.read(target).package.name == "one"
    assert list(target.parent.iterdir()) == [target]
    (tmp_path / "link.conda").symlink_to(made)
    with pytest.raises(IntegrityError, match=r"link\.conda .*link"):
        reproducible.normalise(tmp_path / "link.conda", target, DATE, level=1)


def handmade(path: Path, files: dict[str, bytes], info: dict[str, Any]) -> None:
    """Write a package whose entries have traces of the user who made it."""
    inner = {"info-one": {f"info/{name}.json": json.dumps(facts).encode() for name, facts in info.items()}}
    inner["pkg-one"] = files
    with zipfile.ZipFile(path, "x") as outer:
        outer.writestr("metadata.json", "{}")
        for name, contents in inner.items():
            raw = io.BytesIO()
            with tarfile.open(fileobj=raw, mode="w") as tar:
                for number, (place, content) in enumerate(contents.items()):
                    member = tarfile.TarInfo(place)
                    member.size = len(content)
                    member.mode = 0o654 if number else 0o701
                    member.mtime, member.uid, member.gid = number, 1000, 1001
                    member.uname, member.gname = "user", "group"
                    tar.addfile(member, io.BytesIO(content))
                link = tarfile.TarInfo(f"{name}.link")
                link.type, link.linkname, link.mtime = tarfile.SYMTYPE, "x", 5
                tar.addfile(link)
            outer.writestr(f"{name}.tar.zst", zstandard.compress(raw.getvalue()))


def test_nothing_of_the_machine_that_made_a_package_stays_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte code with the hash of its source is not dated. Of all libraries' glibc versions, the newest counts."""
    monkeypatch.setattr(reproducible, "ElfFile", lambda mapped: mapped[4:8].decode())
    monkeypatch.setattr(reproducible, "needed_glibc", lambda version: [version])
    hashed = b"\0" * 4 + b"\1\0\0\0" + b"hash of the source"
    files = {"bin/tool": b"x", "lib/a.so": b"\x7fELF2.28", "lib/b.so": b"\x7fELF2.34", "c.pyc": hashed}
    index = {"depends": ["b", "__glibc >=2.17,<3.0.a0"], "constrains": ["d", "c"], "timestamp": 1}
    about = {"channels": ["file:///home/user/x", "https://c.example/c/"]}
    handmade(tmp_path / "one.conda", files, {"index": index, "about": about, "paths": {"paths": []}})
    normalised = partial(
        reproducible.normalise, tmp_path / "one.conda", tmp_path / "new.conda", DATE, level=1
    )
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    umask = os.umask(0o077)
    try:
        normalised(local=True, channels=["https://s.example/s"])
    finally:
        os.umask(umask)
        monkeypatch.undo()
        time.tzset()
    assert (tmp_path / "new.conda").stat().st_mode & 0o777 == 0o644
    found: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    with zipfile.ZipFile(tmp_path / "new.conda") as outer:
        assert {entry.date_time for entry in outer.infolist()} == {time.gmtime(DATE)[:6]}
        for name in ("pkg-one", "info-one"):
            raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(outer.read(f"{name}.tar.zst"))).read()
            with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
                for member in tar:
                    traces = (member.mtime, member.uid, member.gid, member.uname, member.gname)
                    assert traces == (DATE, 0, 0, "", ""), member.name
                    content = tar.extractfile(member) if member.isreg() else None
                    if content is not None:
                        found[member.name] = content.read()
                        modes[member.name] = member.mode
    assert (modes["bin/tool"], modes["lib/a.so"]) == (0o755, 0o644), "as its owner may run it"
    assert {name: found[name] for name in files} == files
    index = json.loads(found["info/index.json"])
    assert index == {
        "depends": ["__glibc >=2.34,<3.0.a0", "b"], "constrains": ["c", "d"], "timestamp": DATE * 1000
    }  # fmt: skip
    channels = json.loads(found["info/about.json"])["channels"]
    assert channels == ["https://c.example/c/", "https://s.example/s/"]


def test_the_symbols_of_each_needed_library_count() -> None:
    names = b"\0GLIBC_2.2\0GLIBC_2.34\0"
    needs = b""
    for name, following in ((b"GLIBC_2.2\0", 32), (b"GLIBC_2.34\0", 0)):
        needs += struct.pack("<HHIII", 1, 1, 0, 16, following) + struct.pack("<8xII", names.index(name), 0)
    sections = {".gnu.version_r": needs, ".dynstr": names}
    library = cast(Any, SimpleNamespace(content=sections.__getitem__))
    assert [*reproducible.needed_glibc(library)] == ["2.2", "2.34"]
