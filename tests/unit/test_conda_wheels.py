"""The parts of wheels made from conda packages: tree, index, licences, NVIDIA's requirements, failures of tools."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sizes_files import elf
from small_files import program
from tiny import make_package
from wheel_files import make_wheel

from conda_wheels import built, licences, make_wheels, nvidia, simple_index, tools, wheel_tree
from conda_wheels.built import BuiltPackage
from conda_wheels.make_wheels import Request
from conda_wheels.simple_index import IndexedWheel
from conda_wheels.wheels_report import WheelIndex, WheelResult, result
from groundwork import files, wheel_file
from groundwork.errors import BuildError, IntegrityError, OutOfSpaceError, PreflightError, ProviderError
from megabuild import environments
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import Foreign
from megabuild.store import published

ELF = b"\x7fELF and no more"


BUILT = BuiltPackage(
    project="torch", version="2.6.0", python="3.12", path=Path("torch.conda"), sha256="1", build_string="b",
    accelerator="cpu", official=False, torch="2.6.0",
)  # fmt: skip


def write(folder: Path, **content: str | bytes) -> Path:
    """Write files; ``__`` in a name is a slash."""
    for name, text in content.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


# ---------------------------------------------------------------------------------------------------------- the tree


def test_a_tree_has_every_file_once_and_no_trace_of_the_environment(tmp_path: Path) -> None:
    prefix, tree = tmp_path / "env", tmp_path / "tree"
    site = prefix / "lib" / "python3.12" / "site-packages"
    files = {
        "torch/lib/libc10.so.2.6.0": ELF,
        "torch/config.h": f"-I{prefix}/include".encode(),
        "torch/Torch.cmake": f"{prefix}/lib/libtorch_cpu.so.2.6.0 libz.so.1.2".encode(),
        "torch-2.6.dist-info/METADATA": b"Name: torch",
        "torch-2.6.dist-info/RECORD": b"old",
        "torch/RECORD": b"a file of the package",
        "torch/__pycache__/x.pyc": b"",
        "torch/run.sh": b"#!/bin/sh",
        "headers/a.h": b"a",
    }
    for name, data in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
    (site / "torch/run.sh").chmod(0o755)
    (site / "torch/lib/libc10.so").symlink_to("libc10.so.2.6.0")
    (site / "torch/include").symlink_to("../headers")
    (prefix / "lib" / "libz.so").write_bytes(ELF)
    paths = [
        path.relative_to(prefix).as_posix()
        for path in prefix.rglob("*")
        if path.is_file() or path.is_symlink()
    ]
    wheel_tree.lay_out(prefix, paths, tree)
    made = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_file()}
    assert set(made) == {
        "torch/lib/libc10.so", "torch/config.h", "torch/Torch.cmake", "torch-2.6.dist-info/METADATA", "torch/RECORD",
        "torch/run.sh", "headers/a.h", "torch/include/a.h",
    }  # fmt: skip
    assert not any(path.is_symlink() for path in tree.rglob("*"))
    assert made["torch/config.h"].read_text() == "-I$PREFIX/include"
    assert made["torch/Torch.cmake"].read_text() == "$PREFIX/lib/libtorch_cpu.so libz.so.1.2"
    modes = {name: path.stat().st_mode & 0o777 for name, path in made.items()}
    assert {name for name, mode in modes.items() if mode == 0o755} == {"torch/lib/libc10.so", "torch/run.sh"}
    assert set(modes.values()) == {0o755, 0o644}
    assert [path.name for path in wheel_tree.libraries(tree)] == ["libc10.so"]
    with pytest.raises(IntegrityError, match=r"torch/lib/libc10\.so"):
        wheel_tree.needed(tree)


def test_a_link_to_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    library = tmp_path / "env/lib/python3.12/site-packages/torch/lib/libc10.so"
    library.parent.mkdir(parents=True)
    library.symlink_to("../../../../libc10.so")
    with pytest.raises(FileNotFoundError, match=str(library)):
        wheel_tree.lay_out(
            tmp_path / "env", ["lib/python3.12/site-packages/torch/lib/libc10.so"], tmp_path / "tree"
        )


@pytest.mark.parametrize(
    ("read", "table"),
    [
        (wheel_tree.needed, ".dynamic"),
        (wheel_tree.link, ".dynamic"),
        (wheel_tree._check_stable_abi, ".dynsym"),
    ],
)
def test_a_damaged_library_of_a_wheel_is_named(
    read: Callable[[Path], object], table: str, tmp_path: Path
) -> None:
    write(tmp_path, torch__lib__x=elf([(table, bytes(5))]))
    with pytest.raises(IntegrityError, match="torch/lib/x: damaged"):
        read(tmp_path)


def test_a_wheel_brings_the_headers_that_extensions_include(tmp_path: Path) -> None:
    names = {"pybind11/pybind11.h", "fmt/format.h", "sleef.h"}
    for name in (*names, "zlib.h"):
        path = tmp_path / "env/include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    wheel_tree.add_headers(tmp_path / "env", tmp_path / "tree")
    include = tmp_path / "tree/torch/include"
    assert {path.relative_to(include).as_posix() for path in include.rglob("*.h")} == names


@pytest.mark.parametrize(
    "site", ["lib/python3.12/site-packages", "lib/python3.14t/site-packages", "site-packages"]
)
def test_a_wheel_has_a_module_that_is_one_file(site: str, tmp_path: Path) -> None:
    names = {"single.py", "package/__init__.py"}
    path = make_package(tmp_path, "x", "1", "0", {f"{site}/{name}": "" for name in names})
    build: Any = SimpleNamespace(folder=tmp_path, built=replace(BUILT, path=path))
    contents = make_wheels._WheelBuild._package(build)
    wheel_tree.lay_out(contents.prefix, contents.paths, tmp_path / "tree")
    made = {file.relative_to(tmp_path / "tree").as_posix() for file in (tmp_path / "tree").rglob("*.py")}
    assert made == names


# --------------------------------------------------------------------------------------------------------- the index


def test_an_index_has_intact_wheels_only_and_replaces_the_former(tmp_path: Path) -> None:
    made = [
        make_wheel(tmp_path / "made", f"torch_scatter-{version}-py3-none-any.whl", {})
        for version in ("1", "2")
    ]
    entries = {
        simple_index.index_entry(path, project="torch_scatter", python=None, package="p", inputs="i"): path
        for path in made
    }
    (first, _) = [*entries]
    assert (first.version, first.place) == ("1", "torch-scatter/torch_scatter-1-py3-none-any.whl")
    folder = tmp_path / "wheels"
    folder.mkdir()
    assert simple_index.read(folder) == ()
    for _ in range(2):
        simple_index.publish(folder, entries)
    assert simple_index.read(folder) == tuple(entries)
    assert len([*folder.glob(".simple-*")]) == 1
    index = folder / simple_index.SIMPLE
    assert 'href="torch-scatter/"' in (index / "index.html").read_text()
    assert f"{made[0].name}#sha256={first.sha256}" in (index / "torch-scatter" / "index.html").read_text()
    os.truncate(index / first.place, 10)
    assert [wheel.version for wheel in entries if simple_index.is_intact(folder, wheel)] == ["2"]
    (index / first.place).unlink()
    assert not simple_index.is_intact(folder, first)


def scatter(folder: Path, version: str = "1", **changes: str) -> tuple[IndexedWheel, Path]:
    """Make a wheel; return its entry in an index, and the file."""
    path = make_wheel(folder, f"torch_scatter-{version}-py3-none-any.whl", {})
    entry = simple_index.index_entry(path, project="torch_scatter", python=None, package="p", inputs="i")
    return replace(entry, **changes), path  # type: ignore[arg-type]


def test_an_index_is_complete_before_readers_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, path = scatter(tmp_path / "made")
    replaced: list[set[str]] = []
    synced: list[Path] = []
    replace_link = files.replace_link

    def note(link: Path, target: str) -> None:
        new = link.parent / target
        replaced.append({file.relative_to(new).as_posix() for file in new.rglob("*") if file.is_file()})
        assert synced == [new / "wheels.json"], "after a power cut, an empty record would be a damaged one"
        assert new.stat().st_mode & 0o777 == 0o755, "a web server is another user"
        replace_link(link, target)

    monkeypatch.setattr(files, "replace_link", note)
    monkeypatch.setattr(files, "sync", synced.append)
    simple_index.publish(tmp_path, {wheel: path})
    assert replaced == [{"index.html", "torch-scatter/index.html", wheel.place, "wheels.json"}]


def test_what_an_index_says_of_wheels_is_html(tmp_path: Path) -> None:
    wheel, path = scatter(tmp_path / "made", "1+pt26cpu", requires_python='>=3.9,<3.15 "&"')
    simple_index.publish(tmp_path, {wheel: path})
    page = (tmp_path / simple_index.SIMPLE / "torch-scatter" / "index.html").read_text()
    assert f'href="torch_scatter-1%2Bpt26cpu-py3-none-any.whl#sha256={wheel.sha256}"' in page
    assert 'data-requires-python="&gt;=3.9,&lt;3.15 &quot;&amp;&quot;">torch_scatter-1+pt26cpu-py3' in page


@pytest.mark.parametrize("content", [b"", b'[{"name": 1}]', b"[" * 100_000, b'["\xff"]'])
def test_a_damaged_record_is_not_taken_for_an_index_without_wheels(tmp_path: Path, content: bytes) -> None:
    """The next index would lack the wheels of other Pythons, whose files would be deleted."""
    record = tmp_path / simple_index.SIMPLE / "wheels.json"
    record.parent.mkdir()
    record.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"wheels\.json: damaged") as raised:
        simple_index.read(tmp_path)
    assert f"rm {tmp_path / simple_index.SIMPLE}" in raised.value.remedy


def test_an_unreadable_wheel_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel(tmp_path / "made", "torch_scatter-1-py3-none-any.whl", {})
    wheel = simple_index.index_entry(path, project="torch_scatter", python=None, package="p", inputs="i")
    simple_index.publish(tmp_path, {wheel: path})

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "sha256", refuse)
    with pytest.raises(PermissionError):
        simple_index.is_intact(tmp_path, wheel)


# ------------------------------------------------------------------------------------------------------ the licences


def test_licences_come_from_packages_notices_and_the_system(tmp_path: Path) -> None:
    package = tmp_path / "zlib"
    write(
        package,
        info__licenses__licenses__zlib="z",
        info__licenses__note="no",
        share__doc__zlib__copyright="n",
    )
    info = "site-packages__zlib.dist-info__"
    write(package, **{f"{info}LICENSE": "w", f"{info}METADATA": "m"})

    def record(name: str, *files: str) -> str:
        return json.dumps({"name": name, "extracted_package_dir": str(tmp_path / name), "files": files})

    zlib = record("zlib", "lib/libz.so.1", "share/doc/zlib/copyright")
    other = record("other", "lib/libother.so.1")
    write(tmp_path / "env" / "conda-meta", **{"zlib.json": zlib, "other.json": other})
    records = licences.installed(tmp_path / "env")
    assert set(records) == {"zlib", "other"}
    assert set(licences.of_package("zlib", package)) == {"zlib/zlib", "zlib/LICENSE"}
    root = tmp_path / "root"
    write(
        root / "var/lib/dpkg/info",
        **{"libown1:amd64.list": "/usr/lib/libown.so.1", "libno.list": "/usr/lib/libno.so"},
    )
    write(root / "usr/share/doc", libown1__copyright="d", libno__copyright="x")
    tree = write(
        tmp_path / "tree", **{"torch.libs__libz-01234567.so.1": ELF, "torch.libs__libown-89abcdef.so.1": ELF}
    )
    texts = licences.of_vendored(tree, records, root)
    assert {name: path.read_text() for name, path in texts.items()} == {
        "zlib/zlib": "z", "zlib/LICENSE": "w", "zlib/zlib/copyright": "n", "system/libown1/copyright": "d",
    }  # fmt: skip


def test_a_library_that_an_environment_has_needs_no_licence_of_the_debian_root(tmp_path: Path) -> None:
    """auditwheel searches the environment first. OpenMP's library is in the wheel, too, if no one vendored it."""
    tree = write(tmp_path / "tree", **{"torch.libs__libz-01234567.so.1": ELF})
    write(tmp_path / "zlib", info__licenses__LICENSE="z")
    write(tmp_path / "gomp", info__licenses__COPYING="g")
    files_of = {"zlib": ["lib/libz.so.1"], "gomp": ["lib/libgomp.so.1"], "other": ["share/libz.so.1"]}
    records = {
        name: {"extracted_package_dir": str(tmp_path / name), "files": own} for name, own in files_of.items()
    }
    info = tmp_path / "root/var/lib/dpkg/info"
    write(info, **{"libz1:amd64.list": "/usr/lib/libz.so.1", "libgomp1.list": "/usr/lib/libgomp.so.1\n/x"})
    write(tmp_path / "root/usr/share/doc", libz1__copyright="z", libgomp1__copyright="g")
    texts = licences.of_vendored(tree, records, tmp_path / "root")
    assert set(texts) == {"zlib/LICENSE", "gomp/COPYING"}
    del records["gomp"]
    assert set(licences.of_vendored(tree, records, tmp_path / "root")) == {
        "zlib/LICENSE", "system/libgomp1/copyright",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_text"),
    [
        ("LICENSE", True), ("LICENSE.txt", True), ("licence.md", True), ("COPYING.LESSER", True), ("NOTICE", True),
        ("METADATA", False), ("NO_LICENSE", False),
    ],
)  # fmt: skip
def test_texts_of_a_repacked_wheel_s_metadata_are_known_by_their_names(
    name: str, is_text: bool, tmp_path: Path
) -> None:
    (tmp_path / "site-packages/a-1.dist-info").mkdir(parents=True)
    (tmp_path / "site-packages/a-1.dist-info" / name).touch()
    assert [*licences.of_package("a", tmp_path)] == ([f"a/{name}"] if is_text else [])


@pytest.mark.parametrize(
    "place",
    [
        "info/licenses",
        "info/licenses/licenses",
        "site-packages/torch.dist-info",
        "site-packages/torch.dist-info/licenses",
    ],
)
def test_licences_of_one_name_are_told_apart_by_their_folders(place: str, tmp_path: Path) -> None:
    for name in ("LICENSE", "third_party/fmt/LICENSE", "third_party/gloo/LICENSE"):
        file = tmp_path / place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    texts = licences.of_package("torch", tmp_path)
    assert {name: path.read_text() for name, path in texts.items()} == {
        "torch/LICENSE": "LICENSE",
        "torch/third_party/fmt/LICENSE": "third_party/fmt/LICENSE",
        "torch/third_party/gloo/LICENSE": "third_party/gloo/LICENSE",
    }


def test_all_licence_texts_that_a_wheel_lacks_are_added_once(tmp_path: Path) -> None:
    metadata = write(tmp_path / "tree/a-1.dist-info", LICENSE="own")
    contents = {"a": "own", "b/c": "mit", "d": "bsd", "e": "mit"}
    folder = write(tmp_path / "texts", **contents)
    wheel_tree.add_licences(tmp_path / "tree", {name: folder / name for name in contents})
    added = {
        path.relative_to(metadata).as_posix(): path.read_text()
        for path in metadata.rglob("*")
        if path.is_file()
    }
    assert added == {"LICENSE": "own", "licenses/b/c": "mit", "licenses/d": "bsd"}


def test_a_wheel_of_torch_has_the_licences_of_the_packages_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {}
    for name in ("libtorch", "pytorch", "fmt", "zlib"):
        write(tmp_path / name, info__licenses__LICENSE=name)
        records[name] = {"extracted_package_dir": str(tmp_path / name), "files": []}
    monkeypatch.setattr(make_wheels.environments, "solve", lambda *_, **__: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(make_wheels.environments, "create", lambda *_, **__: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(licences, "installed", lambda _: records)
    build: Any = SimpleNamespace(
        folder=tmp_path, built=BUILT, channel=tmp_path, request=SimpleNamespace(cache=tmp_path), report=print
    )
    contents = make_wheels._WheelBuild._environment(build)
    assert {*contents.texts} == {"libtorch/LICENSE", "pytorch/LICENSE", "fmt/LICENSE"}


# -------------------------------------------------------------------------------------------------- NVIDIA's wheels


def test_nvidias_libraries_become_requirements_of_one_release() -> None:
    nccl, other = {"files": ["lib/libnccl.so.2"], "version": "2.27.3.1"}, {"files": [], "version": "9"}
    records = {"nccl": nccl, "x": other}
    names = "cublasLt.so.12 cudart.so.12 nccl.so.2 cuda.so.1 curl.so.4 z.so.1"
    sonames = [f"lib{name}" for name in names.split()]
    requires, folders = nvidia.required(sonames, "12.4", records)
    assert requires == ["cuda-toolkit[cublas,cudart]==12.4.*", "nvidia-nccl-cu12>=2.27.3,<3"]
    assert folders == ["nvidia/cublas/lib", "nvidia/cuda_runtime/lib", "nvidia/nccl/lib"]
    # what PyTorch's own wheels for CUDA require and link to
    names = "cublas cublasLt cudart cufft cufile cupti curand cusolver cusolverMg cusparse nvJitLink nvToolsExt nvrtc"
    requires, folders = nvidia.required([f"lib{name}.so.12" for name in names.split()], "12.9", {})
    extras = "cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx"
    assert requires == [f"cuda-toolkit[{extras}]==12.9.*"]
    expected = (
        "cublas cuda_cupti cuda_nvrtc cuda_runtime cufft cufile curand cusolver cusparse nvjitlink nvtx"
    )
    assert folders == [f"nvidia/{folder}/lib" for folder in expected.split()]
    requires, folders = nvidia.required(["libcublas.so.13", "libcudss.so.0"], "13.0", {})
    assert folders == ["nvidia/cu13/lib"]
    assert "nvidia-cudss-cu13" in requires
    with pytest.raises(BuildError, match="libcunew"):
        nvidia.required(["libcunew.so.1"], "13.0", {})
    assert nvidia.required(["libz.so.1"], "12.4", {}) == ([], [])


@pytest.mark.parametrize(
    ("soname", "wheel"),
    [("libcuda.so.1", False), ("libnvidia-ml.so.1", False), ("libcudart.so.13", True), ("libm.so.6", False)],
)
def test_libraries_of_the_driver_are_in_no_wheel(soname: str, wheel: bool) -> None:
    assert nvidia._is_in_a_wheel(soname) is wheel


# --------------------------------------------------------------------------------------------------------- the tools


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "patchelf":
            raise PackageNotFoundError(name)
        return "6"

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(PreflightError, match="patchelf"):
        tools.versions()


@pytest.mark.parametrize(
    ("said", "error"),
    [("patchelf: No space left on device", OutOfSpaceError), ("patchelf: cannot find section", BuildError)],
)
def test_a_full_disk_is_told_from_a_library_that_cannot_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, error: type[Exception]
) -> None:
    program(tmp_path / "patchelf", f"if [ $1 = --ok ]; then exit 0; fi\necho '{said}' >&2\nexit 1")
    monkeypatch.setattr(tools, "_OWN", tmp_path)
    tools.patchelf(tmp_path / "lib.so", ["--ok"])
    with pytest.raises(error, match=r"lib\.so"):
        tools.patchelf(tmp_path / "lib.so", ["--set-rpath", "x"])


@pytest.mark.parametrize("libraries", [None, [], ["/env/lib", "/root/lib"]])
def test_auditwheel_takes_libraries_from_the_named_folders_only(
    libraries: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension finds PyTorch's libraries in no folder: it must vendor none of them."""
    ran: list[Any] = []

    def run(command: list[str], *, timeout: object, environ: dict[str, str]) -> SimpleNamespace:
        ran.extend([command, environ])
        write(tmp_path, **{"repaired__b.whl": ""})
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(tools, "run", run)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/user/lib")
    folders = None if libraries is None else [Path(folder) for folder in libraries]
    made = tools.auditwheel(
        tmp_path / "a.whl", tmp_path, libraries=folders, without=["libcuda*", "x"], date=7
    )
    assert made == tmp_path / "repaired" / "b.whl"
    command, environ = ran
    of_folders = ["--ldpaths", str(tmp_path / "nothing")] if folders is None else []
    options = ["--exclude", "libcuda*", "--exclude", "x", *of_folders]
    assert command[command.index("--exclude") :] == options
    assert (tmp_path / "nothing").is_dir() == (folders is None)
    wanted = {
        "AUDITWHEEL_LD_LIBRARY_PATH": ":".join(libraries or ()), "LD_LIBRARY_PATH": "", "SOURCE_DATE_EPOCH": "7",
        "TMPDIR": str(tmp_path),
    }  # fmt: skip
    assert {name: environ[name] for name in wanted} == wanted
    assert environ["PATH"].startswith(f"{tools._OWN}{os.pathsep}"), "patchelf of this Python, not another one"


@pytest.mark.parametrize(
    ("subdir", "tags", "machine"),
    [
        ("linux-64", "cp312-cp312", "x86_64"), ("linux-aarch64", "cp314-cp314t", "aarch64"),
        ("linux-64", "cp39-abi3", "x86_64"),
    ],
)  # fmt: skip
def test_a_tree_is_tagged_for_its_python_and_the_platform(
    subdir: str, tags: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Path] = []
    monkeypatch.setattr(wheel_tree, "_check_stable_abi", checked.append)
    info = tmp_path / "a-1.dist-info"
    write(tmp_path, **{"a-1.dist-info__WHEEL": f"Wheel-Version: 1.0\nTag: {tags}-manylinux_2_28_x86_64\n"})
    assert wheel_tree.tag(tmp_path, subdir) == f"a-1-{tags}-linux_{machine}.whl"
    assert (info / "WHEEL").read_text().splitlines()[2:] == [
        "Root-Is-Purelib: false", f"Tag: {tags}-linux_{machine}",
    ]  # fmt: skip
    assert checked == ([tmp_path] if tags.endswith("abi3") else [])


@pytest.mark.parametrize(
    ("path", "needed", "soname", "rpath", "arguments"),
    [
        ("torch/lib/libtorch.so", ["libc10.so.2.6", "libz.so.1"], "libtorch.so.2.6", [],
         ["--replace-needed", "libc10.so.2.6", "libc10.so", "--set-soname", "libtorch.so",
          "--force-rpath", "--set-rpath", "$ORIGIN:$ORIGIN/../../nvidia/lib"]),
        ("torch/_C.so", [], None, ["/conda/lib"],
         ["--force-rpath", "--set-rpath", "$ORIGIN/lib:$ORIGIN/../nvidia/lib"]),
        ("torch/lib/x.so", [], "x.so", ["$ORIGIN", "$ORIGIN/../../nvidia/lib"], []),
        ("other/y.so", ["libtorch_cpu.so.2.6.0"], "", ["$ORIGIN/../torch/lib"],
         ["--replace-needed", "libtorch_cpu.so.2.6.0", "libtorch_cpu.so", "--remove-rpath"]),
        ("other/z.so", ["libc10.so"], "libz.so.1.2", [], []),
    ],
)  # fmt: skip
def test_libraries_have_upstream_s_names_and_find_each_other(
    path: str,
    needed: list[str],
    soname: str | None,
    rpath: list[str],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elf_file = SimpleNamespace(needed=lambda: needed, soname=lambda: soname, rpath=lambda: tuple(rpath))
    changed: list[object] = []
    monkeypatch.setattr(wheel_tree, "_library", lambda *_: nullcontext(elf_file))
    monkeypatch.setattr(tools, "patchelf", lambda *given: changed.append(given))
    write(tmp_path, **{path.replace("/", "__"): ELF})
    if path.startswith("torch/"):
        (tmp_path / wheel_tree.LIBRARIES).mkdir(exist_ok=True)
    wheel_tree.link(tmp_path, ["nvidia/lib"])
    assert changed == ([(tmp_path / path, arguments)] if arguments else [])


def test_vendored_libraries_find_openmp_and_other_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[object] = []
    monkeypatch.setattr(tools, "patchelf", lambda *given: changed.append(given))
    write(tmp_path, **{"torch.libs__libmagma-01234567.so": ELF})
    wheel_tree.set_vendored_rpaths(tmp_path, ["nvidia/cublas/lib"])
    searched = "$ORIGIN:$ORIGIN/../torch/lib:$ORIGIN/../nvidia/cublas/lib"
    library = tmp_path / "torch.libs/libmagma-01234567.so"
    assert changed == [(library, ["--force-rpath", "--set-rpath", searched])]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("share/doc/libfoo1/copyright", "foo/libfoo1/copyright"),
        ("share/copyright", "foo/share/copyright"),
        ("lib/foo/copyright", "foo/lib/foo/copyright"),
    ],
)
def test_a_notice_is_taken_wherever_a_package_has_it(file: str, text: str, tmp_path: Path) -> None:
    records = {"foo": {"extracted_package_dir": str(tmp_path), "files": [file, "lib/libfoo.so"]}}
    assert licences.of_records(records, ["foo"]) == {text: tmp_path / file}


def test_a_damaged_record_of_an_environment_is_named(tmp_path: Path) -> None:
    record = tmp_path / "conda-meta" / "foo-1-0.json"
    record.parent.mkdir()
    record.write_text("{")
    with pytest.raises(IntegrityError, match=re.escape(f"{record}: damaged: ")):
        licences.installed(tmp_path)


def test_of_several_builds_the_newest_becomes_the_wheel(tmp_path: Path) -> None:
    packages = []
    for name, when in (("first", 10), ("third", 30), ("second", 20)):
        path = tmp_path / name
        path.touch()
        os.utime(path, (when, when))
        packages.append(replace(BUILT, path=path))
    assert [package.path.name for package in built._newest(packages)] == ["third"]
    others = [replace(BUILT, python="3.13"), replace(BUILT, project="torch_scatter")]
    others = [replace(other, path=tmp_path / "first") for other in others]
    assert len(built._newest([*packages, *others])) == 3


def test_without_a_mirror_the_root_of_a_cross_build_cannot_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*_: object, **__: object) -> None:
        raise ProviderError("no mirror", "set one")

    monkeypatch.setattr(make_wheels, "machine_platform", lambda: "linux-64")
    monkeypatch.setattr(debian_root, "find", find)
    request = Request(
        output=tmp_path, config="linux_x_cpu_debian", pythons=(), names=(), cache=tmp_path, date=0
    )
    with pytest.raises(BuildError, match=r"is missing: no mirror$") as missing:
        make_wheels._root(request, replace(BUILT, path=tmp_path / "linux-aarch64" / "torch.conda"))
    assert missing.value.remedy == "set one"
    assert make_wheels._root(request, replace(BUILT, path=tmp_path / "linux-64" / "torch.conda")) is None


@pytest.mark.parametrize(
    ("run_name", "options"),
    [
        ("linux_64_cpu", ""),
        ("linux_64_cpu-2.12.0", " --torch 2.12.0"),
        ("linux_64_cpu-rehearsal", " --rehearse"),
        ("linux_64_cpu-2.12.0-rehearsal", " --torch 2.12.0 --rehearse"),
    ],
)
def test_hints_name_the_command_of_a_run_not_the_run(run_name: str, options: str) -> None:
    assert built.build_command(run_name) == f"python3 build-locally.py linux_64_cpu{options}"


@pytest.mark.parametrize(
    ("machine", "subdir", "triplet"),
    [
        ("linux-64", "linux-64", ""),
        ("linux-aarch64", "linux-aarch64", ""),
        ("linux-64", "linux-aarch64", "aarch64-linux-gnu"),
        ("linux-aarch64", "linux-64", None),
    ],
)
def test_libraries_come_from_the_debian_root_for_the_packages_platform(
    machine: str, subdir: str, triplet: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Foreign | None] = []
    monkeypatch.setattr(make_wheels, "machine_platform", lambda: machine)
    monkeypatch.setattr(debian_root, "find", lambda cache, *, cuda, foreign: asked.append(foreign))
    request = Request(
        output=tmp_path, config="linux_x_cpu_debian", pythons=(), names=(), cache=tmp_path, date=0
    )
    package = replace(BUILT, path=tmp_path / subdir / "torch.conda")
    if machine == subdir:
        assert make_wheels._root(request, package) is None, "this machine may have the libraries"
    else:
        with pytest.raises(BuildError, match=r"torch\.conda: the Debian root .* is missing") as missing:
            make_wheels._root(request, package)
        again = "run again: python3 build-locally.py linux_x_cpu_debian ("
        assert missing.value.remedy.startswith(again) == (triplet is not None)
        assert missing.value.remedy.endswith(f"make the wheel on a {subdir} machine")
    if triplet is None:  # no root of this machine has libraries for it
        assert asked == []
    else:
        assert [foreign.triplet if foreign else "" for foreign in asked] == [triplet]


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_libraries_come_from_the_debian_root_for_the_packages_accelerator(
    cuda: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(make_wheels, "machine_platform", lambda: "linux-64")
    monkeypatch.setattr(debian_root, "find", lambda cache, *, cuda, foreign: asked.append(cuda))
    request = Request(output=tmp_path, config="x_debian", pythons=(), names=(), cache=tmp_path, date=0)
    make_wheels._root(request, replace(BUILT, path=tmp_path / "linux-64/torch.conda", cuda=cuda))
    assert asked == [cuda is not None]


def indexed(sha256: str, **changes: str) -> IndexedWheel:
    values: dict[str, Any] = {"project": "torch_scatter", "python": "3.12", "package": "p", **changes}
    return IndexedWheel(
        name="a.whl", version="1", inputs="i", size=1, sha256=sha256, requires_python="", **values
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pythons", "named"),
    [
        ({"torch": ["3.9", "3.10"], "torch_scatter": ["3.9", "3.10"]}, "torch==3.10 torch_scatter==3.10"),
        ({"torch": ["3.9", "3.10"], "x_lib": [None]}, "torch==3.10 x_lib==0"),
        ({"x_lib": [None]}, "x_lib==0"),
    ],
)
def test_the_printed_command_installs_wheels_of_the_newest_python_and_those_for_every_one(
    pythons: Mapping[str, Sequence[str | None]], named: str, tmp_path: Path
) -> None:
    made: list[WheelResult] = []
    for project, own in pythons.items():
        for python in own:
            wheel = replace(indexed("1"), project=project, version=python or "0", python=python)
            made.append(WheelResult(wheel=wheel, kept=False, torch_pin=""))
    index = WheelIndex(folder=tmp_path, made=tuple(made), missing_tests=published.MissingTests())
    assert result(index, 1.0).document["use"] == f"pip install --extra-index-url {tmp_path.as_uri()} {named}"


def test_the_result_tells_the_oldest_glibc_and_tests_that_failed(tmp_path: Path) -> None:
    tests = published.MissingTests(untested=("torch_scatter-1-0.conda",), failed=("pytorch-1-0.conda",))
    names = {
        "a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl": True,
        "b-1-py3-none-any.whl": False,
    }
    made = tuple(
        WheelResult(wheel=replace(indexed("1"), name=name), kept=kept, torch_pin="torch==1")
        for name, kept in names.items()
    )
    told: Any = result(WheelIndex(folder=tmp_path, made=made, missing_tests=tests), 1.0)
    assert [(item["glibc"], item["made"]) for item in told.document["wheels"]] == [
        ("2.17", False),
        ("", True),
    ]
    assert told.lines[1].split()[0] == "="
    assert told.lines[1].endswith("glibc 2.17")
    assert told.lines[-2:] == tests.lines
    assert told.document["failed_tests"] == ["pytorch-1-0.conda"]
    assert told.document["untested"] == ["torch_scatter-1-0.conda"]


@pytest.mark.parametrize("other", ["project", "python"])
def test_a_wheel_replaces_that_of_its_project_and_python_alone(other: str) -> None:
    kept = indexed("kept", **{other: "another"})
    new = indexed("new")
    wheels = {indexed("former"): Path("former"), kept: Path("kept")}
    make_wheels._replace_wheel(wheels, new, Path("new"))
    assert wheels == {kept: Path("kept"), new: Path("new")}


def test_wheels_of_packages_that_are_published_no_longer_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {"a.conda": SimpleNamespace(sha256="of a")}
    monkeypatch.setattr(make_wheels.published, "records", lambda _: records)  # type: ignore[attr-defined]
    kept = indexed("kept", package="of a")
    damaged = indexed("damaged", package="of a")
    gone = indexed("gone", package="of its former build")
    monkeypatch.setattr(simple_index, "is_intact", lambda _, wheel: wheel is not damaged)
    said: list[object] = []
    assert make_wheels._still_valid([kept, damaged, gone], tmp_path, tmp_path, said.append) == {
        kept: tmp_path / simple_index.SIMPLE / kept.place
    }
    assert said == [f"{damaged.name} is damaged: it leaves the index"]


@pytest.mark.parametrize("is_needed", [True, False])
@pytest.mark.parametrize("is_installed", [True, False])
def test_a_wheel_of_torch_has_openmp_next_to_its_libraries_if_they_need_it(
    is_needed: bool, is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vendored by auditwheel it would have another name: a process that loads another copy would have two."""
    openmp = wheel_tree.OPENMP
    libraries = tmp_path / "tree" / wheel_tree.LIBRARIES
    libraries.mkdir(parents=True)
    monkeypatch.setattr(wheel_tree, "needed", lambda _: {openmp} if is_needed else set())
    if is_installed:
        write(tmp_path / "env/lib", **{openmp: ELF})
    build: Any = SimpleNamespace(root=None, built=BUILT)
    contents: Any = SimpleNamespace(prefix=tmp_path / "env", records={})
    linking = make_wheels._WheelBuild._link_torch(build, contents, tmp_path / "tree")
    is_brought = is_needed and is_installed
    assert [path.name for path in libraries.iterdir()] == ([openmp] if is_brought else [])
    assert (openmp in linking.without) == is_brought
    assert linking.libraries == [tmp_path / "env/lib"]
    build.root = SimpleNamespace(libraries=tmp_path / "root/lib")
    linking = make_wheels._WheelBuild._link_torch(build, contents, tmp_path / "tree")
    assert linking.libraries == [tmp_path / "env/lib", tmp_path / "root/lib"]


@pytest.mark.parametrize("package", ["1", "2"])
@pytest.mark.parametrize("inputs", ["1", "2"])
def test_a_wheel_of_another_package_or_of_other_inputs_is_made_again(
    inputs: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = IndexedWheel(
        name="torch-2.6.0-cp312-cp312-linux_x86_64.whl", project="torch", version="2.6.0", python="3.12",
        package=package, inputs=inputs, size=1, sha256="x", requires_python="",
    )  # fmt: skip
    asked: list[object] = []
    made: list[object] = []

    def wheel_inputs(*given: object) -> SimpleNamespace:
        asked.extend(given)
        return SimpleNamespace(digest="1")

    class Build:
        def __init__(self, *_: object, **__: object) -> None:
            made.append(1)

        def wheel(self) -> Path:
            return tmp_path / "new.whl"

    monkeypatch.setattr(environments, "find_channel", lambda *_: tmp_path / "channel")
    monkeypatch.setattr(published, "records", lambda _: {"torch.conda": SimpleNamespace(sha256=package)})
    monkeypatch.setattr(published, "check", lambda _: None)
    monkeypatch.setattr(make_wheels, "find", lambda *_: [BUILT])
    monkeypatch.setattr(tools, "versions", lambda: {"patchelf": "1"})
    monkeypatch.setattr(simple_index, "read", lambda _: [wheel])
    monkeypatch.setattr(simple_index, "is_intact", lambda *_: True)
    monkeypatch.setattr(simple_index, "publish", lambda *_: None)
    monkeypatch.setattr(
        simple_index, "index_entry", lambda *_, **new: replace(wheel, **{**new, "sha256": "new"})
    )
    monkeypatch.setattr(make_wheels, "_root", lambda *_: "root")
    monkeypatch.setattr(make_wheels, "_WheelBuild", Build)
    monkeypatch.setattr(make_wheels, "wheel_inputs", wheel_inputs)
    monkeypatch.setattr(published, "find_missing_tests", lambda *_: None)
    request = Request(output=tmp_path, config="x", pythons=(), names=(), cache=tmp_path, date=7)
    (result,) = make_wheels.make(request, lambda _: None).made
    assert asked == [BUILT, "root", tmp_path / "channel", {"patchelf": "1"}, 7]
    assert result.kept == (not made) == (inputs == package == "1")
    if made:
        assert (result.wheel.package, result.wheel.inputs) == ("1", "1")


@pytest.mark.parametrize(
    ("config", "project", "is_asked"),
    [
        ("linux_64_cpu_debian", "torch", True), ("linux_64_cuda130_debian-2.14.1", "torch", True),
        ("linux_64_cpu_debian-rehearsal", "torch", True), ("linux_64_cpu_debian", "torch_scatter", False),
        ("linux_64_cpu", "torch", False), ("linux_64_cpu_wheel", "torch", False),
    ],
)  # fmt: skip
def test_only_a_pytorch_compiled_in_debian_needs_its_root(
    config: str, project: str, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = object()
    monkeypatch.setattr(make_wheels, "machine_platform", lambda: "linux-64")
    monkeypatch.setattr(debian_root, "find", lambda *_, **__: root)
    request = Request(output=tmp_path, config=config, pythons=(), names=(), cache=tmp_path, date=0)
    package = replace(BUILT, project=project, path=tmp_path / "linux-64/a.conda")
    assert make_wheels._root(request, package) is (root if is_asked else None)


def test_a_wheel_of_pytorch_depends_on_libtorch_and_the_source_of_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"libtorch-1.conda": "2", "libtorch-cuda-linalg-1.conda": "1", "pytorch-1.conda": "3"}
    records = {name: SimpleNamespace(sha256=digest) for name, digest in names.items()}
    monkeypatch.setattr(published, "records", lambda _: records)
    lists = [[SimpleNamespace(address=address) for address in row] for row in ("ab", "c")]
    monkeypatch.setattr(published, "channels_beside", lambda _: lists)
    root: Any = SimpleNamespace(fingerprint="r")
    inputs = make_wheels.wheel_inputs(BUILT, root, tmp_path, {"patchelf": "1"}, 7)
    assert (inputs.libtorch, inputs.channels, inputs.root) == (["1", "2"], ["a", "b"], "r")
    assert (inputs.programs, inputs.date, inputs.package) == ({"patchelf": "1"}, 7, "1")
    lists.clear()
    assert make_wheels.wheel_inputs(BUILT, None, tmp_path, {}, 7).channels == []
    extension = replace(BUILT, project="torch_scatter")
    inputs = make_wheels.wheel_inputs(extension, None, tmp_path, {"patchelf": "1"}, 7)
    assert (inputs.libtorch, inputs.channels, inputs.root, inputs.programs) == ((), (), "", {"patchelf": "1"})


def test_tests_of_libtorch_are_tests_of_pytorchs_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "records", lambda _: ["libtorch-1.conda", "pytorch-1.conda"])
    extension = replace(BUILT, project="torch_scatter", path=Path("scatter.conda"))
    assert make_wheels._contained(tmp_path, [extension]) == ["scatter.conda"]
    contained = make_wheels._contained(tmp_path, [extension, BUILT])
    assert contained == ["scatter.conda", "torch.conda", "libtorch-1.conda"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Publish two wheels, then make a run whose channel has some of their packages; return the steps of the run."""
    steps: list[str] = []

    class Build:
        def __init__(self, *_: object, **__: object) -> None: ...

        def wheel(self) -> Path:
            steps.append("make")
            return scatter(tmp_path / "new", "3")[1]

    def make(*packages: str, asked: Sequence[BuiltPackage] = ()) -> list[str]:
        folder = tmp_path / "wheels" / "x"
        folder.mkdir(parents=True)
        wheels = dict(scatter(tmp_path / "made", version, package=version) for version in ("1", "2"))
        simple_index.publish(folder, wheels)
        (folder / ".simple-killed").mkdir()
        records = {name: SimpleNamespace(sha256=name) for name in packages}
        monkeypatch.setattr(published, "records", lambda _: records)
        monkeypatch.setattr(make_wheels, "find", lambda *_: asked)
        before = (folder / simple_index.SIMPLE).resolve()
        request = Request(output=tmp_path, config="x", pythons=(), names=(), cache=tmp_path, date=0)
        make_wheels.make(request, lambda _: None)
        steps.append("same" if (folder / simple_index.SIMPLE).resolve() == before else "new")
        assert len([*folder.glob(".simple-*")]) == 1
        return [*steps, *(wheel.version for wheel in simple_index.read(folder))]

    monkeypatch.setattr(environments, "find_channel", lambda *_: tmp_path / "channel")
    monkeypatch.setattr(tools, "versions", dict)
    monkeypatch.setattr(published, "find_missing_tests", lambda *_: None)
    monkeypatch.setattr(published, "check", lambda path: steps.append(f"check {path}"))
    monkeypatch.setattr(make_wheels, "_WheelBuild", Build)
    return make


def test_an_index_changes_with_its_wheels(index: Callable[..., list[str]]) -> None:
    assert index("1", "2") == ["same", "1", "2"]


def test_an_index_loses_wheels_whose_packages_are_gone(index: Callable[..., list[str]]) -> None:
    assert index("2") == ["new", "2"]


def test_a_package_is_checked_before_it_becomes_a_wheel(index: Callable[..., list[str]]) -> None:
    package = replace(BUILT, project="torch_scatter", path=Path("a.conda"), sha256="3")
    assert index("1", "2", "3", asked=[package]) == ["check a.conda", "make", "new", "1", "2", "3"]


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_a_wheel_of_pytorch_has_the_files_of_its_own_build(
    cuda: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel may have others of its version; the machine may be of another platform, and without a GPU."""
    asked: list[object] = []

    def solve(channel: Path, specs: list[str], **more: object) -> None:
        asked.extend([channel, specs, more])
        raise PreflightError("asked")

    monkeypatch.setattr(environments, "solve", solve)
    package = replace(BUILT, cuda=cuda, path=tmp_path / "linux-aarch64" / "torch.conda")
    request = Request(output=tmp_path, config="x", pythons=(), names=(), cache=tmp_path, date=0)
    build = make_wheels._WheelBuild(request, tmp_path, package, None, folder=tmp_path, report=lambda _: None)
    with pytest.raises(PreflightError, match="asked"):
        build._environment()
    virtual = {"__glibc": "2.99", **({"__cuda": cuda} if cuda else {})}
    assert asked == [tmp_path, ["pytorch ==2.6.0 b"], {"virtual": virtual, "platform": "linux-aarch64"}]


def test_a_wheel_is_tagged_for_the_platform_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged: list[object] = []

    def tag(tree: Path, subdir: str) -> str:
        tagged.append((tree, subdir))
        raise BuildError("tagged")

    monkeypatch.setattr(wheel_tree, "tag", tag)
    package = replace(BUILT, path=tmp_path / "linux-aarch64" / "torch.conda")
    with pytest.raises(BuildError, match="tagged"):
        make_wheels._WheelBuild._vendored(SimpleNamespace(built=package), tmp_path, None)  # type: ignore[arg-type]
    assert tagged == [(tmp_path, "linux-aarch64")]


def test_the_latest_build_of_each_project_and_python_becomes_a_wheel(tmp_path: Path) -> None:
    """With and without a GIL; the date decides, whatever the hash in the name."""
    packages = []
    dates = {"torch-b": 1, "torch-a": 2, "torch_t-a": 1, "scatter-b": 3, "scatter-c": 2}
    for name, date in dates.items():
        path = tmp_path / f"{name}.conda"
        path.touch()
        os.utime(path, (date, date))
        project = "torch" if name.startswith("torch") else "torch_scatter"
        python = "3.13t" if "_t" in name else "3.13"
        packages.append(replace(BUILT, project=project, python=python, path=path))
    found = [package.path.stem for package in built._newest([None, *packages])]
    assert found == ["torch-a", "torch_t-a", "scatter-b"]


@pytest.mark.parametrize("project", ["torch", "torch_scatter"])
def test_a_wheel_gets_all_that_its_users_need(
    project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of PyTorch's own files, and of the libraries that it vendors."""
    (tmp_path / "env").mkdir()
    contents = SimpleNamespace(prefix=tmp_path / "env", paths=["a"], texts={"own": Path("own")}, records={})
    linking = SimpleNamespace(folders=["nvidia"], requires=["nvidia-cublas"])
    build = make_wheels._WheelBuild
    monkeypatch.setattr(build, "_contents", lambda _: contents)
    monkeypatch.setattr(build, "_link_torch", lambda *_: linking)
    monkeypatch.setattr(build, "_vendored", lambda *_: tmp_path / "a-1-py3-none-any.whl")
    monkeypatch.setattr(build, "_vendored_texts", lambda *_: {"vendored": Path("vendored")})
    done: list[object] = []

    def noting(name: str) -> Callable[..., object]:
        def note(*given: object) -> object:
            done.append((name, *given))
            return given[1]

        return note

    for name in ("lay_out", "add_licences", "add_headers", "link", "set_vendored_rpaths"):
        monkeypatch.setattr(wheel_tree, name, noting(name))
    for name in ("name_version", "pack"):
        monkeypatch.setattr(wheel_file, name, noting(name))
    package = replace(BUILT, project=project)
    request = Request(output=tmp_path, config="x", pythons=(), names=(), cache=tmp_path, date=7)
    made = build(request, tmp_path, package, None, folder=tmp_path, report=lambda _: None).wheel()
    assert made == tmp_path / "a-1-py3-none-any.whl"
    tree, is_torch = tmp_path / "tree", project == "torch"
    of_torch = [
        ("set_vendored_rpaths", tree, ["nvidia"]),
        ("add_licences", tree, {"vendored": Path("vendored")}),
    ]
    assert done == [
        ("lay_out", contents.prefix, ["a"], tree), ("add_licences", tree, contents.texts),
        *([("add_headers", contents.prefix, tree)] if is_torch else []),
        ("link", tree, ["nvidia"] if is_torch else ()),
        ("name_version", tree, package.wheel_version, (*package.requires, *(["nvidia-cublas"] if is_torch else []))),
        *(of_torch if is_torch else []), ("pack", tree, made, 7),
    ]  # fmt: skip
    assert not contents.prefix.exists(), "it takes gigabytes"
