"""What a slimming takes and says follows the packages that are installed."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from gpu_library import MACHINE_CODE, PTX, build, entry, fatbin
from slim_world import SITE, install, library, tree, venv
from small_files import write

from command_line.run_command import Invocation
from cuda_code.cuda_archs import Runs
from gpu_tools.contents import scan
from gpu_tools.sizes.inside import classify_path
from gpu_tools.slim import commands, features, find_files, steps, users
from gpu_tools.slim import plan as slim_plan
from gpu_tools.slim.find_files import Survey, find_other_assembler, find_torch_headers
from gpu_tools.slim.library import LibrarySlimmed
from gpu_tools.slim.plan import SlimPlan, make_plan
from gpu_tools.slim.steps import Candidate, SlimRequest
from gpu_tools.subject_kind import SubjectKind
from groundwork.errors import IntegrityError, UsageError

HEADER = {"nvidia/cu13/include/cuda_fp16.h": "//\n" * 99}
STATIC = {"nvidia/cu13/lib/libcudadevrt.a": b"!<arch>\n" * 99}


def cuda(env: Path, *names: str, package: str = "nvidia-cublas") -> None:
    """Install libraries of NVIDIA's that nothing names."""
    files: dict[str, str | bytes] = {**HEADER, **STATIC}
    for name in names:
        made = library(env.parent / "made" / name, name.partition(".")[0].replace("-", "_"))
        files[f"nvidia/cu13/lib/{name}"] = made.read_bytes()
    install(env, package, files)


def plan(env: Path, *gpus: str, keep: Iterable[str] = ()) -> SlimPlan:
    return make_plan(scan(env, name="env"), SlimRequest(gpus=gpus, keep=frozenset(keep)), lambda _: None)


def gone(env: Path, **request: Any) -> set[str]:
    return {path.removeprefix(f"{SITE}/") for path in plan(env, **request).gone}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_only_libraries_known_to_be_unused_go_though_nothing_names_the_others(tmp_path: Path) -> None:
    """TensorFlow puts the names of those that it opens together as it runs."""
    env = venv(tmp_path / "env")
    names = "libcublas.so.12 libcudnn.so.9 libcusolverMg.so.11 libnvrtc.alt.so.12 libnvblas.so.12"
    cuda(env, *names.split())
    install(env, "tensorflow", {"tf.py": ""}, requires=["nvidia-cublas; extra == 'and-cuda'"])
    taken = {f"nvidia/cu13/lib/{name}" for name in names.split()[2:]}
    assert {path for path in gone(env) if ".so" in path} == taken
    install(env, "user", {"user.py": "ctypes.CDLL('libcusolverMg.so.11')\n"})
    assert {path for path in gone(env) if ".so" in path} == taken - {"nvidia/cu13/lib/libcusolverMg.so.11"}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("opens_by", ["Python", "a library"])
def test_a_library_that_one_in_use_opens_stays(opens_by: str, tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    opened = "libnvrtc-builtins.alt.so.13"
    opener = library(tmp_path / "made" / "libnvrtc.alt.so.13", "nvrtc", names=[opened])
    builtins = library(tmp_path / "made" / opened, "builtins")
    files: dict[str, str | bytes] = {}
    for path in (opener, builtins):
        files[f"nvidia/cu13/lib/{path.name}"] = path.read_bytes()
    install(env, "nvidia-cuda-nvrtc", files)
    assert set(files) <= gone(env)
    user: dict[str, str | bytes] = {"user.py": "ctypes.CDLL('libnvrtc.alt.so.13')\n"}
    if opens_by == "a library":
        name = "user/libuser.so"
        user = {name: library(tmp_path / "made" / "libuser.so", "user", names=[opener.name]).read_bytes()}
    install(env, "user", user)
    assert set(files).isdisjoint(gone(env))


def test_a_static_library_is_an_archive_whatever_its_suffix(tmp_path: Path) -> None:
    """Circuit models, scripts of expect and other data may have the suffix of a library."""
    env = venv(tmp_path / "env")
    archive, data = b"!<arch>\n", b".MODEL D1 D\n"
    files: dict[str, str | bytes] = {f"pk/data{suffix}": data for suffix in (".a", ".lib", ".exp", ".bc")}
    install(env, "spice", {"pk/libx.a": archive, **files})
    assert {path for path in gone(env) if path.startswith("pk/") and "__pycache__" not in path} == {
        "pk/libx.a"
    }


@pytest.mark.parametrize(
    ("gpus", "goes"),
    [
        ([], []),
        (["sm_90"], ["ptxas-blackwell"]),
        (["sm_80", "sm_90"], ["ptxas-blackwell"]),
        (["sm_100", "sm_120"], ["ptxas"]),
        (["sm_90", "sm_120"], []),
        (["sm_120", "sm_90"], []),
    ],
    ids=" ".join,
)
def test_an_assembler_stays_as_long_as_one_gpu_needs_it(
    gpus: list[str], goes: list[str], tmp_path: Path
) -> None:
    env = venv(tmp_path / "env")
    folder = "triton/backends/nvidia/bin"
    install(env, "triton", {"triton/__init__.py": "", f"{folder}/ptxas": "", f"{folder}/ptxas-blackwell": ""})
    survey = Survey(contents=scan(env, name="env"), gpus=tuple(gpus))
    assert [os.path.basename(path) for path in find_other_assembler(survey)] == goes


@pytest.mark.parametrize("name", ["ptxas", "ptxas-blackwell"])
@pytest.mark.parametrize("gpu", ["sm_90", "sm_120"])
def test_the_only_assembler_of_a_triton_stays(gpu: str, name: str) -> None:
    path = f"triton/backends/nvidia/bin/{name}"
    contents = SimpleNamespace(owners={path: "triton", "triton/__init__.py": "triton"})
    assert not [*find_other_assembler(Survey(contents=cast(Any, contents), gpus=(gpu,)))]


@pytest.mark.parametrize(
    ("kind", "goes"),
    [(SubjectKind.ENVIRONMENT, ["a.so"]), (SubjectKind.WHEEL, []), (SubjectKind.CONDA_PACKAGE, [])],
)
def test_a_library_of_a_package_may_have_users_in_other_packages(
    kind: SubjectKind, goes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_files, "find_unused_libraries", lambda _: {"a.so": False})
    survey = Survey(contents=cast(Any, SimpleNamespace(kind=kind)), gpus=())
    assert [*find_files.find_unused(survey)] == goes


def test_byte_code_goes_with_its_source() -> None:
    paths = ("a/tests/test_x.py", "a/tests/__pycache__/test_x.cpython-312.pyc", "a/x.py")
    survey = Survey(contents=cast(Any, SimpleNamespace(owners=dict.fromkeys(paths, "a"))), gpus=())
    assert [*find_files.by_path(r".*/test_\w+\.py")(survey)] == [*paths[:2]]


@pytest.mark.parametrize("text", ["12.0+PTX", "9.0a", "10.0f", "8.6;9.0a"])
def test_code_for_some_gpus_is_no_gpu(text: str) -> None:
    assert steps.parse_gpus(["8.6;sm_90", "120"]) == ("sm_86", "sm_90", "sm_120")
    with pytest.raises(UsageError, match="not a GPU"):
        steps.parse_gpus([text])


def test_a_file_counts_for_its_first_step_and_goes_with_the_links_to_it() -> None:
    names = ("a.so.1", "b.h", "outside.so", "stays.so")
    links = {"a.so": "a.so.1", "a": "a.so", "b": "stays.so", "c.h": "b.h"}
    sizes = dict.fromkeys(names, 10) | dict.fromkeys(links, 0)
    contents = SimpleNamespace(links=links, outside={"outside.so": "/cache/x"}, size_of=sizes.__getitem__)
    first, second, last = (
        Candidate(step=step, files=files, users={})
        for step, files in zip(
            steps.STEPS, (["a.so.1", "outside.so"], ["a.so.1", "b.h"], ["b.h"]), strict=False
        )
    )
    removed, rows = slim_plan._pick_files(cast(Any, contents), [first, second, last])
    assert removed == {"a.so.1", "a.so", "a", "b.h", "c.h"}
    assert [(row.step, row.saves, row.files) for row in rows] == [(first.step, 10, 3), (second.step, 10, 2)]


LIBRARIES = {
    "big.so": LibrarySlimmed(before=50_000, after=10_000, gpu_code=40_000, code=("sm_90",)),
    "small.so": LibrarySlimmed(before=9000, after=8000, gpu_code=1000, code=("sm_80", "compute_80")),
    "link.so": LibrarySlimmed(before=20_000, after=10_000, symbols=10_000, code=("sm_80", "lto_90")),
    "odd.so": LibrarySlimmed(before=9000, after=9000, trouble="data after the last section"),
}


@pytest.mark.parametrize("keep", [(), ("gpu-code",)])
def test_a_plan_has_what_each_library_saves_and_which_gpus_run_it(
    keep: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[Sequence[str]] = set()

    def slim_library(source: Path, target: Path, *, gpus: Sequence[str], symbols: bool) -> LibrarySlimmed:
        asked.add(gpus)
        target.write_bytes(b"x")
        return LIBRARIES[source.name]

    monkeypatch.setattr(slim_plan, "slim_library", slim_library)
    env = venv(tmp_path / "env")
    for name in LIBRARIES:
        install(env, name.removesuffix(".so"), {name: b"\x7fELF" + bytes(5000)})
    request = SlimRequest(gpus=("sm_90",), keep=frozenset(keep))
    found = make_plan(scan(env, name="env"), request, print, into=tmp_path / "new")
    assert asked == {() if keep else ("sm_90",)}
    # a file is replaced if that saves a page
    assert {os.path.basename(path) for path in found.new} == {"big.so", "link.so", "RECORD"}
    assert found.left_alone == {f"{SITE}/odd.so": "data after the last section"}
    savings = {row.step.name: (row.saves, row.files) for row in found.rows}
    assert savings == {"symbols": (10_000, 1)} | ({} if keep else {"gpu-code": (40_000, 1)})
    assert found.unknown == ("big", "link", "small"), "packages with GPU code"
    runs = {Runs.NATIVE: ["big.so"], Runs.PTX_ONLY: ["small.so"], Runs.MISSING: ["link.so"]}
    code = {run: [os.path.basename(path) for path in paths] for run, paths in found.gpu_code["sm_90"].items()}
    assert code == runs


def test_a_list_in_a_folder_outside_of_the_environment_stays(tmp_path: Path) -> None:
    """As a link to a cache."""
    env = venv(tmp_path / "env")
    folder = install(env, "x", {"x/libx.a": b"!<arch>\n" * 9}).parent
    cached = folder.rename(tmp_path / "cached")
    folder.symlink_to(cached)
    found = make_plan(scan(env, name="env"), SlimRequest(), print, into=tmp_path / "new")
    assert found.gone == {f"{SITE}/x/libx.a"}
    assert not found.new


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_a_new_file_has_mode_owner_and_date_of_the_original(tmp_path: Path) -> None:
    original, new = (write(tmp_path / name, "x") for name in ("original", "new"))
    os.chown(original, 12345, 12346)
    original.chmod(0o4750)
    os.utime(original, ns=(10**18, 10**18 + 1001))
    status = original.lstat()
    contents = SimpleNamespace(root=tmp_path, every={"original": status})
    slim_plan._copy_status(cast(Any, contents), "original", new)
    kept = ("st_mode", "st_uid", "st_gid", "st_mtime_ns")
    assert [getattr(new.lstat(), name) for name in kept] == [getattr(status, name) for name in kept]


def test_byte_code_alone_is_removed_and_comes_back(tmp_path: Path) -> None:
    """No list has it, so no file is replaced."""
    env = venv(tmp_path / "env")
    install(env, "x", {"x/a.py": ""})
    cached = write(env / SITE / "x/__pycache__/a.cpython-312.pyc", b"x" * 99)
    cached.parent.chmod(0o750)
    commands.apply(env, SlimRequest(), print, checks=None, keep_originals=True)
    assert not cached.parent.exists()
    commands.undo(env)
    assert cached.read_bytes() == b"x" * 99
    assert cached.parent.stat().st_mode & 0o777 == 0o750


def test_tests_documents_and_byte_code_go_and_come_back(tmp_path: Path, invocation: Invocation) -> None:
    """Other modules of a tests folder, licences and byte code without its source stay."""
    env, share = venv(tmp_path / "env"), "../../../share"
    stays = ("pk/old.pyc", "pk/tests/tools.py", "pk/test_not.py", f"{share}/doc/pk/COPYING.txt")
    goes = f"pk/tests/test_a.py pk/tests/more/conftest.py {share}/doc/pk/a.html {share}/man/man1/pk.1".split()
    install(env, "pk", dict.fromkeys([*goes, *stays], "a = 1\n"))
    compileall.compile_dir(env / SITE, quiet=1)
    before, byte_code = tree(env), [*env.rglob("__pycache__/*")]
    assert len(byte_code) == 4
    assert call(invocation, "slim", str(env), "--apply").exit_code == 0
    left = {path.name for folder in ("share", f"{SITE}/pk") for path in (env / folder).rglob("*.*")}
    assert left == {*map(os.path.basename, stays)}
    byte_code[0].parent.mkdir(parents=True)
    byte_code[0].write_bytes(b"Python wrote it again, with other bytes")
    assert call(invocation, "slim", str(env), "--undo").exit_code == 0
    assert tree(env) == before


def test_a_verdict_names_what_is_there(tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(env, "numpy", {"numpy/__init__.py": "", "numpy/libnpymath.a": b"!<arch>\n" * 99})
    of_numpy = plan(env).to_json()
    assert (of_numpy["works"], of_numpy["lost"]) == ([], ["extensions"])
    install(env, "jaxlib", {"jaxlib/__init__.py": ""})
    install(env, "onnxruntime-gpu", {"onnxruntime/__init__.py": ""})
    assert plan(env).to_json()["works"] == ["profiler"]
    install(env, "torch", {"torch/__init__.py": ""})
    document = plan(env).to_json()
    assert "distributed" in document["works"]
    assert document["lost"] == ["compile-cpu", "compile-gpu", "extensions"]


@pytest.mark.parametrize(
    "name", ["cupy-cuda13x", "numba-cuda", "cuda-core", "nvmath-python", "vllm", "deepspeed"]
)
def test_headers_stay_with_what_compiles_as_it_runs(name: str, tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(env, "nvidia-cuda-runtime", {**HEADER, **STATIC})
    install(env, "torch", {"torch/__init__.py": "", "torch/include/torch.h": "//\n"}, requires=["triton"])
    install(env, "triton", {"triton/__init__.py": ""})
    assert {*HEADER, *STATIC} < gone(env)
    install(env, name, {"own/__init__.py": ""})
    found = plan(env)
    assert not {f"{SITE}/{path}" for path in (*HEADER, *STATIC)} & found.gone
    startup = name in ("vllm", "deepspeed")
    assert set(found.spared.values()) == {"startup" if startup else "kernels"}
    assert (f"{SITE}/triton/__init__.py" in found.gone) != startup
    assert (f"{SITE}/torch/include/torch.h" in found.gone) != startup


TORCH = {"torch/__init__.py": "", "torch/_inductor/a.py": "import triton\n", "torch/include/torch.h": "//\n"}
KERNEL = "import torch\nimport triton\nimport triton.language as tl\n"


@pytest.mark.parametrize(
    ("requires", "text", "step", "stays"),
    [
        (["triton>=3"], "", "triton", True),
        (["triton>=3.3; extra == 'cuda'"], "", "triton", True),  # fla-core
        ([], KERNEL, "triton", True),
        ([], "import torch, triton\n", "triton", True),
        ([], "import triton\n\n\ndef f():\n    import triton\n", "triton", True),
        ([], "try:\n    import triton\nexcept ImportError:\n    triton = None\n", "triton", False),
        ([], "with suppress(ImportError):\n    from triton import jit\n", "triton", False),
        ([], "def f():\n    import triton\n", "triton", False),
        ([], "from torch.utils.cpp_extension import load\n", "headers-torch", True),  # gsplat
        ([], "from torch.utils import cpp_extension\n", "headers-torch", True),
        (["nvidia-cuda-nvcc>=13; extra == 'nvcc'"], "", "headers-torch", True),  # tilelang
        ([], "def f():\n    from torch.utils import cpp_extension\n", "headers-torch", False),
    ],
)
def test_files_stay_with_a_package_that_is_of_no_use_without(
    requires: list[str], text: str, step: str, stays: bool, tmp_path: Path, invocation: Invocation
) -> None:
    """flash-linear-attention can be imported without Triton, and none of its layers."""
    env = venv(tmp_path / "env")
    install(env, "torch", TORCH, requires=["triton==3.7.1; platform_system == 'Linux'"])
    install(env, "triton", {"triton/__init__.py": "import triton.a\n", "triton/_C/libproton.so": b"x" * 99})
    install(env, "nvidia-cuda-runtime", HEADER)
    taken = {"triton": {"triton/__init__.py"}, "headers-torch": {"torch/include/torch.h", *HEADER}}[step]
    assert taken <= gone(env)
    others = "from typing import TYPE_CHECKING\nfrom . import triton\nif TYPE_CHECKING:\n    import torch\n"
    files = {"pk/ops.py": text, "pk/tests/test_ops.py": KERNEL, "pk/other.py": others}
    install(env, "pk", files, requires=requires)
    found = plan(env)
    assert taken & gone(env) == (set() if stays else taken)
    assert f"{SITE}/triton/_C/libproton.so" in found.gone
    assert found.spared.get(step) == ("pk" if stays else None)
    assert found.to_json()["lost_for"].get(step) == (None if stays else ["pk"])
    done = call(invocation, "slim", str(env))
    told = re.search(r"functions of pk .*(Triton|torch)", done.stdout)
    assert (done.exit_code, told is None) == (0, stays)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_what_nobody_here_knows_is_called_unknown(tmp_path: Path, invocation: Invocation) -> None:
    env = venv(tmp_path / "env")
    install(env, "asking", {"asking.py": ""}, requires=["nvidia-cublas-cu12; extra == 'cuda'"])
    install(env, "torchvision", {"tv.py": ""}, requires=["nvidia-nvjpeg"])
    code = build(tmp_path, [fatbin(entry(MACHINE_CODE, 80), entry(MACHINE_CODE, 90))]).read_bytes()
    install(env, "holding", {"holding/lib.so": code})
    install(env, "pure", {"pure.py": ""})
    assert plan(env, "sm_90").unknown == ("asking", "holding")
    done = call(invocation, "slim", str(env), "--arch-list", "9.0")
    assert (done.exit_code, "asking, holding " in done.stdout, "--check" in done.stdout) == (0, True, True)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_plan_says_what_there_is_for_each_gpu(tmp_path: Path, invocation: Invocation) -> None:
    """Of two libraries one has only PTX for 9.0, the other nothing; a GPU without code in either is refused."""
    env = venv(tmp_path / "env")
    first = build(tmp_path, [fatbin(entry(MACHINE_CODE, 80), entry(PTX, 80))]).read_bytes()
    (tmp_path / "second").mkdir()
    code = fatbin(entry(MACHINE_CODE, 80), entry(MACHINE_CODE, 120))
    second = build(tmp_path / "second", [code]).read_bytes()
    install(env, "two", {"two/first.so": first, "two/second.so": second, "two/none.so": b"no library"})
    before = tree(env)
    done = call(invocation, "slim", str(env), "--arch-list", "9.0,6.1")
    assert done.exit_code == 0
    shown = done.stdout.splitlines()
    assert (
        "GPU 9.0: 1 file with PTX only, which the driver compiles at the first use; "
        "1 file without code for it (second.so)"
    ) in shown
    assert [line for line in shown if " 6.1" in line and "--apply" in line]
    done = call(invocation, "slim", str(env), "--arch-list", "8.6,9.0,6.1", "--json")
    one, other = f"{SITE}/two/first.so", f"{SITE}/two/second.so"
    assert json.loads(done.stdout)["gpu_code"] == {
        "sm_86": {"native": [one, other], "PTX-only": [], "missing": []},
        "sm_90": {"native": [], "PTX-only": [one], "missing": [other]},
        "sm_61": {"native": [], "PTX-only": [], "missing": [one, other]},
    }
    refused = call(invocation, "slim", str(env), "--arch-list", "9.0,6.1", "--apply")
    assert (refused.exit_code, "GPU 6.1" in " ".join(refused.stderr.split())) == (UsageError.exit_code, True)
    assert tree(env) == before


def test_links_are_named_and_left(tmp_path: Path, invocation: Invocation) -> None:
    """As uv installs with --link-mode symlink."""
    env, cache = venv(tmp_path / "env"), tmp_path / "cache"
    install(env, "torch", {"torch/__init__.py": "", "torch/include/torch.h": "//\n" * 99})
    cache.mkdir()
    (env / SITE / "torch/include/torch.h").rename(cache / "torch.h")
    (env / SITE / "torch/include/torch.h").symlink_to(cache / "torch.h")
    before = tree(env)
    done = call(invocation, "slim", str(env))
    assert re.search(f"1 link .*{cache}.*--link-mode", " ".join(done.stdout.split()))
    for forget in ([], ["--forget"]):
        done = call(invocation, "slim", str(env), "--apply", *forget)
        assert (done.exit_code, "originals" in done.stdout) == (0, False)
        assert tree(env) == before
    assert (cache / "torch.h").exists()


@pytest.mark.parametrize("text", ["{cut off", "[1]", "{}", '{"name": "pk", "files": null}', "\xff", ""])
def test_damaged_metadata_are_named(text: str, tmp_path: Path, invocation: Invocation) -> None:
    """As a full disk leaves them."""
    env = venv(tmp_path / "env")
    record = install(env, "pk", {"pk/__init__.py": ""})
    record.with_name("METADATA").write_bytes("Name: pk\nVersion: 1\nAuthor: Ren\u00e9\n".encode("latin-1"))
    assert call(invocation, "slim", str(env)).exit_code == 0
    (env / "conda-meta").mkdir()
    (env / "conda-meta/pk-1-0.json").write_bytes(text.encode("latin-1"))
    done = call(invocation, "slim", str(env))
    assert done.exit_code == IntegrityError.exit_code
    assert "conda-meta/pk-1-0.json" in "".join(done.stderr.split())


def test_a_record_keeps_the_ends_of_its_lines(tmp_path: Path, invocation: Invocation) -> None:
    env = venv(tmp_path / "env")
    crlf = install(env, "pk", {"pk/__init__.py": "", "pk/libx.a": b"!<arch>\n" * 99}, ending="\r\n")
    before = crlf.read_bytes()
    assert call(invocation, "slim", str(env), "--apply").exit_code == 0
    lines = before.splitlines(keepends=True)
    assert crlf.read_bytes() == b"".join(line for line in lines if b"libx.a" not in line)
    assert os.fsencode("\r\n") in crlf.read_bytes()


@pytest.mark.parametrize(
    ("required", "known"),
    [
        (("nvidia-cublas", "numpy"), False),
        (("numpy", "nvidia-cublas"), False),
        (("numpy",), True),
        ((), True),
    ],
)
def test_a_package_that_requires_one_of_nvidia_s_may_need_a_gpu(required: Sequence[str], known: bool) -> None:
    lists = [
        SimpleNamespace(owner="own", required_names=required),
        SimpleNamespace(owner="b", required_names=()),
    ]
    found = features.find_unknown(cast(Any, SimpleNamespace(lists=lists)), ["code"])
    assert found == (("code",) if known else ("code", "own"))


@pytest.mark.parametrize(
    "name", ["torch", "libtorch", "cupy-cuda12", "vllm", "jaxlib", "torchvision", "tf-nightly"]
)
def test_needs_of_packages_of_each_feature_are_known(name: str) -> None:
    assert features.is_known(name)
    assert not features.is_known(f"my-{name}")


@pytest.mark.parametrize(
    ("owner", "content", "is_found"),
    [
        ("numba", b"load('libnvvm.so.4')", True),
        ("numba", b"libnvvm", False),
        ("numba", b"libcufft.so", False),
        (users._CATALOGUE, b"libnvvm.so", False),
        ("nvidia-cuda-nvcc", b"libnvvm.so", False),
    ],
)
def test_a_library_is_used_if_a_file_outside_of_nvidia_s_packages_names_it(
    owner: str, content: bytes, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [SimpleNamespace(owner="a", content=b"x"), SimpleNamespace(owner=owner, content=content)]
    monkeypatch.setattr(users, "_read_python", lambda _: files)
    assert users._find_in_python(cast(Any, None), ["libnvrtc", "libnvvm"]) == (
        {"libnvvm"} if is_found else set()
    )


@pytest.mark.parametrize("place", range(3))
def test_each_package_that_requires_a_compiler_is_a_user(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_find_importers", lambda *_: {})
    lists = [SimpleNamespace(owner=name, required_names=("numpy",)) for name in ("a", "b", "c")]
    lists[place].required_names = ("numpy", "nvidia-cuda-nvcc", "z")
    # what these need is known, whatever they require
    for owner in ("vllm", "torchvision", "nvidia-cutlass-dsl"):
        lists.append(SimpleNamespace(owner=owner, required_names=("nvidia-cuda-nvcc",)))
    contents = SimpleNamespace(lists=lists, owners={})
    assert users.find_compiler_users(cast(Any, contents)) == {lists[place].owner: True}


@pytest.mark.parametrize("owner", ["torch", "pytorch", "libtorch"])
def test_torch_s_headers_go_from_each_package_that_may_have_them(owner: str) -> None:
    """PyPI's torch, conda-forge's pytorch and libtorch."""
    owners = {"torch/include/a.h": owner, "torch/x.py": owner, "include/b.h": "other"}
    kinds = {path: classify_path(path) for path in owners}
    survey = SimpleNamespace(contents=SimpleNamespace(owners=owners), kinds=kinds)
    assert [*find_torch_headers(cast(Any, survey))] == ["torch/include/a.h"]
