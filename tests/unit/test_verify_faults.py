"""What `megabuild verify` answers on packages and environments that are not as they should be."""

from __future__ import annotations

import _ctypes
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from calling import call
from gpu_library import MACHINE_CODE, PTX, entry, fatbin
from sizes_files import elf
from small_files import shared_library, write
from tiny import make_package
from wheel_files import make_wheel

import verify_package
from command_line.run_command import Invocation
from gpu_tools.verify import check

GOOD = Path(_ctypes.__file__).read_bytes()
VERSION_FILE = "__version__ = '2.13.0'\ncuda = None\n"
STEMS = ("basis", "version", "weighting")
IN_CONDA = ["pytorch 2.13.0 cpu_generic_py312_h1_0", "python_abi 3.12.* *_cp312"]

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify(invocation: Invocation) -> Verify:
    """Run `megabuild verify`, and return its exit code and all that it shows, in one line."""

    def verify(*arguments: str | Path) -> tuple[int, str]:
        done = call(invocation, "verify", *map(str, arguments))
        return done.exit_code, " ".join(done.output.split())

    return verify


def wheel(
    folder: Path, files: Mapping[str, bytes], version: str = "1.2.2", platform: str = "linux_x86_64"
) -> Path:
    members = {f"torch_spline_conv/{name}": content for name, content in files.items()}
    return make_wheel(folder, f"torch_spline_conv-{version}-cp312-cp312-{platform}.whl", members)


def cpu(content: bytes = GOOD) -> dict[str, bytes]:
    return {f"_{stem}_cpu.so": content for stem in STEMS}


def linked(folder: Path, *libraries: str, code: bytes = b"") -> bytes:
    """Link a library against others, of which there is nothing but the name."""
    for name in libraries:
        shared_library(folder / name, "", f"-Wl,-soname,{name}")
    section = f'.section .nv_fatbin,\\"a\\"\\n.byte {",".join(map(str, code))}\\n.previous\\n'
    links = ["-Wl,--no-as-needed", f"-L{folder}", *(f"-l:{name}" for name in libraries)]
    return shared_library(folder / "made.so", f'__asm__("{section}");\n' if code else "", *links).read_bytes()


def environment(folder: Path) -> Path:
    """An environment with a torch and a torch_spline_conv for the CPU; returns its site-packages."""
    site = folder / "lib/python3.12/site-packages"
    for path in (folder / "conda-meta", site / "torch/lib"):
        path.mkdir(parents=True)
    write(site / "torch/version.py", VERSION_FILE)
    write(site / "torch_spline_conv-1.2.2.dist-info/METADATA", "Name: torch_spline_conv\nVersion: 1.2.2\n")
    for name, content in cpu().items():
        write(site / "torch_spline_conv" / name, content)
    return site


# ---- files that are no libraries for this machine -------------------------------------------------------------------
AARCH64 = GOOD[:18] + struct.pack("<H", 183) + GOOD[20:]


@pytest.mark.parametrize(
    ("platform", "content", "said"),
    [
        ("linux_x86_64", AARCH64, "built for aarch64, not for x86_64"),
        ("manylinux_2_28_aarch64", GOOD, "built for x86_64, not for aarch64"),
        ("manylinux2014_x86_64", GOOD[:18] + struct.pack("<H", 21) + GOOD[20:], "built for ppc64le"),
    ],
)
def test_a_library_for_another_processor_is_refused(
    platform: str, content: bytes, said: str, verify: Verify, tmp_path: Path
) -> None:
    code, shown = verify(wheel(tmp_path, cpu(content), platform=platform))
    assert (code, said in shown) == (14, True), shown


def test_one_library_for_another_processor_among_others_is_refused(verify: Verify, tmp_path: Path) -> None:
    site = environment(tmp_path)
    assert verify(tmp_path)[0] == 0
    (site / "torch_spline_conv/_basis_cpu.so").write_bytes(AARCH64)
    code, shown = verify(tmp_path)
    assert (code, re.findall(r"(\S+): built for aarch64", shown)) == (14, ["_basis_cpu.so"]), shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-LFS pointer"),
        (b"../.git/annex/objects/x\n", "text"),
        (b"", "empty"),
        (b"<!DOCTYPE html>\n<html>", "web page"),
        (bytes(5000), "full of zeros"),
        (GOOD[:4] + b"\1" + GOOD[5:], "not a 64-bit"),
        (GOOD[:5000], f"truncated: 5,000 of {len(GOOD):,} bytes"),
    ],
)
def test_a_file_named_like_a_library_that_is_none_is_named_once(
    content: bytes, said: str, verify: Verify, tmp_path: Path
) -> None:
    code, shown = verify(wheel(tmp_path, {**cpu(), "_basis_cpu.so": content}))
    assert (code, said in shown) == (14, True), shown
    assert shown.count("basis") == 2, "its row and one fault"


@pytest.mark.parametrize("name", ["libx.so", "libx.so.1", "libx.so.13.0.88"])
def test_a_library_whose_name_ends_with_a_version_is_one(name: str, verify: Verify, tmp_path: Path) -> None:
    code, shown = verify(wheel(tmp_path, {**cpu(), name: bytes(5000)}))
    assert (code, "full of zeros" in shown) == (14, True), shown


def test_a_linker_script_and_a_file_that_only_sounds_like_a_library_are_left_out(
    verify: Verify, tmp_path: Path
) -> None:
    more = {"libx.so": b"/* GNU ld script */\nINPUT ( libx.so.1 )\n", "x.source.py": b"x = 1\n"}
    code, shown = verify(wheel(tmp_path, {**cpu(), **more}))
    assert code == 0, shown


@pytest.mark.parametrize("damage", ["none", "cut", "table of symbols"])
def test_extensions_are_not_blamed_for_a_damaged_library_of_torch(
    damage: str, verify: Verify, tmp_path: Path
) -> None:
    """Symbols of a library that cannot be read are not missing."""
    site = environment(tmp_path)
    torchs = elf([(".dynsym", bytes(7) if damage == "table of symbols" else b"")])
    write(site / "torch/lib/libc10.so", elf([]))
    write(site / "torch/lib/libtorch_cpu.so", torchs[:-100] if damage == "cut" else torchs)
    wanted = struct.pack("<IBBHQQ", 1, 0x10, 0, 0, 0, 0)
    user = elf([(".dynstr", b"\0_ZN2at3sumEv\0"), (".dynsym", wanted)])
    for name in cpu():
        write(site / "torch_spline_conv" / name, user)
    code, shown = verify(tmp_path)
    assert code == 14
    assert ("built for another torch" in shown) == (damage == "none"), shown
    assert bool(re.search("truncated|damaged", shown)) == (damage != "none"), shown


# ---- other accelerators ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("library", "name"),
    [("libamdhip64.so.7", "ROCm"), ("libze_loader.so.1", "XPU"), ("libmusart.so.4", "MUSA")],
)
def test_a_build_for_an_accelerator_that_is_not_judged_here_is_unknown_and_gets_no_advice(
    library: str, name: str, verify: Verify, tmp_path: Path
) -> None:
    path = wheel(tmp_path, {f"_{stem}_cuda.so": linked(tmp_path, library) for stem in STEMS})
    code, shown = verify(path)
    assert (code, name in shown, library in shown) == (19, True, True), shown
    assert not [word for word in ("FORCE_", "CPU build", "install") if word in shown]
    code, shown = verify(path, "--accelerator", "cuda130")
    assert (code, f"built for {name}" in shown) == (14, True), shown


@pytest.mark.parametrize(
    "text",
    [
        "__version__ = '2.13.0'\ncuda = None\nhip: Optional[str] = '6.4'\n",
        "__version__ = '2.13.0+xpu'\ncuda = None\n",
    ],
)
def test_nothing_beside_a_torch_for_such_an_accelerator_is_called_right(
    text: str, verify: Verify, tmp_path: Path
) -> None:
    (environment(tmp_path) / "torch/version.py").write_text(text)
    assert verify(tmp_path)[0] == 19


# ---- device code ----------------------------------------------------------------------------------------------------
def cuda(folder: Path, code: bytes) -> dict[str, bytes]:
    with_code = linked(folder, "libcudart.so.13", code=code)
    plain = linked(folder, "libcudart.so.13")
    return {"_basis_cuda.so": with_code, "_weighting_cuda.so": with_code, "_version_cuda.so": plain}


def test_overwritten_device_code_is_called_so(verify: Verify, tmp_path: Path) -> None:
    code, shown = verify(wheel(tmp_path, cuda(tmp_path, bytes(64))))
    assert (code, "zeros" in shown, "FORCE_CUDA" in shown) == (14, True, False), shown


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("12.1", 0, "sm_121 runs it as sm_120"),
        ("12.0", 0, ""),
        ("sm_120", 0, ""),
        ("120", 0, ""),
        ("12.0;sm_90", 14, "no code for sm_90"),
        ("12.0+PTX", 14, "PTX for compute_120"),
    ],
)
def test_an_arch_list_asks_what_such_gpus_run(
    asked: str, code: int, said: str, verify: Verify, tmp_path: Path
) -> None:
    path = wheel(tmp_path, cuda(tmp_path, fatbin(entry(MACHINE_CODE, 120, size=16))))
    result, shown = verify(path, "--arch-list", asked)
    assert (result, said in shown) == (code, True), shown


@pytest.mark.parametrize(("kind", "code"), [(MACHINE_CODE, 14), (PTX, 0)])
def test_an_extension_needs_code_that_one_of_torchs_gpus_runs(
    kind: int, code: int, verify: Verify, tmp_path: Path
) -> None:
    site = environment(tmp_path)
    (site / "torch/version.py").write_text(VERSION_FILE.replace("None", "'13.0'"))
    most, few = entry(MACHINE_CODE, 90, size=16), entry(MACHINE_CODE, 80, size=16)
    (site / "torch/lib/libtorch_cuda.so").write_bytes(
        linked(tmp_path, "libcudart.so.13", code=fatbin(most) * 2 + fatbin(most, few))
    )
    for name, content in cuda(tmp_path, fatbin(entry(kind, 80, size=16))).items():
        (site / "torch_spline_conv" / name).write_bytes(content)
    result, shown = verify(tmp_path)
    assert (result, "no code for sm_90" in shown) == (code, code == 14), shown


def test_the_test_of_every_package_fails_for_a_cpu_library_in_a_cuda_package(tmp_path: Path) -> None:
    files = cuda(tmp_path, fatbin(entry(MACHINE_CODE, 90, size=16), entry(MACHINE_CODE, 120, size=16)))
    (tmp_path / "torch_spline_conv").mkdir()
    for weighting, said in (
        (files["_weighting_cuda.so"], []),
        (GOOD, ["torch_spline_conv/_weighting_cuda.so"]),
    ):
        for name, content in {**files, "_weighting_cuda.so": weighting}.items():
            (tmp_path / "torch_spline_conv" / name).write_bytes(content)
        faults = verify_package.check(tmp_path, "torch_spline_conv", "cuda130", ["9.0", "12.0"], "3.12")
        assert [fault.partition(": ")[0] for fault in faults] == said
    assert all("without CUDA" in fault for fault in faults)


@pytest.mark.parametrize("arch", ["12.0", "sm_120", "12.0+PTX"])
@pytest.mark.parametrize("kind", ["wheel", "package", "environment"])
def test_a_build_for_the_cpu_is_none_for_an_architecture(
    kind: str, arch: str, verify: Verify, tmp_path: Path
) -> None:
    files = {f"lib/python3.12/site-packages/torch_spline_conv/{name}": data for name, data in cpu().items()}
    subject = {
        "wheel": lambda: wheel(tmp_path, cpu(), "1.2.2+pt213cpu"),
        "package": lambda: make_package(tmp_path, "pytorch_spline_conv", "1.2.2", "cpu_0", files, IN_CONDA),
        "environment": lambda: environment(tmp_path).parents[2],
    }[kind]()
    assert verify(subject)[0] == 0
    code, shown = verify(subject, "--arch-list", arch)
    assert (code, "without CUDA" in shown) == (14, True), shown
    assert verify(subject, "--arch-list", arch, "--accelerator", "cpu")[0] == 2


def test_a_folder_named_like_a_library_is_none(verify: Verify, tmp_path: Path) -> None:
    """Debug symbols may be in such a folder."""
    path = wheel(tmp_path, {**cpu(), "_basis_cpu.so.debug/notes.txt": b"x"})
    code, shown = verify(path)
    assert code == 0, shown


@pytest.mark.parametrize(
    ("question", "answer"),
    [(("--accelerator", "cuda130"), 0), (("--accelerator", "cpu"), 14), (("--arch-list", "9.0"), 14)],
)
def test_a_module_that_nothing_is_known_of_is_unknown(
    question: tuple[str, str], answer: int, verify: Verify, tmp_path: Path
) -> None:
    name = "other-1.0-py3-none-linux_x86_64.whl"
    silent = make_wheel(tmp_path / "silent", name, {"other/_c.so": GOOD})
    assert (verify(silent)[0], verify(silent, *question)[0]) == (0, 19)
    library = linked(tmp_path, "libcudart.so.13", code=fatbin(entry(MACHINE_CODE, 120, size=16)))
    assert verify(make_wheel(tmp_path / "cuda", name, {"other/_c.so": library}), *question)[0] == answer
    named = make_wheel(tmp_path, "other-1.0+pt213cu126-cp312-cp312-linux_x86_64.whl", {"other/_c.so": GOOD})
    assert verify(named, "--accelerator", "cuda130")[0] == 14
    assert verify(named, "--accelerator", "cuda130", "--arch-list", "9.0")[0] == 14, "wrong, not unknown"


# ---- torch's stable ABI ---------------------------------------------------------------------------------------------
CALL = "void {0}(void); void call_{0}(void) {{ {0}(); }} "
STABLE = CALL.format("aoti_torch_new_tensor_handle")


@pytest.mark.parametrize("stable", [True, False])
def test_only_a_library_of_the_stable_abi_goes_with_every_later_torch(
    stable: bool, verify: Verify, tmp_path: Path
) -> None:
    planted = "" if stable else CALL.format("_ZN3c106detail14torchCheckFailEPKcS2_jS2_")
    library = shared_library(tmp_path / "pyg_lib/libpyg.so", STABLE + planted).read_bytes()
    fault = "not for every later torch: needs c10::detail::torchCheckFail"
    files = {"lib/python3.12/site-packages/pyg_lib/libpyg.so": library}
    for number, (pin, ok) in enumerate((("", stable), (",<2.14.0a0", True))):
        depends = ["python >=3.10", "pytorch * cpu*", f"pytorch >=2.13.0{pin}"]
        package = make_package(tmp_path / str(number), "pyg-lib", "0.8.0", "cpu_mkl_0", files, depends)
        code, shown = verify(package)
        assert (code, fault in shown) == (0 if ok else 14, not ok), shown
        torch_pin = "minor" if pin else "stable"
        faults = verify_package.check(tmp_path, "pyg_lib", "cpu", (), "3.12", torch_pin=torch_pin)
        assert [fault in line for line in faults] == ([] if ok else [True])
    torch = environment(tmp_path / "later") / "torch"
    (torch / "version.py").write_text(VERSION_FILE.replace("2.13.0", "2.14.1"))
    shared_library(torch / "lib/libtorch_cpu.so", "void aoti_torch_new_tensor_handle(void) {}")
    own = make_wheel(tmp_path, "own_ops-1.0+pt213-cp310-abi3-linux_x86_64.whl", {"own_ops/ops.so": library})
    code, shown = verify(own, "--beside", tmp_path / "later")
    assert (code, "for torch 2.13" in shown) == ((0, False) if stable else (14, True)), shown


# ---- environments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("conda-meta/pytorch_spline_conv-1.2.2-py312_0.json", b'{"depends": ["pyt'),
        ("conda-meta/pytorch_spline_conv-1.2.2-py312_0.json", b"[]"),
        ("conda-meta/pytorch_spline_conv-1.2.2-py312_0.json", b'{"depends": null}'),
        ("lib/python3.12/site-packages/torch/version.py", b"\xff\xfejunk"),
        ("lib/python3.12/site-packages/torch/version.py", b""),
    ],
)
def test_damaged_metadata_are_named_and_the_rest_is_judged(
    file: str, content: bytes, verify: Verify, tmp_path: Path
) -> None:
    site = environment(tmp_path)
    (tmp_path / file).write_bytes(content)
    code, shown = verify(tmp_path)
    assert (code, Path(file).name in shown) == (19, True), shown
    (site / "torch_spline_conv/_basis_cpu.so").write_bytes(b"")
    assert verify(tmp_path)[0] == 14


def test_of_two_torches_the_one_that_python_loads_counts(verify: Verify, tmp_path: Path) -> None:
    site = environment(tmp_path)
    own, shared = site / "torch/lib/libtorch_cpu.so", tmp_path / "lib/libtorch_cpu.so"
    for path, function in ((own, "_ZN2at3newEv"), (shared, "_ZN2at3oldEv")):
        shared_library(path, f"void {function}(void) {{}}")
    for symbol, expected in (("new", 0), ("old", 14)):
        source = f"void _ZN2at3{symbol}Ev(void); void f(void) {{ _ZN2at3{symbol}Ev(); }}"
        shared_library(site / "torch_spline_conv/_basis_cpu.so", source)
        code, shown = verify(tmp_path)
        assert (code, "two PyTorches" in shown) == (expected, True), shown
    own.unlink()
    own.symlink_to(shared)  # as conda packages have it
    code, shown = verify(tmp_path)
    assert (code, "two PyTorches" in shown) == (0, False), shown
    listed = [library.path for library in check.verify(tmp_path).libraries if library.module == "torch"]
    assert listed == ["lib/libtorch_cpu.so"]
    cached = tmp_path / "cache" / "_basis_cpu.so"  # as uv can install
    cached.parent.mkdir()
    (site / "torch_spline_conv/_basis_cpu.so").rename(cached)
    (site / "torch_spline_conv/_basis_cpu.so").symlink_to(cached)
    libraries = check.verify(tmp_path).libraries
    assert ("torch_spline_conv", "cpu") in {(library.module, library.cuda) for library in libraries}


@pytest.mark.parametrize(
    ("cuda", "question", "said"),
    [
        ("None", "cuda130", "torch was built without CUDA"),
        ("'13.0'", "cpu", "torch was built with CUDA"),
        ("'13.0'", "cuda132", "torch was built for CUDA 13.0, not for CUDA 13.2"),
    ],
)
def test_an_environments_torch_is_asked_too(
    cuda: str, question: str, said: str, verify: Verify, tmp_path: Path
) -> None:
    torch = environment(tmp_path) / "torch"
    (torch / "lib/libtorch_python.so").write_bytes(GOOD)
    (torch / "version.py").write_text(VERSION_FILE.replace("None", cuda))
    code, shown = verify(tmp_path, "--accelerator", question)
    assert (code, said in shown) == (14, True), shown
    (torch / "lib/libtorch_python.so").rename(torch / "lib/libtorch_cpu.so")  # without libtorch_cuda.so
    assert ("built without CUDA" in verify(tmp_path, "--accelerator", question)[1]) == (question != "cpu")


@pytest.mark.parametrize(
    ("build", "python", "reason"),
    [
        ("pt213cpu", "cp312", ""),
        ("pt212cpu", "cp312", "built for torch 2.12"),
        ("pt213cu129", "cp312", "built for CUDA 12.9"),
        ("pt213cpu", "cp311", "built for Python 3.11"),
    ],
)
def test_a_wheel_for_something_else_is_refused_beside_an_environment(
    build: str, python: str, reason: str, verify: Verify, tmp_path: Path
) -> None:
    environment(tmp_path)
    name = f"torch_spline_conv-1.2.2+{build}-{python}-{python}-linux_x86_64.whl"
    files = {f"torch_spline_conv/{name}": content for name, content in cpu().items()}
    code, shown = verify(make_wheel(tmp_path / "wheel", name, files), "--beside", tmp_path)
    assert (code, reason in shown) == (14 if reason else 0, True), shown


@pytest.mark.parametrize(
    ("file", "content", "code", "said"),
    [
        (
            "lib/python3.12/site-packages/torch/version.py",
            b"",
            19,
            "version.py: cannot be read: no __version__",
        ),
        ("bin/python", AARCH64, 14, "built for x86_64, not for aarch64"),
        ("lib/libtorch_cpu.so", GOOD, 0, "two PyTorches: Python loads 2.13.0 from"),
    ],
)
def test_what_is_wrong_with_the_environment_beside_a_wheel_is_said(
    file: str, content: bytes, code: int, said: str, verify: Verify, tmp_path: Path
) -> None:
    site = environment(tmp_path)
    write(site / "torch/lib/libtorch_cpu.so", GOOD)
    write(tmp_path / file, content)
    found, shown = verify(wheel(tmp_path / "wheel", cpu(), "1.2.2+pt213cpu"), "--beside", tmp_path)
    assert (found, said in shown) == (code, True), shown


def test_a_venv_that_uses_its_bases_torch_says_that_none_was_seen(verify: Verify, tmp_path: Path) -> None:
    site = environment(tmp_path)
    (site / "torch/version.py").unlink()
    (tmp_path / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    _, shown = verify(tmp_path)
    assert "--beside" in shown
