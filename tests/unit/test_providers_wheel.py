"""The wheel provider: which wheel of PyTorch fits, and NVIDIA's wheels as conda packages."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.providers import catalogue
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.pypi import nvidia, torch
from megabuild.providers.pypi.lock import Lock, Wheel

LINUX = {"platform_system": "Linux", "python_version": "3.12", "sys_platform": "linux"}
CUDA = (
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    "filelock",
)


def _wheel(version: str, requires: tuple[str, ...] = (), name: str = "torch") -> Wheel:
    return Wheel(
        name=name, version=version, file_name=f"{name}-{version}-cp312-cp312-linux_x86_64.whl", sha256="0" * 64,
        requires=requires, requires_python=">=3.10",
    )  # fmt: skip


def _alone(wheel: Wheel) -> Lock:
    return Lock(python="3.12", environment=LINUX, wheels=(wheel,))


@pytest.mark.parametrize(
    ("version", "requires", "expected"),
    [
        ("2.13.0+cpu", (), None),
        ("2.13.0", ("filelock",), None),
        ("2.13.0", CUDA, "13.0"),
        ("2.13.0+cu129", (), "12.9"),
        ("2.6.0", ('nvidia-cuda-runtime-cu12==12.4.127; platform_system == "Linux"',), "12.4"),
        ("2.13.0", ('cuda-toolkit[cudart]==13.0.3; platform_system == "Windows"',), None),
    ],
)
def test_local_version_or_requirements_tell_the_accelerator(
    version: str, requires: tuple[str, ...], expected: str | None
) -> None:
    assert torch.accelerator(_alone(_wheel(version, requires))) == expected


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ('triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"', "3.9.0"),
        ('triton==3.7.1; platform_system == "Windows"', None),
    ],
)
def test_the_wheel_names_its_triton(required: str, expected: str | None) -> None:
    wheel = _wheel("2.15.0", (*CUDA, required))
    assert torch.named_triton(wheel.needs(_alone(wheel).environment)) == expected


def test_nvidias_wheels_have_what_the_extensions_are_built_with(repository: Path) -> None:
    # as in the metadata of 2.15.0, the first without curand
    brought = ("cublas", "cudart", "cufft", "cufile", "cupti", "cusolver", "cusparse", "nvjitlink", "nvrtc",
               "nvtx")  # fmt: skip
    table = catalogue.load()
    longer = {name: f"cuda-{name}" for name in ("cccl", "nvcc")}
    longer |= {"cudart": "cuda-runtime", "profiler": "cuda-profiler-api"}
    had = {f"nvidia-{longer.get(part, part)}" for part in (*brought, *table.nvidia_toolkit)}
    (package, *_) = render(
        load(repository, "linux_64_cuda132_wheel"),
        repository / "recipe" / "pyg" / "pytorch_scatter" / "recipe.yaml",
    )
    names = {spec.split()[0] for spec in package.host}
    needed = {wheel for wheel, made in table.nvidia.items() if names & {made.run, made.dev, *made.also}}
    assert needed
    assert needed <= had


def test_the_toolkit_is_asked_for_in_the_version_of_the_wheel() -> None:
    asked = torch.requirements(_alone(_wheel("2.13.0", CUDA)), ["nvcc", "cccl"])
    assert asked == [
        "cuda-toolkit[cublas,cudart]==13.0.3",
        "nvidia-cudnn-cu13==9.20.0.48",
        "cuda-toolkit[nvcc,cccl]==13.0.3",
    ]


def _nvidia(tmp_path: Path) -> dict[str, LocalPackage]:
    contents = {
        "nvidia-cuda-runtime": ["nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/include/cuda_runtime.h"],
        "nvidia-cuda-nvcc": ["nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/crt/link.stub"],
        "nvidia-nvvm": ["nvidia/cu13/nvvm/bin/cicc"],
        "nvidia-cuda-crt": ["nvidia/cu13/include/crt/host_config.h"],
        "nvidia-cuda-cccl": ["nvidia/cu13/include/cccl/cub/cub.cuh", "nvidia/cu13/.metadata/x.txt"],
        "nvidia-cusparse": ["nvidia/cu13/lib/libcusparse.so.12", "nvidia/cu13/include/cusparse.h"],
        "nvidia-nvjitlink": ["nvidia/cu13/lib/libnvJitLink.so.13", "nvidia/cu13/include/nvJitLink.h"],
    }
    wheels, files = [], {}
    for name, members in contents.items():
        path = tmp_path / f"{name.replace('-', '_')}-13.0.88-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member in members:
                archive.writestr(member, member)
        requires = ("nvidia-nvjitlink",) if name == "nvidia-cusparse" else ()
        wheel = replace(_wheel("13.0.88", requires, name), sha256=name)
        wheels.append(wheel)
        files[name] = path
    locked = Lock(python="3.12", environment=LINUX, wheels=(*wheels, _wheel("1.0", name="cuda-toolkit")))
    made = nvidia.packages(locked, files, catalogue.load().nvidia, "13.0", "linux-64")
    return {package.name: package for package in made}


def test_nvidias_wheels_have_conda_forges_names(tmp_path: Path) -> None:
    made = _nvidia(tmp_path)
    assert {
        "cuda-version", "cuda-cudart", "cuda-cudart-dev", "cuda-nvcc_linux-64", "libcusparse", "libcusparse-dev"
    } <= set(made)  # fmt: skip
    assert made["cuda-version"].version == "13.0"
    assert "libnvjitlink" in made["libcusparse"].depends
    assert made["libcusparse-dev"].run_exports == {"weak": ("libcusparse >=13.0.88,<14.0a0",)}


def test_libraries_lie_where_rpaths_find_them_and_linkers_have_links(tmp_path: Path) -> None:
    made = _nvidia(tmp_path)
    made["cuda-cudart"].fill(tmp_path / "run")
    made["cuda-cudart-dev"].fill(tmp_path / "dev")
    assert (tmp_path / "run/lib/libcudart.so.13").is_file()
    assert not (tmp_path / "run/include").exists()
    assert (tmp_path / "dev/lib/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (tmp_path / "dev/include/cuda_runtime.h").is_file()
    assert (tmp_path / "dev/targets/x86_64-linux/include/cuda_runtime.h").is_file()
    assert not list((tmp_path / "dev").rglob("*.so.13"))


def test_nvcc_comes_with_all_it_needs_in_its_own_layout(tmp_path: Path) -> None:
    made = _nvidia(tmp_path)
    needs = {spec.split()[0] for spec in made["cuda-nvcc_linux-64"].depends}
    assert {"cuda-nvvm-tools", "cuda-crt-dev", "cuda-cudart-dev", "cuda-cccl", "gxx_linux-64"} <= needs
    made["cuda-nvcc-tools"].fill(tmp_path / "tools")
    made["cuda-nvvm-tools"].fill(tmp_path / "tools")
    for program in ("bin/nvcc", "nvvm/bin/cicc"):
        assert (tmp_path / "tools" / program).stat().st_mode & 0o111, program
    made["cuda-nvcc_linux-64"].fill(tmp_path / "activation")
    (script,) = (tmp_path / "activation/etc/conda/activate.d").iterdir()
    assert script.name > "activate-gxx_linux-64.sh"  # $CXX is set by then
    assert "-ccbin=${CXX}" in script.read_text()
