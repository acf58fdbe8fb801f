"""Taking official wheels apart: what is libtorch's, what is a Python's own, and what two wheels share."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from small_files import write

import split_wheel
import wheel_parts
from same_code import same_code

METADATA = """\
Metadata-Version: 2.4
Name: torch
Requires-Dist: filelock
Requires-Dist: cuda-toolkit[cudart]==13.0.3; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu13==9.20.0.48
Requires-Dist: triton==3.7.1

Requires-Dist: nvidia-in-the-description
"""
ENTRY_POINTS = """\
[console_scripts]
torchrun = torch.distributed.run:main
torchmodel = torch.model:Model.run [extra]
"""
FILES = {
    "torch/__init__.py": b"",
    "torch/_C.so": b"python side",
    "torch/lib/libc10.so": b"c10",
    "torch/lib/libtorch_cpu.so": b"cpu",
    "torch/lib/libtorch_python.so": b"python",
    "torch/lib/libgomp.so.1": b"gomp",
    "torch/lib/libgfortran.so.5": b"gfortran",
    "torch/lib/libtorchbind_test.so": b"test",
    "torch/bin/torch_shm_manager": b"shm",
    "torch/bin/test_jit": b"test",
    "torch/test/test_a.py": b"",
    "torch/nn/old.pyc": b"byte code",
    "torch/include/ATen/ATen.h": b"aten",
    "torch/include/c10/a.h": b"a",
    "torch/include/c10/b.h": b"b",
    "torch/include/pybind11/pybind11.h": b"pybind11",
    "torch/include/fmt/format.h": b"fmt",
    "torch/include/oneapi/dnnl/dnnl.h": b"dnnl",
    "torch/include/sleef.h": b"sleef",
    "torch/share/cmake/ATen/ATenConfig.cmake": b'set(ATEN_INCLUDE_DIR "/pytorch/torch/include")\n',
    "torch/share/cmake/Caffe2/Modules_CUDA_fix/FindCUDA.cmake": b"upstream's",
    "torch/share/cmake/Torch/TorchConfig.cmake": b"cmake",
    "torch/testing/__init__.py": b"",
    "functorch/__init__.py": b"",
}


def wheel(folder: Path, tag: str, **changed: bytes) -> wheel_parts.Wheel:
    """A wheel with few files; `changed` names files by their last part, dots as underscores."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"torch-2.13.0-cp{tag}-cp{tag}-manylinux_2_28_x86_64.whl"
    info = "torch-2.13.0.dist-info"
    record = (
        "".join(f"{name},sha256=x,1\n" for name in FILES) + f"{info}/RECORD,,\n{info}/METADATA,sha256=x,1\n"
    )
    meta = {
        f"{info}/METADATA": METADATA.encode(),
        f"{info}/RECORD": record.encode(),
        f"{info}/entry_points.txt": ENTRY_POINTS.encode(),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**FILES, **meta}.items():
            archive.writestr(name, changed.get(name.rpartition("/")[2].replace(".", "_"), content))
    python = f"{tag[0]}.{tag[1:]}"
    return wheel_parts.find(folder, python)


def split(base: wheel_parts.Wheel, other: wheel_parts.Wheel, tmp_path: Path) -> Path:
    """Install both parts as the recipe does; returns the environment."""
    prefix = tmp_path / "prefix"
    split_wheel.libtorch(base, prefix)
    split_wheel.pytorch(other, base, prefix, prefix / "site", f"{prefix}/bin/python")
    return prefix


def test_libtorch_gets_libraries_headers_and_cmake_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    split_wheel.libtorch(wheel(tmp_path / "w", "312"), tmp_path / "prefix")
    found = {path.relative_to(tmp_path / "prefix").as_posix() for path in (tmp_path / "prefix").rglob("*.*")}
    assert found == {
        "lib/libc10.so", "lib/libtorch_cpu.so", "include/ATen/ATen.h", "include/c10/a.h", "include/c10/b.h",
        "share/cmake/ATen/ATenConfig.cmake", "share/cmake/Caffe2/Modules_CUDA_fix/FindCUDA.cmake",
        "share/cmake/Torch/TorchConfig.cmake",
        # other libraries' headers that libtorch's include, where no other package has a file
        *(f"include/torch/csrc/api/include/{name}" for name in ("fmt/format.h", "oneapi/dnnl/dnnl.h", "sleef.h")),
    }  # fmt: skip
    cmake = tmp_path / "prefix/share/cmake"
    relative = 'set(ATEN_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include")\n'
    assert (cmake / "ATen/ATenConfig.cmake").read_text() == relative
    of_recipe = Path(split_wheel.__file__).parents[1] / "FindCUDA.cmake"
    assert (cmake / "Caffe2/Modules_CUDA_fix/FindCUDA.cmake").read_bytes() == of_recipe.read_bytes()
    assert (tmp_path / "prefix/bin/torch_shm_manager").stat().st_mode & 0o111
    monkeypatch.setattr("platform.machine", lambda: "aarch64")  # where OpenBLAS needs the Fortran library
    assert wheel_parts.libtorch_place("torch/lib/libgfortran.so.5") == "lib/libtorch/libgfortran.so.5"


def test_what_is_the_same_becomes_links_and_metadata_names_what_is_there(tmp_path: Path) -> None:
    prefix = split(wheel(tmp_path / "a", "312"), wheel(tmp_path / "b", "313"), tmp_path)
    torch = prefix / "site" / "torch"
    for place in ("lib/libc10.so", "lib/libtorch_cpu.so", "lib/libtorch_python.so", "include/c10"):
        assert (torch / place).is_symlink(), place
        assert (torch / place).resolve() == prefix / place
    assert not (torch / "include" / "pybind11").is_symlink()
    for place in ("pybind11/pybind11.h", "fmt/format.h"):
        assert (torch / "include" / place).read_bytes() == place.partition("/")[0].encode()
    info = prefix / "site" / "torch-2.13.0.dist-info"
    metadata = (info / "METADATA").read_text()
    assert "nvidia-cudnn" not in metadata
    assert "cuda-toolkit" not in metadata
    assert "Requires-Dist: triton==3.7.1" in metadata
    assert "nvidia-in-the-description" in metadata
    record = (info / "RECORD").read_text().splitlines()
    assert not [line for line in record if line.startswith(("torch/test/", "torch/lib/libc10"))]
    digest = base64.urlsafe_b64encode(hashlib.sha256(metadata.encode()).digest()).decode().rstrip("=")
    (described,) = [line for line in record if line.startswith("torch-2.13.0.dist-info/METADATA,")]
    assert described == f"torch-2.13.0.dist-info/METADATA,sha256={digest},{len(metadata)}"
    assert (info / "INSTALLER").read_text() == "conda\n"
    program = prefix / "bin" / "torchrun"
    assert program.read_text().startswith(f"#!{prefix}/bin/python\n")
    assert program.stat().st_mode & 0o111
    of_class = (prefix / "bin" / "torchmodel").read_text().splitlines()
    assert (of_class[2], of_class[-1].strip()) == ("from torch.model import Model", "sys.exit(Model.run())")
    names = {path.name for path in prefix.rglob("*")}
    assert not names & {
        "old.pyc",
        "test",
        "test_jit",
        "libtorchbind_test.so",
        "libgomp.so.1",
        "libgfortran.so.5",
    }
    assert "testing" in names


def test_each_part_comes_from_its_own_wheel_and_changes_no_file_of_a_package_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of an environment are hard links to those of the cache."""
    monkeypatch.chdir(tmp_path)
    for tag in ("312", "313"):
        wheel(tmp_path / "wheels", tag, _C_so=f"of {tag}".encode(), libc10_so=f"c10 of {tag}".encode())
    cached = write(tmp_path / "cache/libc10.so", "of the cache")
    prefix = tmp_path / "prefix"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib/libc10.so").hardlink_to(cached)
    assert split_wheel.main(["libtorch", "wheels", "3.12", str(prefix)]) == 0
    words = ["pytorch", "wheels", "3.12", str(prefix), "3.13", str(prefix / "site"), "/python"]
    assert split_wheel.main(words) == 0
    assert (prefix / "lib/libc10.so").read_text() == "c10 of 312"
    assert (prefix / "site/torch/_C.so").read_text() == "of 313"
    assert cached.read_text() == "of the cache"


def test_a_file_that_differs_stays_the_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it has the same size; a library differs if the loader reads something else."""
    base = wheel(tmp_path / "a", "312")
    other = wheel(tmp_path / "b", "313", libtorch_cpu_so=b"own", b_h=b"x")
    prefix = split(base, other, tmp_path)
    torch = prefix / "site" / "torch"
    assert (torch / "lib/libtorch_cpu.so").read_bytes() == b"own"
    assert (prefix / "lib/libtorch_cpu.so").read_bytes() == b"cpu"
    assert not (torch / "include/c10").is_symlink()
    assert (torch / "include/c10/a.h").is_symlink()
    assert (torch / "include/c10/b.h").read_bytes() == b"x"
    assert (torch / "include/ATen").is_symlink()
    differing = {"torch/lib/libtorch_cpu.so", "torch/include/c10/b.h"}
    assert split_wheel.shared(other, base).isdisjoint(differing)
    monkeypatch.setattr(split_wheel, "same_code", lambda *_: True)
    assert split_wheel.shared(other, base) & differing == {"torch/lib/libtorch_cpu.so"}


def test_libtorch_and_links_to_it_find_the_libraries_that_a_wheel_for_arm_brings_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    for program in ("gcc", "patchelf", "ldd"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    names = ("libnvpl_blas_core.so.0", "libopenblas-24fd393f.so.0", "libtorch_cpu.so")
    for needed, name in zip(("-lc", *names), names, strict=False):
        options = ["-shared", "-x", "c", os.devnull, "-x", "none", "-Wl,--no-as-needed", needed]
        command = ["gcc", *options, "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{name}", "-o", name]
        subprocess.run(command, cwd=tmp_path, check=True)
        monkeypatch.setitem(FILES, f"torch/lib/{name}", (tmp_path / name).read_bytes())
    monkeypatch.setitem(FILES, "torch/utils/__init__.py", b"")
    monkeypatch.delitem(FILES, "torch/lib/libc10.so")  # no ELF file
    base, other = (wheel(tmp_path / "wheels", tag) for tag in ("312", "313"))
    prefix = tmp_path / "prefix"
    site = prefix / "lib/python3.13/site-packages"
    environment = {
        **os.environ, "PREFIX": str(prefix), "RECIPE_DIR": str(repository / "recipe/wheel"), "PYTHON": sys.executable,
        "torch_source_path": str(tmp_path / "wheels"), "torch_python_base": "3.12",
    }  # fmt: skip
    script = repository / "recipe/wheel/build_staging.sh"
    subprocess.run(["bash", script], cwd=tmp_path, check=True, env=environment)
    split_wheel.pytorch(other, base, prefix, site, "python")
    assert not [name for name in names[:2] if (site / "torch/lib" / name).exists()], "a second copy"
    for library in (prefix / "lib/libtorch_cpu.so", site / "torch/lib/libtorch_cpu.so"):
        found = subprocess.run(["ldd", library], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert "not found" not in found
        assert found.count("/libtorch/lib") == 2, found


def test_a_python_gets_its_own_wheel_and_the_free_threaded_one_another(tmp_path: Path) -> None:
    names = {
        python: f"torch-2-cp314-{abi}-any.whl" for python, abi in (("3.14", "cp314"), ("3.14t", "cp314t"))
    }
    for number, name in enumerate(names.values()):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("torch/version.py", str(number))
    found = {python: wheel_parts.find(tmp_path, python) for python in names}
    assert {python: wheel.path.name for python, wheel in found.items()} == names
    one, other = (wheel.members["torch/version.py"] for wheel in found.values())
    assert one != other, "the contents differ, not the sizes"
    (tmp_path / "former").mkdir()
    shutil.copy2(tmp_path / names["3.14"], tmp_path / "former" / "torch-1-cp314-cp314-any.whl")
    with pytest.raises(FileNotFoundError, match=r" 2 .*3\.14 instead of one"):
        wheel_parts.find(tmp_path, "3.14")


def test_a_wheel_that_reaches_outside_itself_or_is_missing_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "torch-1-cp312-cp312-any.whl", "w") as archive:
        archive.writestr("torch/../../outside", "")
    with pytest.raises(ValueError, match="outside"):
        wheel_parts.find(tmp_path, "3.12")
    with zipfile.ZipFile(tmp_path / "torch-1-cp311-cp311-any.whl", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("torch/lib/libc10.so", "")
    with pytest.raises(ValueError, match="neither stored nor deflated"):  # it may need much memory
        wheel_parts.find(tmp_path, "3.11")
    with pytest.raises(FileNotFoundError, match=r" 0 .*3\.13"):
        wheel_parts.find(tmp_path, "3.13")


def test_build_id_and_local_symbols_make_no_other_library_and_other_code_or_data_do(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    one, twin, other, data = (tmp_path / f"{name}.so" for name in ("one", "twin", "other", "data"))
    for library, helper, number, build_id, table in (
        (one, "helper", 1, "0x01", 1), (twin, "assistant", 1, "0x02", 1), (other, "helper", 2, "0x01", 1),
        (data, "helper", 1, "0x01", 2),
    ):  # fmt: skip
        code = f"static int {helper}(int a) {{ return a + {number}; }}\n"
        code += f"int answer(int a) {{ return {helper}(a) * 7; }}\nconst int table[] = {{ {table}, 3 }};\n"
        (tmp_path / "source.c").write_text(code)
        options = ["-O0", "-shared", "-fPIC", f"-Wl,--build-id={build_id}"]
        subprocess.run(["gcc", *options, "-o", library, tmp_path / "source.c"], check=True)
    assert one.read_bytes() != twin.read_bytes()
    assert same_code(one, twin)
    assert not same_code(one, other)
    assert not same_code(one, data), "GPU kernels are data"


def test_cmake_files_are_as_those_of_a_compiled_libtorch(tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "cmake"
    find_cuda, aten = folder / "Caffe2/Modules_CUDA_fix/FindCUDA.cmake", folder / "ATen/ATenConfig.cmake"
    write(find_cuda, "upstream's")
    write(aten, 'set(ATEN_FOUND 1)\nset(ATEN_INCLUDE_DIR "/__w/pytorch/torch/include")\n')
    split_wheel.settle_cmake(folder)
    assert find_cuda.read_bytes() == (repository / "recipe/FindCUDA.cmake").read_bytes()
    assert aten.read_text() == (
        'set(ATEN_FOUND 1)\nset(ATEN_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include")\n'
    )


def test_licence_texts_are_laid_out_as_in_the_wheel(tmp_path: Path) -> None:
    path = tmp_path / "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    texts = {"LICENSE": "PyTorch's", "third_party/fmt/LICENSE": "fmt's"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/LICENSE", "of a part")
        for name, text in texts.items():
            archive.writestr(f"torch-2.13.0.dist-info/licenses/{name}", text)
    assert split_wheel.licences(wheel_parts.find(tmp_path, "3.12"), tmp_path / "out") == 2
    assert {name: (tmp_path / "out" / name).read_text() for name in texts} == texts
