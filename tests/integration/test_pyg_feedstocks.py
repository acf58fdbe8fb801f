"""contrib/pyg-feedstocks: recipes as conda-forge takes them, which render to the names of its newest packages.

The names are those that each feedstock's own recipe renders to, at the named commit with its configs for Python 3.12:
pytorch_scatter's for each platform by rattler-build 0.73, the others', which are meta.yaml, for linux-64 by conda-build
26.7.1.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rattler_build import PlatformConfig, RenderConfig, RenderedVariant, Stage0Recipe, VariantConfig

from megabuild.configs.config import load

FOLDER = Path(__file__).resolve().parents[2] / "contrib" / "pyg-feedstocks"
NAMES = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv", "pyg-lib")
#: Keys that rattler-build hashes into names, and conda-build does not.
ONLY_RATTLER_BUILD = ("build_platform", "channel_sources")
#: The hash and the number at the end of a build string.
HASH = re.compile(r"h([0-9a-f]{7})_(\d+)$")


@dataclass(frozen=True, kw_only=True)
class Newest:
    """conda-forge's newest package of one config of a feedstock."""

    commit: str  #: of the feedstock
    name: str = ""
    pytorch: str  #: pin
    cuda: str = "None"
    glibc: str = "2.17"
    target: str = "linux-64"
    v1: bool = False  #: whether the feedstock has a recipe.yaml
    #: whether conda-build hashes cuda_compiler for the CPU, which it finds as a part of a name in build.sh
    has_compiler: bool = False


SCATTER = Newest(commit="077c5ff", pytorch="2.11", v1=True)
SCATTER_ARM = replace(SCATTER, target="linux-aarch64")
SPARSE = Newest(commit="0e5d0ab", pytorch="2.7")
CLUSTER = Newest(commit="cf51bbb", pytorch="2.11")
SPLINE = Newest(commit="57e12b4", pytorch="2.12")
#: The keys of a config for macOS that differ.
MACOS = {
    "c_compiler": "clang", "c_compiler_version": "19", "cxx_compiler": "clangxx", "cxx_compiler_version": "19",
    "c_stdlib": "macosx_deployment_target", "c_stdlib_version": "11.0", "MACOSX_DEPLOYMENT_TARGET": "11.0",
    "MACOSX_SDK_VERSION": "11.0",
}  # fmt: skip
NEWEST = [
    replace(SCATTER, name="pytorch_scatter-2.1.2-cpu_py312_hbdbd2f0_19"),
    replace(SCATTER, name="pytorch_scatter-2.1.2-cuda129_py312_h29c7151_19", cuda="12.9"),
    replace(SCATTER, name="pytorch_scatter-2.1.2-cuda130_py312_h248400d_19", cuda="13.0", glibc="2.28"),
    replace(SCATTER_ARM, name="pytorch_scatter-2.1.2-cpu_py312_h29351e9_19"),
    replace(SCATTER_ARM, name="pytorch_scatter-2.1.2-cuda129_py312_h35cacf3_19", cuda="12.9"),
    replace(SCATTER_ARM, name="pytorch_scatter-2.1.2-cuda130_py312_hcc20380_19", cuda="13.0", glibc="2.28"),
    replace(SCATTER, name="pytorch_scatter-2.1.2-cpu_py312_h3e7b256_19", target="osx-64"),
    replace(SCATTER, name="pytorch_scatter-2.1.2-cpu_py312_h82cdfcf_19", target="osx-arm64"),
    replace(SPARSE, name="pytorch_sparse-0.6.18-py312h07ac62a_9", has_compiler=True),
    replace(SPARSE, name="pytorch_sparse-0.6.18-py312h74ef708_9", cuda="12.9"),
    replace(CLUSTER, name="pytorch_cluster-1.6.3-py312hf2dc47a_12", has_compiler=True),
    replace(CLUSTER, name="pytorch_cluster-1.6.3-py312hb28f651_12", cuda="12.9"),
    replace(CLUSTER, name="pytorch_cluster-1.6.3-py312hc0ef2c3_12", cuda="13.0", glibc="2.28"),
    replace(SPLINE, name="pytorch_spline_conv-1.2.2-cpu_py312hb692476_16"),
    replace(SPLINE, name="pytorch_spline_conv-1.2.2-cuda129py312hbe9614a_16", cuda="12.9"),
    replace(SPLINE, name="pytorch_spline_conv-1.2.2-cuda130py312hdcdefbf_16", cuda="13.0", glibc="2.28"),
]


def rendered(
    name: str, variant: Mapping[str, str], target: str = "linux-64", build: str = ""
) -> list[RenderedVariant]:
    """Render a recipe, as ``rattler-build build --render-only`` does."""
    config = VariantConfig({key: [value] for key, value in variant.items()}, [])
    platforms = PlatformConfig(target_platform=target, build_platform=build or target, host_platform=target)
    return Stage0Recipe.from_file(FOLDER / name / "recipe.yaml").render(config, RenderConfig(platforms))


def variant(newest: Newest, target: str) -> dict[str, str]:
    """Return the config of the feedstock, as conda-smithy writes it."""
    made = {
        "c_compiler": "gcc", "c_compiler_version": "14", "cxx_compiler": "gxx", "cxx_compiler_version": "14",
        "c_stdlib": "sysroot", "c_stdlib_version": newest.glibc,
        "cuda_compiler": "cuda-nvcc", "cuda_compiler_version": newest.cuda,
        "channel_sources": "conda-forge", "channel_targets": "conda-forge main",
        "python": "3.12.* *_cpython", "pytorch": newest.pytorch, "target_platform": target,
    }  # fmt: skip
    if not target.startswith("osx"):
        return made
    machine = {"osx-64": "x86_64-apple-darwin13.4.0", "osx-arm64": "arm64-apple-darwin20.0.0"}[target]
    return {**made, **MACOS, "macos_machine": machine}


@pytest.mark.parametrize("newest", NEWEST, ids=lambda newest: newest.name)
def test_a_recipe_renders_to_the_name_of_conda_forges_newest_package_and_the_next_number(
    newest: Newest,
) -> None:
    name = newest.name.split("-")[0]
    (made,) = rendered(name, variant(newest, newest.target), newest.target)
    package, build = made.recipe.package, made.recipe.build.string
    hashed = made.variant
    if not newest.v1:
        hashed = {key: value for key, value in hashed.items() if key not in ONLY_RATTLER_BUILD}
    if newest.has_compiler:
        hashed["cuda_compiler"] = "cuda-nvcc"
    digest = hashlib.sha1(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:7]
    found = HASH.search(str(build))
    assert found is not None
    assert newest.v1 == (found[1] == digest), "rattler-build hashes as conda-build does"
    former = HASH.sub(f"h{digest}_{int(found[2]) - 1}", f"{package.name}-{package.version}-{build}")
    assert former == newest.name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("target", "build"), [("linux-aarch64", "linux-64"), ("osx-arm64", "osx-64"), ("win-64", "win-64")]
)
def test_every_platform_of_the_feedstock_renders(name: str, target: str, build: str) -> None:
    (made,) = rendered(name, variant(NEWEST[0], target), target, build)
    needs = [str(spec) for spec in made.recipe.to_dict()["requirements"]["build"]]
    assert any(spec.startswith("cross-python_") for spec in needs) == (target != build)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_its_own_source_which_is_ours_and_no_key_of_this_repository(
    name: str, repository: Path
) -> None:
    text = (FOLDER / name / "recipe.yaml").read_text(encoding="utf-8")
    assert not re.findall(
        r"pyg_\w*(?:version|pin|sha256|git)|torch_cuda_arch_list|provider|blas_impl|env\.", text
    )
    key = "pyg_" + re.sub(r"^(pytorch_|pyg-)", "", name)
    values = load(repository, "linux_64_cpu").variant
    (version,) = values[f"{key}_version"]
    assert f"\n  version: {version}\n" in text
    kind = "commit" if name == "pyg-lib" else "sha256"
    assert values[f"{key}_{kind}"][0] in text


def run_script(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a build script; in the place of Python, a program prints its environment."""
    printer = folder / "python"
    printer.write_text("#!/bin/sh\nexec env\n")
    printer.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"], "SRC_DIR": str(folder), "PREFIX": "/prefix", "BUILD_PREFIX": str(folder),
        "PYTHON": str(printer), "GCC": "gcc", "target_platform": "linux-64", "LDFLAGS": "-Wl,-z,now",
        "CMAKE_ARGS": "-DCMAKE_LINKER=/ld -DCMAKE_INSTALL_PREFIX=/prefix -DCMAKE_FIND_ROOT_PATH=/prefix;/sysroot",
    }  # fmt: skip
    script = str(FOLDER / name / "build.sh")
    return subprocess.run(
        ["bash", script], env={**environment, **variables}, cwd=folder, text=True, capture_output=True
    )


@pytest.mark.parametrize("name", NAMES)
def test_architectures_are_those_that_libtorch_exports(name: str, tmp_path: Path) -> None:
    text = (FOLDER / name / "build.sh").read_text(encoding="utf-8")
    assert not re.search(r"\d+\.\d;\d", text), "a list of its own"
    without = run_script(name, tmp_path, cuda_compiler_version="13.0")
    assert without.returncode != 0
    assert "libtorch has not exported its architectures" in without.stderr
    archs = "7.5;9.0;12.0+PTX"
    done = run_script(name, tmp_path, cuda_compiler_version="13.0", CF_TORCH_CUDA_ARCH_LIST=archs)
    assert done.returncode == 0, done.stderr
    printed = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert (printed["FORCE_CUDA"], printed["TORCH_CUDA_ARCH_LIST"]) == ("1", archs)
    if name != "pyg-lib":
        assert os.access(printed["CC"], os.X_OK)
    done = run_script(name, tmp_path, cuda_compiler_version="None")
    printed = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert (printed["FORCE_CUDA"], "TORCH_CUDA_ARCH_LIST" in printed) == ("0", False)


def test_pyg_lib_leaves_out_an_architecture_and_passes_condas_arguments_to_cmake(tmp_path: Path) -> None:
    archs = {"cuda_compiler_version": "12.9", "CF_TORCH_CUDA_ARCH_LIST": "5.0;6.0;12.0+PTX"}
    done = run_script("pyg-lib", tmp_path, **archs)
    printed = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert printed["TORCH_CUDA_ARCH_LIST"] == "6.0;12.0+PTX"
    assert printed["LDFLAGS"] == "-Wl,-z,lazy -Wl,--exclude-libs,libmetis.a"
    lines = Path(printed["CMAKE_TOOLCHAIN_FILE"]).read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        'set(CMAKE_LINKER "/ld")', f'set(CMAKE_FIND_ROOT_PATH "/prefix;/sysroot;{tmp_path}")'
    ]  # fmt: skip
    assert any(line.startswith("set(CUDAToolkit_ROOT ") for line in lines)
