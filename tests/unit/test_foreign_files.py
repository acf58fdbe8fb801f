"""Files of other programs that are damaged, endless or no files: a sentence, never a traceback or a wait."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard
from calling import call
from slim_world import SITE, environment, install, venv

from command_line.run_command import Invocation
from groundwork import files
from groundwork.damage import reading_archive
from groundwork.errors import IntegrityError, OutOfSpaceError, PreflightError, ProviderError
from groundwork.network.channel_logins import Channels
from megabuild.engine import archive
from megabuild.plan import solving
from pin_audit.sources.pinning import _from_local
from pyg_extensions.pyg_index import PygIndex

DEEP = "[" * 100_000
STEM = "thing-1.0-0"
INDEX = {"name": "thing", "version": "1.0", "build": "0", "depends": []}
PATHS = {"paths": [{"_path": "lib/libthing.a", "path_type": "hardlink"}]}
WHEEL = "thing-1.0-py3-none-any.whl"
INFO = "thing-1.0.dist-info"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


@pytest.mark.parametrize("make", [pipe, endless, huge, Path.mkdir])
def test_only_a_file_of_some_megabytes_is_read_as_text(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match="not a file"):
        files.read_text(tmp_path / "x")


@pytest.mark.parametrize("name", ["editable.pth", "other/_x.so", "conda-meta/torch_scatter-2.1-0.json"])
def test_a_pipe_in_an_environment_does_not_block(name: str, invocation: Invocation, tmp_path: Path) -> None:
    root = venv(tmp_path / "env")
    install(root, "torch_scatter", {"torch_scatter/__init__.py": ""})
    (root / SITE / "torch").mkdir()
    path = root / name if name.startswith("conda-meta") else root / SITE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    assert call(invocation, "verify", str(root)).exit_code in (14, 19)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (f"{SITE}/torch/lib/libtorch_cuda.so", b"\x7fELF\x02\x01" + bytes(50) + b"\xff" * 100),
        ("conda-meta/torch_scatter-2.1-0.json", DEEP.encode()),
    ],
)
def test_a_damaged_file_of_an_environment_does_not_end_its_check(
    path: str, content: bytes, invocation: Invocation, tmp_path: Path
) -> None:
    root = environment(tmp_path / "env")
    install(root, "torch_scatter", {"torch_scatter/__init__.py": ""}, version="2.1")
    (root / SITE / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = '13.0'\n")
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).unlink(missing_ok=True)
    (root / path).write_bytes(content)
    assert call(invocation, "verify", str(root)).exit_code in (14, 19)


def conda(
    package: Path,
    *,
    about: str = "metadata.json",
    paths: object = PATHS,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """Write a conda package with a static library; ``headers`` are pax headers of the library."""
    with zipfile.ZipFile(package, "w") as outer:
        outer.writestr(about, "{}")
        info = {"info/index.json": json.dumps(INDEX), "info/paths.json": json.dumps(paths)}
        for part, content in (("pkg", {"lib/libthing.a": "!<arch>\n"}), ("info", info)):
            plain = io.BytesIO()
            with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as inner:
                for name, text in content.items():
                    member = tarfile.TarInfo(name)
                    member.size, member.pax_headers = len(text), dict(headers or {}) if part == "pkg" else {}
                    inner.addfile(member, io.BytesIO(text.encode()))
            outer.writestr(f"{part}-{STEM}.tar.zst", zstandard.compress(plain.getvalue()))
    return package


def test_a_package_whose_damage_shows_while_it_is_packed_is_damaged(
    invocation: Invocation, tmp_path: Path
) -> None:
    package = tmp_path / f"{STEM}.conda"
    out = str(tmp_path / "out")
    assert call(invocation, "slim", str(conda(package)), "-o", out).exit_code == 0
    damaged = [{"about": "other.json"}, {"paths": {"paths": [{"_path": ["x"]}]}}]
    for how in damaged:
        conda(package, **how)  # type: ignore[arg-type]
        answer = call(invocation, "slim", str(package), "-o", out)
        assert (answer.exit_code, "damaged" in answer.output or "malformed" in answer.output) == (6, True), (
            how
        )
    wheel = tmp_path / WHEEL
    for about in (None, b"\xff\xfe"):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("thing/libthing.a", "!<arch>\n")
            archive.writestr(f"{INFO}/METADATA", "Name: thing\n")
            archive.writestr(f"{INFO}/RECORD", "thing/libthing.a,,\n")
            if about:
                archive.writestr(f"{INFO}/WHEEL", about)
        assert call(invocation, "slim", str(wheel), "-o", out).exit_code == 6


def test_an_entry_of_a_size_that_no_file_has_is_not_skipped_for_hours(
    invocation: Invocation, tmp_path: Path
) -> None:
    package = conda(tmp_path / f"{STEM}.conda", headers={"size": "9" * 18})
    assert call(invocation, "sizes", str(package)).exit_code == 6


def test_a_limit_of_this_machine_is_no_damage_of_an_archive(tmp_path: Path) -> None:
    with pytest.raises(OutOfSpaceError), reading_archive(tmp_path):
        raise RuntimeError(f"failed to unpack: File too large (os error {errno.EFBIG})")
    with pytest.raises(PreflightError, match="memory"), reading_archive(tmp_path):
        raise ImportError("rattler.abi3.so: failed to map segment from shared object")
    with pytest.raises(PreflightError, match="memory"), reading_archive(tmp_path):
        raise zstandard.ZstdError("zstd compress error: Allocation error : not enough memory")
    denied, unreadable = PermissionError(13, "Permission denied", "/a"), OSError(5, "Input/output error")
    for error in (MemoryError(), ProviderError("no answer"), denied, unreadable):
        with pytest.raises(type(error)), reading_archive(tmp_path):
            raise error
    with pytest.raises(IntegrityError), reading_archive(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "No such file", "info/index.json")


def test_a_pipe_is_no_page_of_an_index_and_among_pins_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "torch-2.13.0+cpu.html")
    assert PygIndex(str(tmp_path)).wheels("2.13.0", "cpu") == ()
    os.mkfifo(tmp_path / "conda_build_config.yaml")
    with pytest.raises(Exception, match="not a file"):
        _from_local(tmp_path)


@pytest.mark.parametrize("text", ["Too many open files (os error 24)", "[Errno 24] Too many open files"])
def test_a_limit_of_this_machine_is_no_damage_of_a_built_package(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(*_: object, **__: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr("megabuild.engine.archive.files.open_regular", limited)
    with pytest.raises(PreflightError):
        archive.read(tmp_path / f"{STEM}.conda")
    monkeypatch.setattr("megabuild.plan.solving.solve", limited)
    with pytest.raises(PreflightError, match=r"Too many open files$"):
        solving.solved(
            [], Channels(by_priority=()), "linux-64", virtual={}, what="x", remedy="change the recipe"
        )
