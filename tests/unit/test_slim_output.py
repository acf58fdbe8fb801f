"""Smaller copies of packages, and the lists of conda environments."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
from calling import call
from gpu_library import MACHINE_CODE, build, entry, fatbin
from rattler.package import IndexJson, PathsJson
from rattler.package_streaming import extract
from slim_world import SITE, library, tree, wrong_in_records
from tiny import make_package
from wheel_files import make_wheel

from command_line.run_command import Invocation
from gpu_tools.contents import scan
from gpu_tools.sizes.measure import measure
from gpu_tools.slim import commands
from gpu_tools.slim.repack import repack
from gpu_tools.slim.steps import SlimRequest
from groundwork.errors import IntegrityError, UsageError
from groundwork.files import sha256
from groundwork.network.index import linked
from groundwork.text import size

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture
def made_wheel(tmp_path: Path) -> Path:
    content = library(tmp_path / "libmine.so", "mine").read_bytes()
    files = {
        "torch_mine/_C.so": content,
        "torch_mine/__init__.py": b"",
        "torch_mine/libx.a": b"!<arch>\n" * 99,
    }
    return make_wheel(tmp_path, "torch_mine-1.0-cp312-cp312-linux_x86_64.whl", files)


def test_a_wheel_gets_a_build_tag(made_wheel: Path, tmp_path: Path, invocation: Invocation) -> None:
    out = tmp_path / "out"
    done = call(invocation, "slim", str(made_wheel), "--arch-list", "9.0", "--output", str(out), "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    (file,) = out.glob("*")
    assert file.name == "torch_mine-1.0-1slim-cp312-cp312-linux_x86_64.whl"
    assert str(file) == document["output"]
    found = linked(file.as_uri(), {})
    assert found is not None
    assert str(found.version) == "1.0"
    assert measure(file).installed < measure(made_wheel).installed - 4096
    with zipfile.ZipFile(file) as archive:
        assert "Build: 1slim" in archive.read("torch_mine-1.0.dist-info/WHEEL").decode()
        assert "torch_mine/libx.a" not in archive.namelist()
        archive.extractall(tmp_path / "env" / SITE)
        listed = (tmp_path / "env" / SITE / "torch_mine-1.0.dist-info/RECORD").read_text().splitlines()
        assert {row.partition(",")[0] for row in listed} == set(archive.namelist())
    assert wrong_in_records(tmp_path / "env") == []


@pytest.mark.parametrize(("build", "tag"), [("", "1slim"), ("-2", "2slim"), ("-10cu", "10cuslim")])
def test_pip_prefers_the_smaller_wheel_of_one_build(build: str, tag: str, tmp_path: Path) -> None:
    files = {"torch_mine/__init__.py": b"", "torch_mine/libx.a": b"!<arch>\n" * 99}
    wheel = make_wheel(tmp_path, f"torch_mine-1.0{build}-py3-none-any.whl", files)
    result = commands.write(wheel, tmp_path / "out", SlimRequest(), print)
    smaller = tmp_path / f"out/torch_mine-1.0-{tag}-py3-none-any.whl"
    assert result.document["output"] == str(smaller)
    assert result.document["download"] == [wheel.stat().st_size, smaller.stat().st_size]
    before, now = (size(cast(int, result.document[key])) for key in ("before", "after"))
    assert next(iter(result.lines)) == f"{wheel}: {before} before, {now} now"


def test_nvidia_s_libraries_are_not_put_into_a_package_for_others(
    tmp_path: Path, invocation: Invocation
) -> None:
    content = library(tmp_path / "libcudnn.so.9", "cudnn").read_bytes()
    name, out = "nvidia_cudnn_cu13-9.0-py3-none-linux_x86_64.whl", tmp_path / "out"
    package = make_wheel(tmp_path, name, {"nvidia/lib/libcudnn.so.9": content})
    assert call(invocation, "slim", str(package)).exit_code == 0
    done = call(invocation, "slim", str(package), "--output", str(out))
    assert (done.exit_code, f"{name}: nothing" in done.stderr) == (UsageError.exit_code, True)
    assert list(out.glob("*")) == []


def make_conda(folder: Path, library_content: bytes) -> Path:
    """Write a conda package with a library and a header."""
    files = {"lib/libtorch.so": library_content, "include/torch/torch.h": b"/* torch */\n" * 99}
    return make_package(folder, "libtorch", "2.6.0", "h1_0", files, ["__glibc >=2.28"])


def test_a_conda_package_says_for_which_gpus_it_is(tmp_path: Path, invocation: Invocation) -> None:
    code = fatbin(*(entry(MACHINE_CODE, arch) for arch in (80, 86, 90, 120)))
    package = make_conda(tmp_path, build(tmp_path, [code]).read_bytes())
    out = tmp_path / "out"
    done = call(invocation, "slim", str(package), "--arch-list", "8.6,12.0", "--output", str(out))
    assert done.exit_code == 0, done.output
    (file,) = out.glob("*")
    assert file.name == "libtorch-2.6.0-h1_0_slim_sm86_sm120.conda"
    after = measure(file)
    assert [*after.packages[0].files] == ["lib/libtorch.so"]
    index = IndexJson.from_package_archive(file)
    assert str(index.build) == "h1_0_slim_sm86_sm120"
    assert index.constrains == ["__cuda_arch >=8.6,<9.0a0|>=12.0,<13.0a0"]
    (listed,) = PathsJson.from_package_archive(file).paths
    assert listed.size_in_bytes == after.installed
    extract(file, tmp_path / "extracted")
    assert listed.sha256 is not None
    assert listed.sha256.hex() == sha256(tmp_path / "extracted/lib/libtorch.so")
    # a package's own constraints stay
    _, again = repack(file, tmp_path / "again", SlimRequest(gpus=("sm_120",)), print)
    assert IndexJson.from_package_archive(again).constrains == [
        *index.constrains,
        "__cuda_arch >=12.0,<13.0a0",
    ]


@pytest.mark.parametrize("kind", ["wheel", "conda"])
def test_a_package_that_is_not_complete_is_not_left(
    kind: str, made_wheel: Path, tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = made_wheel
    if kind == "conda":
        code = fatbin(entry(MACHINE_CODE, 90))
        package = make_conda(tmp_path, build(tmp_path, [code]).read_bytes())

    def fill_the_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fill_the_disk)
    out = tmp_path / "out"
    done = call(invocation, "slim", str(package), "--arch-list", "9.0", "--output", str(out))
    assert done.exit_code == 12, done.output
    assert not list(out.glob("*"))


def test_a_conda_environment_s_lists_are_corrected(tmp_path: Path, invocation: Invocation) -> None:
    """rattler installs the package; what conda-meta says of it is true after slimming, and after undoing."""
    package = make_conda(tmp_path, library(tmp_path / "libtorch.so", "torch").read_bytes())
    env = tmp_path / "env"
    extract(package, env)
    shutil.rmtree(env / "info")
    (env / "conda-meta").mkdir()
    (env / "pkgs").mkdir()
    shutil.copy(package, env / "pkgs" / "libcache.so")
    files = ["lib/libtorch.so", "include/torch/torch.h"]
    paths = [{"_path": path, "sha256": sha256(env / path), "sha256_in_prefix": sha256(env / path),
              "size_in_bytes": (env / path).stat().st_size} for path in files]  # fmt: skip
    listing = env / "conda-meta" / "libtorch-2.6.0-h1_0.json"
    record = {"name": "libtorch", "version": "2.6.0", "depends": [], "files": files}
    listing.write_text(json.dumps({**record, "paths_data": {"paths": paths}}))
    before = tree(env)
    assert not [path for path in scan(env, name="env").every if path.startswith("pkgs")]
    assert call(invocation, "slim", str(env), "--apply").exit_code == 0
    after = json.loads(listing.read_text())
    assert after["files"] == ["lib/libtorch.so"]
    (entry,) = after["paths_data"]["paths"]
    assert entry["sha256_in_prefix"] == sha256(env / "lib/libtorch.so") != paths[0]["sha256"]
    assert entry["size_in_bytes"] == os.path.getsize(env / "lib/libtorch.so")
    assert call(invocation, "slim", str(env), "--undo").exit_code == 0
    assert tree(env) == before


def test_what_is_no_package_or_damaged_is_told(
    tmp_path: Path, invocation: Invocation, made_wheel: Path
) -> None:
    cut, text, folder = (tmp_path / name for name in ("torch_cut-1.0-py3-none-any.whl", "x.txt", "folder"))
    cut.write_bytes(made_wheel.read_bytes()[:-400])
    text.write_text("no package")
    folder.mkdir()
    done = [call(invocation, "slim", str(path)) for path in (cut, text, folder)]
    done.append(call(invocation, "slim", str(made_wheel), "--apply"))
    assert [one.exit_code for one in done] == [IntegrityError.exit_code, *[UsageError.exit_code] * 3]
    assert not any("Traceback" in one.stderr for one in done)


def test_the_links_of_a_conda_package_stay(tmp_path: Path, invocation: Invocation) -> None:
    links = {"lib/libtorch.so.2": "libtorch.so", "share/link": "../lib"}
    content = tmp_path / ".content-libtorch-2.6.0-h1_0"
    for path, target in links.items():
        (content / path).parent.mkdir(parents=True, exist_ok=True)
        (content / path).symlink_to(target)
    package = make_conda(tmp_path, library(tmp_path / "libtorch.so", "torch").read_bytes())
    out = tmp_path / "out"
    assert call(invocation, "slim", str(package), "--output", str(out)).exit_code == 0
    (file,) = out.glob("*")
    extract(file, tmp_path / "extracted")
    assert {path: os.readlink(tmp_path / "extracted" / path) for path in links} == links


def test_a_package_of_another_format_is_not_packed_again(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a-1-0\.tar\.bz2: only wheels and \.conda packages"):
        repack(tmp_path / "a-1-0.tar.bz2", tmp_path, cast(Any, None), cast(Any, None))
