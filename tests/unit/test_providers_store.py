"""The store of packages and the channels made from it."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from rattler.package import IndexJson, RunExportsJson
from small_files import program, write

from groundwork.channel import Channel
from groundwork.channel_folder import MADE_OF, listed_hashes, package_keys
from groundwork.errors import OutOfSpaceError, ProviderError
from groundwork.files import sha256
from groundwork.progress import Preparing
from megabuild.plan import solving
from megabuild.providers.command import run
from megabuild.providers.environment import Environment
from megabuild.providers.local import assemble, package_store
from megabuild.providers.local.package import LocalPackage, build
from megabuild.providers.local.package_store import PackageStore, planned

SUBDIRS = ("linux-64", "noarch")


class _Filler:
    """Writes a file and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, prefix: Path) -> None:
        self.calls += 1
        (prefix / "share").mkdir()
        (prefix / "share" / "file").write_text("/it's [old] & $1.d/bin /older/bin")


def _package(fill: _Filler) -> LocalPackage:
    return LocalPackage(
        name="thing", version="1.0", platform="linux-64", inputs={"source": "a"},
        run_exports={"strong": ("thing >=1",)}, relocate="/it's [old] & $1.d", fill=fill,
    )  # fmt: skip


def _quiet(_: object) -> None:
    pass


def _with_modules(interpreter: Path) -> LocalPackage:
    """Describe a package of modules: a usual one, one that names the prefix, a template, and a test."""

    def fill(prefix: Path) -> None:
        write(prefix / "lib/usual.py", "x = 1\n")
        write(prefix / "lib/place.py", "prefix = '/old/prefix'\n")
        write(prefix / "lib/template.py", "import {{ name }}\n")
        write(prefix / "lib/tests/test_usual.py", "x = 1\n")

    return LocalPackage(
        name="modules", version="1.0", platform="linux-64", relocate="/old/prefix", interpreter=interpreter,
        fill=fill,
    )  # fmt: skip


def test_modules_have_byte_code_unless_installing_changes_their_text(tmp_path: Path) -> None:
    built = build(_with_modules(Path(sys.executable)), tmp_path)
    contents = _contents(built)
    codes = [name for name in contents if name.endswith(".pyc")]
    assert codes == [f"lib/__pycache__/usual.{sys.implementation.cache_tag}.pyc"]
    code = contents[codes[0]]
    flags, date, size = struct.unpack("<III", code[4:16])
    assert (flags, date, size) == (0, 1_000_000_000, len("x = 1\n")), "Python uses it for this module only"
    assert str(tmp_path).encode() not in code
    assert {name for name in contents if name.endswith(".py")} == {
        "lib/usual.py", "lib/place.py", "lib/template.py", "lib/tests/test_usual.py",
    }  # fmt: skip


def test_an_interpreter_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="compiling the modules of modules"):
        build(_with_modules(tmp_path / "nowhere"), tmp_path / "work")


def _contents(package: Path) -> dict[str, bytes]:
    """Return the content of a package's files."""
    with zipfile.ZipFile(package) as archive:
        (name,) = (name for name in archive.namelist() if name.startswith("pkg-"))
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(archive.read(name))).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        members = [member for member in files if member.isreg()]
        return {member.name: _read(files, member) for member in members}


def _read(files: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = files.extractfile(member)
    assert content is not None
    return content.read()


def test_a_package_is_built_again_only_when_its_inputs_change(tmp_path: Path) -> None:
    fill = _Filler()
    package = _package(fill)
    changed = replace(package, inputs={"source": "b"})
    assert package.build_string != changed.build_string
    notes: list[object] = []
    for packages, calls in (([package, package], 1), ([package], 1), ([changed, package], 2)):
        PackageStore(tmp_path).ensure(packages, notes.append)
        assert fill.calls == calls
        assert PackageStore(tmp_path).missing(packages) == []
    assert [(note.done, note.total) for note in notes if isinstance(note, Preparing)] == [(0, 1), (1, 1)] * 2


def test_files_are_dated_alike_whenever_they_were_packed_and_name_their_prefix(tmp_path: Path) -> None:
    """Else ninja would compile a tree again that another machine has made, before its headers were packed here."""
    store, package = PackageStore(tmp_path), _package(_Filler())
    store.ensure([package], _quiet)
    with zipfile.ZipFile(store.path(package)) as parts:
        (name,) = (name for name in parts.namelist() if name.startswith("pkg-"))
        content = zstandard.ZstdDecompressor().stream_reader(parts.read(name)).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        (member,) = archive
        packed = archive.extractfile(member)
        assert packed is not None
        named, kept = packed.read().split()
        assert (member.name, member.mtime) == ("share/file", 1_000_000_000)
        assert named.endswith(b"/bin")
        assert (b"/it's [old] & $1.d" in named, kept) == (False, b"/older/bin")


@pytest.mark.parametrize("program_of_script", ["grep", "sed"])
def test_files_that_cannot_all_be_searched_for_their_prefix_are_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program_of_script: str
) -> None:
    program(tmp_path / "bin" / program_of_script, "echo 'Input/output error' >&2; exit 2")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(ProviderError, match=r"packaging thing 1\.0: (?s:.*)Script failed"):
        build(_package(_Filler()), tmp_path / "work")


def test_a_package_without_its_prefix_is_packed(tmp_path: Path) -> None:
    built = build(replace(_package(_Filler()), relocate="/elsewhere"), tmp_path / "work")
    assert _contents(built)["share/file"] == b"/it's [old] & $1.d/bin /older/bin"


def test_an_engine_that_cannot_pack_says_so_in_a_line() -> None:
    argv = [sys.executable, "-I", "-S", assemble.__file__, "recipe.json", "output", "linux-64"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "ModuleNotFoundError: No module named 'rattler_build'\n"


def test_a_failure_leaves_nothing_behind_and_the_next_run_succeeds(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise KeyboardInterrupt

    package = _package(_Filler())
    with pytest.raises(KeyboardInterrupt):
        PackageStore(tmp_path).ensure([replace(package, fill=fail)], _quiet)
    assert not list(tmp_path.glob("store/*"))
    store, (left,) = PackageStore(tmp_path), (tmp_path / "tmp").iterdir()
    store.ensure([package], _quiet)
    assert not left.exists()
    assert store.path(package).is_file()


@pytest.mark.parametrize("linked", [True, False])
def test_a_damaged_package_and_channel_are_made_again_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # what vfat answers

    if not linked:
        monkeypatch.setattr(os, "link", refused)
    store, packages, said = PackageStore(tmp_path), [_package(_Filler())], list[object]()
    assert store.whole(packages) is None
    store.ensure(packages, _quiet)
    made = store.channel(packages, SUBDIRS)
    file = made / "linux-64" / packages[0].id.file_name
    index, before = made / "linux-64" / "repodata.json", made.stat().st_ino
    assert (store.whole(packages), store.channel(packages, SUBDIRS)) == (made, made)
    assert made.stat().st_ino == before, "not made again"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)  # where it is linked, the store's, too
    assert store.whole(packages) is None
    store.ensure(packages, said.append)
    assert ("damaged" in str(said[:1])) == linked
    assert store.channel(packages, SUBDIRS) == made
    assert listed_hashes(made) == {f"linux-64/{file.name}": sha256(file)}
    assert sha256(file) == sha256(store.path(packages[0]))
    with monkeypatch.context() as patched:
        patched.setattr(package_store, "package_keys", refused)
        assert store.whole(packages) is None, "it is made again"
    index.write_text(index.read_text()[:-30])
    assert listed_hashes(made) is None
    store.channel(packages, SUBDIRS)
    assert listed_hashes(made) == {f"linux-64/{file.name}": sha256(file)}


def test_a_package_of_another_channel_is_not_taken_for_one_made_here(tmp_path: Path) -> None:
    packages = [LocalPackage(name="thing", version="1", build=build, platform="linux-64") for build in "01"]
    stores = [PackageStore(tmp_path / name) for name in ("first", "second")]
    channels = []
    for store, wanted in zip(stores, (packages[:1], packages), strict=True):
        store.ensure(wanted, _quiet)
        channels.append(store.channel(wanted, SUBDIRS))
    write(channels[0] / MADE_OF, json.dumps({packages[1].path: "f" * 64}))
    given = Environment(channels=(Channel.of_folder(channels[1]), Channel.of_folder(channels[0])), pythons=())
    for package in packages:
        solved = solving.environment([f"thing ==1 {package.build}"], given, "linux-64", "x")
        assert solved == {"thing": f"1 {package.build} {package.key[:16]}"}


def test_a_channel_of_a_former_release_keeps_its_keys(tmp_path: Path) -> None:
    package = _package(_Filler())
    store = PackageStore(tmp_path)
    store.ensure([package], _quiet)
    made = store.channel([package], SUBDIRS)
    write(made / MADE_OF, json.dumps({package.id.file_name: package.key, "gone-1-0.conda": "f"}))
    assert package_keys(made) == {package.path: package.key, "gone-1-0.conda": "f"}


def test_a_planned_channel_solves_to_what_will_be_made(tmp_path: Path) -> None:
    packages = [
        replace(_package(_Filler()), depends=("other >=1",), constrains=("third <1",)),
        LocalPackage(name="other", version="2.0", platform="linux-64", noarch="generic"),
    ]
    store = PackageStore(tmp_path / "made")
    store.ensure(packages, _quiet)
    only_planned = planned(tmp_path / "planned", packages, SUBDIRS)
    assert not list(only_planned.rglob("*.conda"))
    solved = [
        solving.environment(
            ["thing"], Environment(channels=(Channel.of_folder(channel),), pythons=()), "linux-64", "it"
        )
        for channel in (store.channel(packages, SUBDIRS), only_planned)
    ]
    assert solved[0] == solved[1]
    assert list(solved[0]) == ["other", "thing"]


def test_packages_of_one_name_for_two_platforms_are_told_apart(tmp_path: Path) -> None:
    """Stand-ins of a rehearsal that cross-compiles have the same version and build string for both platforms."""
    platforms = ("linux-aarch64", "linux-64")
    packages = [LocalPackage(name="thing", version="1.0", platform=each, build="0") for each in platforms]
    store = PackageStore(tmp_path)
    hashes: dict[str, str] = {}
    for package in packages:
        file = write(store.path(package), package.platform)
        hashes[package.path] = sha256(file)
        write(file.with_name("record.json"), json.dumps({"sha256": sha256(file)}))
    channel = store.channel(packages, (*platforms, "noarch"))
    assert listed_hashes(channel) == hashes
    assert package_keys(channel) == {package.path: package.key for package in packages}
    given = Environment(channels=(Channel.of_folder(channel),), pythons=())
    for package in packages:
        solved = solving.environment(["thing"], given, package.platform, "it")
        assert solved == {"thing": f"1.0 0 {package.key[:16]}"}
    index = channel / "linux-aarch64" / "repodata.json"
    first, second = hashes.values()
    index.write_text(index.read_text().replace(first, second))
    assert store.whole(packages) is None, "the hash is the other platform's"
    for_all = {replace(package, noarch="generic").key for package in packages}
    assert len(for_all) == 1, "one package for both"


def test_everybody_may_read_a_channel_whatever_the_umask(tmp_path: Path) -> None:
    package = LocalPackage(name="thing", version="1.0", platform="linux-64", build="0")
    store = PackageStore(tmp_path)
    before = os.umask(0o077)
    try:
        file = write(store.path(package), "content")
        write(file.with_name("record.json"), json.dumps({"sha256": sha256(file)}))
        channel = store.channel([package], SUBDIRS)
    finally:
        os.umask(before)
    for path in (channel, channel / "noarch", channel / "noarch/repodata.json", channel / package.path):
        assert path.stat().st_mode & 0o444 == 0o444, path


def test_a_channel_of_a_former_release_has_keys_by_file_name(tmp_path: Path) -> None:
    package = LocalPackage(name="thing", version="1.0", platform="linux-64")
    store = PackageStore(tmp_path)
    file = write(store.path(package), "content")
    write(file.with_name("record.json"), json.dumps({"sha256": sha256(file)}))
    channel = store.channel([package], SUBDIRS)
    (channel / MADE_OF).write_text(json.dumps({package.id.file_name: package.key}))
    assert store.whole([package]) == channel, "a running build may use it"
    given = Environment(channels=(Channel.of_folder(channel),), pythons=())
    assert solving.environment(["thing"], given, "linux-64", "it")["thing"].endswith(package.key[:16])


def test_a_program_that_reports_a_full_disk_is_told_from_a_failed_one(tmp_path: Path) -> None:
    program = ["sh", "-c", "echo 'cp: No space left on device' >&2; exit 1"]
    with pytest.raises(OutOfSpaceError, match="copying: ") as full:
        run(program, what="copying", writes=tmp_path)
    assert "set MEGABUILD_CACHE to a folder on another disk" in full.value.remedy
    with pytest.raises(ProviderError, match="copying: sh ") as failed:
        run(["sh", "-c", "exit 1"], what="copying", remedy="its own", writes=tmp_path)
    assert failed.value.remedy == "its own"


@pytest.mark.parametrize("guarded", [False, True])
def test_the_cause_of_a_failure_is_told_whichever_stream_has_it(guarded: bool, tmp_path: Path) -> None:
    for printed in (
        "echo cause",
        "echo cause >&2",
        "echo progress; echo cause >&2",
        "echo cause; echo end >&2",
        "seq 40; echo cause >&2",
    ):
        with pytest.raises(ProviderError, match=r"copying: sh [^\0]*cause"):
            run(["sh", "-c", f"{printed}; exit 1"], what="copying", guarded=guarded)
    full = "echo progress; echo 'cp: No space left on device' >&2; exit 1"
    with pytest.raises(OutOfSpaceError, match="copying: "):
        run(["sh", "-c", full], what="copying", guarded=guarded, writes=tmp_path)


def test_a_package_s_file_has_the_requirements_of_its_description(tmp_path: Path) -> None:
    modules = "lib/python3.14t/site-packages"
    package = LocalPackage(
        name="python", version="3.14.1", build="h{hash}_7", build_number=7, platform="linux-64",
        depends=("other >=1",), constrains=("third <1",), site_packages=modules, run_exports={"weak": ("abi 3.*",)},
    )  # fmt: skip
    file = build(package, tmp_path)
    assert RunExportsJson.from_package_archive(file).weak == ["abi 3.*"]
    index = IndexJson.from_package_archive(file)
    assert (index.depends, index.constrains) == (["other >=1"], ["third <1"])
    assert (str(index.build), index.build_number) == (package.build_string, package.build_number)
    assert index.python_site_packages_path == modules
    channel = planned(tmp_path / "planned", [package], SUBDIRS)
    listed = json.loads((channel / "linux-64" / "repodata.json").read_text())
    (entry,) = listed["packages.conda"].values()
    assert entry["python_site_packages_path"] == modules, "a plan's solver reads it there"


def test_the_output_and_the_time_of_a_guarded_program_are_the_caller_s() -> None:
    both = ["sh", "-c", "echo out; printf 'err\\377\\n' >&2"]
    assert run(both, what="x", guarded=True) == "out\nerr\ufffd\n"
    with pytest.raises(ProviderError, match="timed out after 1 s"):
        run(["sleep", "30"], what="x", timeout=1, guarded=True)


def test_a_guarded_program_ends_with_the_command_that_ctrl_c_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def communicate(self: subprocess.Popen[str], **_: object) -> None:
        started.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    with pytest.raises(KeyboardInterrupt):
        run(["sleep", "600"], what="x", guarded=True)
    assert started[0].returncode is not None
