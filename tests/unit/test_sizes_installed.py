"""Environments: what belongs to whom, every byte once, and nothing outside of them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from sizes_files import GPU_CODE, elf
from slim_world import SITE, install
from small_files import write

from gpu_tools import contents
from gpu_tools.contents import BACKUP, scan
from gpu_tools.file_lists import correct_list
from gpu_tools.sizes import installed
from gpu_tools.sizes.measure import measure
from gpu_tools.sizes.tree import NO_PACKAGE, Package, Sizes
from groundwork.errors import IntegrityError, UsageError


def truth(folder: Path) -> int:
    """Return what find says that regular files take, hard links once."""
    command = ["find", str(folder), "-type", "f", "-printf", "%D:%i %s\n"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return sum(int(line.split()[1]) for line in set(listed.splitlines()))


def named(sizes: Sizes, name: str) -> Package:
    return next(package for package in sizes.packages if package.name == name)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    prefix = tmp_path / "venv"
    write(prefix / "pyvenv.cfg", b"home = /usr/bin\n")
    torch = {
        "torch/__init__.py": b"import this\n",
        "torch/lib/libtorch_cuda.so": elf([(".text", b"t" * 5000), (".nv_fatbin", GPU_CODE)]),
        "../../../bin/torchrun": b"#!/bin/sh\n",
    }
    kernels = f"Some.Kernels[cuda]==1.0; python_version == '3.{sys.version_info.minor}'"
    install(prefix, "torch", torch, requires=(kernels, "absent", "numpy; python_version < '3'"))
    requires = ("blas; extra == 'cuda'", "not !! one")
    install(prefix, "some_kernels", {"kernels.py": b"k" * 90}, requires=requires)
    install(prefix, "blas", {"blas.py": b"b" * 70})
    return prefix


def test_of_two_versions_the_one_with_its_files_counts(tmp_path: Path) -> None:
    install(tmp_path, "demo", {"demo/a.bin": b"a" * 90, "demo/old.bin": b"o"}, version="1.0")
    install(tmp_path, "demo", {"demo/a.bin": b"a" * 90, "demo/new.bin": b"n"}, version="2.0")
    assert named(measure(tmp_path), "demo").version == "2.0", "the newest of those with all files"
    (tmp_path / SITE / "demo/old.bin").unlink()
    sizes = measure(tmp_path)
    assert named(sizes, "demo").version == "2.0"
    assert "demo: metadata of 1.0 was left behind; counted as 2.0" in sizes.remarks
    (tmp_path / SITE / "demo/new.bin").rename(tmp_path / SITE / "demo/old.bin")
    assert named(measure(tmp_path), "demo").version == "1.0"


def test_a_version_that_pip_has_put_over_conda_s_counts(tmp_path: Path) -> None:
    install(tmp_path, "demo", {"demo/a.bin": b"a" * 90}, version="2.0")
    record = {"name": "demo", "version": "3.0", "files": [f"{SITE}/demo/a.bin"], "depends": []}
    write(tmp_path / "conda-meta/demo-3.0-h0.json", json.dumps(record))
    sizes = measure(tmp_path)
    assert (named(sizes, "demo").version, named(sizes, "demo").installed) == ("2.0", truth(tmp_path))


@pytest.mark.parametrize("linked", [False, True])
def test_absolute_paths_of_a_record_have_their_owner(linked: bool, tmp_path: Path) -> None:
    root = tmp_path / "env"
    record = install(root, "demo", {"demo/a.bin": b"a" * 90})
    (tmp_path / "link").symlink_to(root)
    record.write_text(record.read_text().replace("demo/a.bin", str(root / SITE / "demo/a.bin")))
    sizes = measure(tmp_path / "link" if linked else root)
    assert {Path(path).name for path in named(sizes, "demo").files} >= {"a.bin"}
    assert not [package for package in sizes.packages if package.name == NO_PACKAGE]
    left = correct_list(record, str(record.relative_to(root)), {f"{SITE}/demo/a.bin"}, {})
    assert left is not None
    assert "a.bin" not in left


def test_the_sum_is_what_the_disk_says_and_every_file_has_its_owner(venv: Path) -> None:
    site = venv / SITE
    write(site / "torch/__pycache__/__init__.cpython-312.pyc", b"c" * 40)  # as Python does, in no RECORD
    write(site / "left_behind.bin", b"?" * 33)
    os.link(site / "torch/lib/libtorch_cuda.so", site / "torch/lib/libtorch_cuda.so.1")
    (site / "torch/lib/loop").symlink_to(".")
    (site / "torch/lib/outside.so").symlink_to("/usr/bin/env")
    (venv / "lib64").symlink_to("lib")
    os.mkfifo(venv / "pipe")
    sizes = measure(venv)
    assert sizes.installed == truth(venv)
    assert (
        sum(package.installed for package in sizes.packages) == sum(sizes.parts.values()) == sizes.installed
    )
    torch = named(sizes, "torch")
    assert {"bin/torchrun", f"{SITE}/torch/__pycache__/__init__.cpython-312.pyc"} <= torch.files.keys()
    assert named(sizes, NO_PACKAGE).files.keys() == {"pyvenv.cfg", f"{SITE}/left_behind.bin"}
    assert sizes.unattributed >= 33
    by = {package.name: package.required_by for package in sizes.packages}
    assert by == {"torch": (), "some-kernels": ("torch",), "blas": ("some-kernels",), NO_PACKAGE: ()}


def test_neither_leftovers_of_pip_nor_a_hostile_record_belong_to_a_package(venv: Path) -> None:
    write(venv / SITE / "~las/x.bin", b"x" * 500)
    write(venv / SITE / "~las-0.9.dist-info/METADATA", b"Name: blas\nVersion: 0.9\n")
    write(venv / SITE / "~las-0.9.dist-info/RECORD", b"~las/x.bin,,\n")
    outside = write(venv.parent / "secret", b"s" * 999)
    install(venv, "evil", {}, more=("../../../../secret", "/etc/passwd", "", "a\0b", "../" * 40))
    sizes = measure(venv)
    assert named(sizes, "blas").version == "1"
    assert f"{SITE}/~las/x.bin" in named(sizes, NO_PACKAGE).files
    assert sizes.installed == truth(venv)
    assert not any(outside.name in path for package in sizes.packages for path in package.files)


def test_metadata_that_cannot_be_read_are_a_remark(venv: Path) -> None:
    write(venv / SITE / "odd-1.0.dist-info/METADATA", b"\xff\xfe\x00")
    write(venv / SITE / "nameless-1.0.dist-info/METADATA", b"Version: 1\n")
    metadata = b"Name: listed\nVersion: 1.0\nRequires-Dist: \xc3\xa9;;\n"
    write(venv / SITE / "listed-1.0.dist-info/METADATA", metadata)
    write(venv / SITE / "listed-1.0.dist-info/RECORD", b'"never ends,\n' * 3)
    write(venv / SITE / "endless-1.0.dist-info/RECORD", b"x" * 200_000)
    write(venv / "conda-meta/broken.json", b"{")
    write(venv / "conda-meta/list.json", b"[1]")
    sizes = measure(venv)
    assert sizes.installed == truth(venv)
    for file in ("endless-1.0.dist-info/RECORD", "conda-meta/broken.json", "conda-meta/list.json"):
        assert any(file in remark for remark in sizes.remarks)


def test_files_that_cannot_be_read_are_a_remark(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "read_parts", Mock(side_effect=OSError(5, "Input/output error")))
    sizes = measure(venv)
    assert sizes.installed == truth(venv)
    assert any("unreadable files: [Errno 5]" in remark for remark in sizes.remarks)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), ValueError("odd"), IntegrityError("odd")]
)
def test_a_file_list_that_cannot_be_read_is_a_remark_or_an_error(
    error: Exception, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "read_list", Mock(side_effect=error))
    remarks: list[str] = []
    assert scan(venv, name="venv", remarks=remarks).lists == ()
    assert set(remarks) == {f"not read: {error}"}
    with pytest.raises(type(error)):
        scan(venv, name="venv")


def test_condas_records_say_owner_and_dependencies(tmp_path: Path) -> None:
    prefix = tmp_path / "conda"
    install(prefix, "torch", {"torch/__init__.py": b"x" * 30})
    write(prefix / SITE / "torch-1.dist-info/INSTALLER", b"conda")
    write(prefix / "lib/libtorch.so", elf([(".text", b"t" * 800)]))
    records: dict[str, dict[str, object]] = {
        "pytorch": {
            "version": "2.0", "depends": ["libtorch 2.0 h0", "_x_m"],
            "files": [f"{SITE}/torch/__init__.py", f"{SITE}/torch-1.dist-info/RECORD"],
        },
        "libtorch": {"version": "2.0", "files": ["lib/libtorch.so", "../../etc/passwd"], "depends": []},
        "_x_m": {"version": "1", "files": [], "depends": ["__glibc >=2.17"]},
    }  # fmt: skip
    for name, record in records.items():
        write(prefix / f"conda-meta/{name}-2.0-h0.json", json.dumps({"name": name, **record}).encode())
    # conda's own environment holds its cache, of which files are hard links
    (prefix / "another").mkdir()
    os.link(prefix / "lib/libtorch.so", prefix / "another/libtorch.so")
    write(prefix / "another/libtorch-2.0-h0.conda", b"packed")
    sizes = measure(prefix)
    assert sizes.kind == "environment"
    assert sizes.installed == truth(prefix)
    library = named(sizes, "libtorch")
    assert "lib/libtorch.so" in library.files
    assert library.required_by == ("pytorch",)
    assert f"{SITE}/torch/__init__.py" in named(sizes, "pytorch").files
    assert "torch" not in {package.name for package in sizes.packages}


@pytest.mark.parametrize(
    ("other", "octets"), [((1, 7), 90), ((2, 7), 160), ((1, 8), 160)], ids=["one file", "disks", "files"]
)
def test_files_of_two_disks_are_no_hard_links_of_each_other(
    other: tuple[int, int], octets: int, tmp_path: Path
) -> None:
    """As in an environment of which a folder is mounted: each disk counts its files itself."""
    install(tmp_path, "pk", {"a.bin": b"a" * 90, "b.bin": b"b" * 70})
    contents = scan(tmp_path, name="pk")
    every = {}
    for name, (disk, number) in {"a.bin": (1, 7), "b.bin": other}.items():
        status = list(contents.every[f"{SITE}/{name}"])
        status[1:3] = [number, disk]
        every[f"{SITE}/{name}"] = os.stat_result(status)
    files = installed._read_files(replace(contents, every=every), [])
    assert sum(sum(parts.values()) for parts in files["pk"].values()) == octets


def test_a_folder_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{tmp_path}: "):
        measure(tmp_path)
    (tmp_path / SITE / "old-1.egg-info").mkdir(parents=True)
    assert measure(tmp_path).installed == 0


def test_what_is_not_counted_is_remarked(venv: Path) -> None:
    """slim's originals; files and folders that are links, as uv's --link-mode symlink and Nix install them."""
    before = measure(venv).installed
    write(venv / f"{BACKUP}/originals/lib/libtorch.so", b"t" * 8000)
    cached = write(venv.parent / "cache" / "file", b"c" * 500)
    install(venv, "linked", {"linked/__init__.py": b""})
    (venv / SITE / "linked/__init__.py").unlink()
    (venv / SITE / "linked/__init__.py").symlink_to(cached)
    (venv / SITE / "whole").symlink_to(cached.parent)
    (venv / SITE / "inside").symlink_to(venv / SITE / "linked")
    sizes = measure(venv)
    assert sizes.installed - named(sizes, "linked").installed == before
    kept, linked = sizes.remarks
    assert (BACKUP in kept, " 2 links" in linked) == (True, True)


@pytest.mark.parametrize(("target", "is_outside"), [("env-of-another", True), ("env/lib", False)])
def test_links_and_site_packages_that_lead_out_of_an_environment(
    target: str, is_outside: bool, tmp_path: Path
) -> None:
    env = tmp_path / "env"
    install(env, "linked", {"linked/a.py": b""}, more=["linked/b.py"])
    write(tmp_path / target / "b.py", b"")
    (env / SITE / "linked/b.py").symlink_to(tmp_path / target / "b.py")
    whole = env / "lib/python3.9/site-packages"
    whole.parent.mkdir()
    whole.symlink_to(tmp_path / target)
    found = scan(env, name="env").outside
    expected = {
        f"{SITE}/linked/b.py": str(tmp_path / target / "b.py"),
        "lib/python3.9/site-packages": str(tmp_path / target),
    }
    assert found == (expected if is_outside else {})


def test_a_mounted_folder_is_no_part_of_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own/a", "mounted/b", "own/mounted/c"):
        write(tmp_path / name, "x")
    lstat = os.lstat

    def lstat_of_two_disks(path: str) -> os.stat_result:
        status = list(lstat(path))
        status[2] += "/mounted" in path
        return os.stat_result(status)

    monkeypatch.setattr(os, "lstat", lstat_of_two_disks)
    assert [*scan(tmp_path, name="").every] == ["own/a"]


def test_a_folder_that_cannot_be_read_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "closed/a", "x")
    write(tmp_path / "b", "x")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    remarks: list[str] = []
    assert [*scan(tmp_path, name="", remarks=remarks).every] == ["b"]
    (remark,) = remarks
    assert "Permission denied" in remark
    assert str(tmp_path / "closed") in remark


def test_a_noarch_package_has_its_metadata_in_its_own_site_packages(tmp_path: Path) -> None:
    write(tmp_path / "site-packages/demo-1.0.dist-info/RECORD", "demo.py,,\n")
    write(tmp_path / "site-packages/demo.py", "")
    assert scan(tmp_path, name="").owners["site-packages/demo.py"] == "demo"


@pytest.mark.parametrize("is_base", [True, False])
def test_only_a_base_environment_leaves_out_other_environments_and_the_cache(
    is_base: bool, tmp_path: Path
) -> None:
    for name in ("pkgs/a", "envs/b", "lib/pkgs/c"):
        write(tmp_path / name, "x")
    if is_base:
        write(tmp_path / "conda-meta/d", "x")
    files = {path for path in contents._walk(tmp_path, print) if (tmp_path / path).is_file()}
    names = {Path(path).relative_to(tmp_path).as_posix() for path in files}
    assert names == ({"lib/pkgs/c", "conda-meta/d"} if is_base else {"pkgs/a", "envs/b", "lib/pkgs/c"})


@pytest.mark.parametrize(
    "text",
    ["{cut off", "[" * 100_000, '{"files": 3}', '{"paths_data": {"paths": [{}]}}', '{"paths_data": {"paths": [1]}}',
     '{"paths_data": {"paths": 3}}', '{"paths_data": [1]}'],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_malformed_list_of_a_conda_package_is_named(text: str, tmp_path: Path) -> None:
    record = write(tmp_path / "conda-meta" / "pk-1-0.json", text)
    with pytest.raises(IntegrityError, match=rf"^{record}: malformed file list"):
        correct_list(record, "conda-meta/pk-1-0.json", {"a"}, {"b": record})
