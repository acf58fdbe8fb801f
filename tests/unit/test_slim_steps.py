"""Which files a step of a slimming could remove, who needs them, and the names of smaller packages."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from small_files import write
from wheel_files import make_wheel

from gpu_tools.contents import Contents, scan
from gpu_tools.slim import find_files, repack, steps, users
from gpu_tools.slim.features import Feature, is_nvidia
from gpu_tools.slim.find_files import Survey
from gpu_tools.slim.library import Shrinking
from gpu_tools.slim.steps import SlimRequest, SlimStep, select_steps
from gpu_tools.subject_kind import SubjectKind
from groundwork import wheel_file
from groundwork.errors import UsageError

SITE = "lib/python3.12/site-packages"


def environment(root: Path, packages: Mapping[str, Mapping[str, str]], **requires: str) -> Contents:
    """Write an environment of wheels, with files below site-packages."""
    for name, files in packages.items():
        escaped = name.replace("-", "_")
        info = f"{escaped}-1.dist-info"
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires.get(escaped, "").split())
        listed = {**files, f"{info}/METADATA": f"Name: {name}\n{needs}"}
        for path, text in listed.items():
            write(root / SITE / path, text)
        write(root / SITE / info / "RECORD", "".join(f"{path},,\n" for path in listed))
    return scan(root, name="x")


def found(finder: find_files.Finder, contents: Contents, *gpus: str) -> list[str]:
    survey = Survey(contents=contents, gpus=gpus)
    return sorted(path.removeprefix(f"{SITE}/") for path in finder(survey))


# ------------------------------------------------------------------------------------------------------------ files

TOOLS = {f"triton/backends/nvidia/bin/{name}": "" for name in ("ptxas", "ptxas-blackwell")}


@pytest.mark.parametrize(
    ("gpus", "unneeded"),
    [
        ([], []), (["sm_90"], ["ptxas-blackwell"]), (["sm_120"], ["ptxas"]), (["sm_100", "sm_120"], ["ptxas"]),
        (["sm_80", "sm_90"], ["ptxas-blackwell"]), (["sm_90", "sm_120"], []),
    ],
)  # fmt: skip
def test_an_assembler_goes_if_no_gpu_needs_it_and_the_other_is_there(
    gpus: Sequence[str], unneeded: list[str], tmp_path: Path
) -> None:
    both = environment(tmp_path / "both", {"triton": TOOLS})
    assert [Path(path).name for path in found(find_files.find_other_assembler, both, *gpus)] == unneeded
    for number, (path, text) in enumerate(TOOLS.items()):
        one = environment(tmp_path / str(number), {"triton": {path: text}})
        assert found(find_files.find_other_assembler, one, *gpus) == []


def test_of_tritons_packages_the_metadata_and_other_modules_stay(tmp_path: Path) -> None:
    licence = "triton-1.dist-info/licenses/triton/LICENSE"
    files = {
        licence: "",
        "triton/a.py": "",
        "triton/nvidia/lib/cupti/x.so": "",
        "other.py": "",
        "triton/bin/nvdisasm": "",
    }
    contents = environment(tmp_path, {"triton": files, "user": {"user/triton/a.py": ""}})
    assert found(find_files.find_triton, contents) == [
        "triton/a.py", "triton/bin/nvdisasm", "triton/nvidia/lib/cupti/x.so",
    ]  # fmt: skip
    assert found(find_files.find_triton_profiler, contents) == [
        "triton/bin/nvdisasm", "triton/nvidia/lib/cupti/x.so",
    ]  # fmt: skip


def test_tests_go_with_their_byte_code_and_other_modules_of_tests_stay(tmp_path: Path) -> None:
    names = [
        "a/tests/test_x.py",
        "a/test/conftest.py",
        "a/tests/helper.py",
        "a/test_y.py",
        "a/tests/data/test_z.txt",
    ]
    code = {f"{Path(name).parent}/__pycache__/{Path(name).stem}.cpython-312.pyc": "" for name in names[:4]}
    (step,) = (step for step in steps.STEPS if step.name == "tests")
    contents = environment(tmp_path, {"a": {**dict.fromkeys(names, ""), **code}})
    assert found(step.files, contents) == [
        "a/test/__pycache__/conftest.cpython-312.pyc", "a/test/conftest.py",
        "a/tests/__pycache__/test_x.cpython-312.pyc", "a/tests/test_x.py",
    ]  # fmt: skip


def test_only_in_an_environment_are_all_users_of_a_library_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {"a/x.py": "", "a/__pycache__/x.cpython-312.pyc": "", "a/__pycache__/gone.cpython-312.pyc": ""}
    contents = environment(tmp_path, {"a": code})
    monkeypatch.setattr(find_files, "find_unused_libraries", lambda _: {"unused": False, "measuring": True})
    for kind in SubjectKind:
        subject = replace(contents, kind=kind)
        is_environment = kind is SubjectKind.ENVIRONMENT
        assert found(find_files.find_unused, subject) == ["unused"] * is_environment
        assert found(find_files.find_measuring, subject) == ["measuring"] * is_environment
        compiled = found(find_files.find_byte_code, subject)
        assert compiled == ["a/__pycache__/x.cpython-312.pyc"] * is_environment


def test_an_archive_is_known_by_its_first_bytes_and_headers_by_their_package(tmp_path: Path) -> None:
    contents = environment(
        tmp_path,
        {
            "nvidia-cublas": {"nvidia/lib/libx.a": "!<arch>\n", "nvidia/include/c.h": ""},
            "spice": {"spice/model.a": "text", "spice/include/s.h": ""},
            "torch": {"torch/include/t.h": ""},
        },
    )
    assert found(find_files.find_static_libraries, contents) == ["nvidia/lib/libx.a"]
    assert found(find_files.find_torch_headers, contents) == ["torch/include/t.h"]
    assert found(find_files.find_nvidia_headers, contents) == ["nvidia/include/c.h"]


# ------------------------------------------------------------------------------------------------------------ users


@pytest.mark.parametrize(
    ("files", "is_useless"),
    [
        ({"a/x.py": "import triton\n"}, True),
        ({"a/x.py": "from triton import jit\n"}, True),
        ({"a/x.py": "try:\n    import triton\nexcept ImportError: pass\n"}, False),
        ({"a/x.py": "import triton\n", "a/y.py": "def f():\n    import triton\n"}, True),
        ({"a/x.py": "def f():\n    import triton\n", "a/y.py": "import os, triton\n"}, True),
        ({"a/x.py": "import tritonclient\n"}, None),
        ({"a/tests/x.py": "import triton\n"}, None),
        ({"a/x.txt": "import triton\n"}, None),
    ],
)
def test_a_package_is_useless_without_a_module_that_it_imports_at_once(
    files: Mapping[str, str], is_useless: bool | None, tmp_path: Path
) -> None:
    contents = environment(tmp_path, {"a": files, "torch": {"torch/x.py": "import triton\n"}})
    expected = {} if is_useless is None else {"a": is_useless}
    assert users.find_triton_users(contents) == expected


def test_packages_that_require_triton_are_useless_without_also_if_they_import_it_late(tmp_path: Path) -> None:
    late = {"late/x.py": "def f():\n    import triton\n"}
    contents = environment(
        tmp_path, {"late": late, "torch": {"torch/x.py": ""}}, late="triton>=3", torch="triton"
    )
    assert users.find_triton_users(contents) == {"late": True}


def test_packages_that_compile_are_found_by_requirements_headers_and_imports(tmp_path: Path) -> None:
    contents = environment(
        tmp_path,
        {
            "asks": {"asks/x.py": ""}, "bitsandbytes": {"bitsandbytes/x.py": ""}, "nvidia-cublas": {"c/x.h": ""},
            "nvidia-cutlass": {"cutlass/x.py": "x", "cutlass/include/x.h": ""},
            "nvidia-empty": {"empty/__init__.py": "", "empty/include/x.h": ""},
            "imports": {"imports/x.py": "from torch.utils import cpp_extension\n"},
            "late": {"late/x.py": "def f():\n    import torch.utils.cpp_extension\n"},
        },
        asks="nvidia-cuda-nvcc-cu12", bitsandbytes="cuda-nvcc", nvidia_cublas="cuda-nvcc",
    )  # fmt: skip
    assert users.find_compiler_users(contents) == {
        "asks": True, "nvidia-cutlass": True, "imports": True, "late": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "python", "unused"),
    [
        ({}, {}, {"libnvblas": False, "libcufftw": False, "libnvperf_host": True}),
        ({"liba": {"libnvblas"}}, {}, {"libcufftw": False, "libnvperf_host": True}),
        ({"liba": {"libnvblas"}, "libnvblas": {"libcufftw"}}, {}, {"libnvperf_host": True}),
        ({"libnvblas": {"libcufftw"}, "libcufftw": {"libnvblas"}}, {},
         {"libnvblas": False, "libcufftw": False, "libnvperf_host": True}),
        ({"libcufftw": {"libnvperf_host"}}, {"user/x.py": "load('libcufftw.so.11')"}, {"libnvblas": False}),
        ({}, {"nvidia/x.py": "'libcufftw.so.11'"}, {"libnvblas": False, "libcufftw": False, "libnvperf_host": True}),
        ({}, {"pathfinder/x.py": "'libnvblas.so'"}, {"libnvblas": False, "libcufftw": False, "libnvperf_host": True}),
    ],
    ids=["none", "linked", "of a used one", "of each other", "of Python", "of NVIDIA", "of the catalogue"],
)  # fmt: skip
def test_a_library_is_unused_if_only_unused_ones_name_it(
    names: Mapping[str, set[str]],
    python: Mapping[str, str],
    unused: Mapping[str, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = {"user": "user", "nvidia": "nvidia-cublas", "pathfinder": "cuda-pathfinder"}
    packages: dict[str, dict[str, str]] = {name: {} for name in owners.values()}
    for path, text in python.items():
        packages[owners[path.partition("/")[0]]][path] = text
    for stem in ("libnvblas", "libcufftw", "libnvperf_host", "libcublas"):
        packages["nvidia-cublas"][f"nvidia/lib/{stem}.so.12"] = "x"
    packages["user"].update({"user/liba.so": "x", "user/libcufftw.so.1": "another's, of this name"})
    contents = environment(tmp_path, packages)
    stems = {stem: set(named) for stem, named in names.items()}

    def read_names(_: Contents, path: str) -> set[str]:
        return (
            stems.get(Path(path).name.partition(".so")[0], set()) if "user/libcufftw" not in path else set()
        )

    monkeypatch.setattr(users, "_read_names", read_names)
    found = users.find_unused_libraries(contents)
    assert {Path(path).name.partition(".so")[0]: measures for path, measures in found.items()} == unused
    assert all("/nvidia/lib/" in path for path in found)


@pytest.mark.parametrize(
    ("owner", "is_nvidias"),
    [
        *((name, True) for name in ("nvidia-cublas-cu12", "nvidia-nccl-cu13", "cuda-nvcc", "libcublas", "cudnn", "nccl",
                                    "libnvjitlink", "libnpp-dev", "cutensor-cu12", "cuda-cudart")),
        *((name, False) for name in ("nvidia-ml-py", "nvidia-modelopt", "nvidia-dali-cuda120", "cuda-python",
                                     "cuda-bindings", "cuda-core", "cuda-pathfinder", "torch", "libcurl", "cupy")),
    ],
)  # fmt: skip
def test_packages_with_nvidia_s_libraries_are_known_by_their_names(owner: str, is_nvidias: bool) -> None:
    assert is_nvidia(owner) == is_nvidias


# ------------------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("arch", ["9.0+PTX", "9.0a", "10.0f"])
def test_code_for_several_gpus_is_no_gpu(arch: str) -> None:
    with pytest.raises(UsageError, match=f"--arch-list: {arch}: not a GPU".replace("+", r"\+")):
        steps.parse_gpus(["8.0", arch])


def test_every_gpu_of_a_list_is_kept() -> None:
    assert steps.parse_gpus(["8.0;9.0", "12.0"]) == ("sm_80", "sm_90", "sm_120")
    assert steps.parse_keep(["compile, tests", "", "headers-torch"]) == {
        "compile-cpu", "compile-gpu", "tests", "headers-torch",
    }  # fmt: skip
    with pytest.raises(UsageError, match="--keep: test: unknown"):
        steps.parse_keep(["tests,test"])


VITAL = Feature(name="vital", words="v", of="needs", is_vital=True)
COMMON = Feature(name="common", words="c", of="a")
ABSENT = Feature(name="absent", words="x", of="b", is_vital=True)


@pytest.mark.parametrize(
    ("change", "keep", "outcome"),
    [
        ({}, (), "chosen"),
        ({}, ("step",), "kept"),
        ({}, ("common",), "kept"),
        ({}, ("absent",), "chosen"),
        ({"costs": (VITAL,)}, (), "spared: vital"),
        ({"costs": (VITAL,)}, ("vital",), "kept"),
        ({"costs": (VITAL,), "files": find_files.find_nothing}, (), "none"),
        ({"users": lambda _: {"b": True, "a": True, "c": False}}, (), "spared: a, b"),
        ({"users": lambda _: {"c": False}}, (), "chosen"),
        ({"users": lambda _: {"c": True}, "files": find_files.find_nothing}, (), "chosen"),
    ],
)
def test_a_step_is_left_out_for_the_user_or_for_packages_that_would_be_useless(
    change: dict[str, Any],
    keep: tuple[str, ...],
    outcome: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents = environment(tmp_path, {"a": {"a/x.py": ""}, "needs": {"needs/x.py": ""}})
    given = {"files": find_files.by_path(".*a/x.py"), "costs": (COMMON, ABSENT), **change}
    step = SlimStep(name="step", loses="x", **given)
    monkeypatch.setattr(steps, "STEPS", (step,))
    selection = select_steps(contents, SlimRequest(keep=frozenset(keep)))
    spared = {"step": outcome.removeprefix("spared: ")} if outcome.startswith("spared") else {}
    assert selection.spared == spared
    assert [candidate.step for candidate in selection.chosen] == [step] * (outcome == "chosen")


def test_code_for_other_gpus_goes_only_if_gpus_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEPS", (SlimStep(name="g", loses="x", shrinks=Shrinking.GPU_CODE),))
    contents = environment(tmp_path, {"a": {"a/x.py": ""}})
    assert select_steps(contents, SlimRequest()).shrinkings == set()
    assert select_steps(contents, SlimRequest(gpus=("sm_90",))).shrinkings == {Shrinking.GPU_CODE}


# --------------------------------------------------------------------------------------------------- smaller packages


@pytest.mark.parametrize(("former", "number"), [("", "1slim"), ("3local-", "3localslim")])
def test_a_smaller_wheel_is_newer_than_the_wheel_that_it_was_made_of(
    former: str, number: str, tmp_path: Path
) -> None:
    name = f"a-1.0-{former}py3-none-any.whl"
    made = make_wheel(tmp_path, "a-1.0-py3-none-any.whl", {"a.py": b""})
    root = wheel_file.unpack(made, tmp_path / "x" / "root")
    about = wheel_file.metadata(root) / "WHEEL"
    about.write_text(about.read_text() + ("Build: 3local\n" if former else ""))
    written = repack._pack_wheel(tmp_path / name, root, "slim")
    assert written == tmp_path / "x" / f"a-1.0-{number}-py3-none-any.whl"
    assert [line for line in about.read_text().splitlines() if line.startswith("Build")] == [
        f"Build: {number}"
    ]
    assert wheel_file.why_broken(written) == ""


@pytest.mark.parametrize(
    ("gpus", "constrains"),
    [
        ((), ["old <2"]),
        (("sm_90", "sm_120"), ["old <2", "__cuda_arch >=9.0,<10.0a0|>=12.0,<13.0a0"]),
    ],
)
def test_a_smaller_conda_package_keeps_its_constraints_and_has_those_of_its_gpus(
    gpus: tuple[str, ...], constrains: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = {"name": "a", "version": "1", "build": "h0_0", "constrains": ["old <2"]}
    file = write(tmp_path / "root/info/index.json", json.dumps(index))
    package = make_wheel(
        tmp_path, "a-1-h.whl", {"metadata.json": b"{}", "pkg-a.tar.zst": b"", "info-a.tar.zst": b""}
    )
    monkeypatch.setattr(repack, "_copy_tar", lambda *_: None)
    plan: Any = SimpleNamespace(contents=SimpleNamespace(root=tmp_path / "root"))
    written = repack._pack_conda(package, plan, "slim", gpus)
    assert written == tmp_path / "a-1-h0_0_slim.conda"
    assert json.loads(file.read_text()) == {**index, "build": "h0_0_slim", "constrains": constrains}


def packed(members: Mapping[str, str | None]) -> bytes:
    """Return a compressed tar archive of files, and of links (None) to ``a``."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if text is None:
                member.type = tarfile.SYMTYPE
                member.linkname = "a"
            member.size = len(text or "")
            archive.addfile(member, io.BytesIO((text or "").encode()))
    return zstandard.compress(data.getvalue())


def test_a_smaller_package_has_the_links_and_the_changed_files_of_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repack, "_LEVEL", 1)
    write(tmp_path / "a", "small")
    former = packed(
        {"./a": "larger content", "b/link": None, "gone": "x", "gone-link": None, "../outside": "x"}
    )
    plan: Any = SimpleNamespace(
        gone={"gone", "gone-link"}, contents=SimpleNamespace(root=tmp_path, every={"a": 1, "gone": 1})
    )
    made = io.BytesIO()
    repack._copy_tar(io.BytesIO(former), made, plan)
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(made.getvalue())
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        members = {member.name.removeprefix("./"): member for member in archive.getmembers()}
        assert set(members) == {"a", "b/link"}
        content = archive.extractfile(archive.getmembers()[0])
        assert content is not None
        assert content.read() == b"small"
    assert (members["b/link"].linkname, members["b/link"].issym()) == ("a", True)
    assert {member.mode for member in members.values()} == {0o755}
