"""What of PyTorch's install folder is libtorch's: on the names of real ones, and as the recipe packs it.

``tests/data/torch-trees.json`` has the files below ``torch/`` of three official wheels (of ``include`` the first of
every folder) and, below ``torch/lib``, of Debian's source package of 2.6.0, where a compile adds the libraries.
"""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from small_files import write

import install_libtorch
from install_libtorch import is_libtorch

TREES: dict[str, list[str]] = json.loads(
    (Path(__file__).parent.parent / "data" / "torch-trees.json").read_text()
)
#: Libraries of a compile on Linux, here as Debian's patches name them.
COMPILED = (
    "lib/libc10.so", "lib/libc10.so.2.6", "lib/libshm.so", "lib/libshm.so.2.6", "lib/libtorch.so.2.6",
    "lib/libtorch_cpu.so.2.6", "lib/libtorch_global_deps.so.2.6",
)  # fmt: skip
#: What vendored libraries may install beside them.
STRAY = (
    "lib/libkineto.a", "lib/cmake/fmt/fmt-config.cmake", "lib/pkgconfig/sleef.pc", "lib/libgloo.so",
    "share/cmake/Gloo/GlooConfig.cmake", "share/cmake/nlohmann_json/nlohmann_jsonTargets.cmake",
    "share/doc/dnnl/LICENSE", "share/pkgconfig/eigen3.pc",
)  # fmt: skip
LIBRARIES = {
    "2.13.0 for CPUs": {"c10", "shm", "torch", "torch_cpu", "torch_global_deps", "torchbind_test"},
    "2.15.0 for CUDA": {
        "c10", "c10_cuda", "caffe2_nvrtc", "shm", "torch", "torch_cpu", "torch_cuda", "torch_cuda_linalg",
        "torch_global_deps", "torch_nvshmem",
    },
    "2.15.0 for macOS": {"c10", "shm", "torch", "torch_cpu", "torch_global_deps"},
    "2.6.0's source": set[str](),
}  # fmt: skip


@pytest.mark.parametrize("tree", TREES)
def test_libraries_programs_headers_and_cmake_files_are_those_of_upstream_s_wheels(tree: str) -> None:
    found = [place for place in TREES[tree] if is_libtorch(place)]
    libraries = [Path(place) for place in found if place.startswith("lib/")]
    assert {path.parent for path in libraries} <= {Path("lib")}
    assert {path.stem.removeprefix("lib") for path in libraries} == LIBRARIES[tree]
    assert {path.suffix for path in libraries} <= {".so", ".dylib"}
    if "source" in tree:
        return
    assert [place for place in found if place.startswith("bin/")] == ["bin/torch_shm_manager"]
    assert Counter(place.split("/")[2] for place in found if place.startswith("share/")) == {
        "ATen": 1, "Caffe2": 25, "Tensorpipe": 2, "Torch": 2,
    }  # fmt: skip
    headers = {place.split("/")[1] for place in found if place.startswith("include/")}
    assert headers == set(install_libtorch.HEADERS)


def test_a_built_tree_is_laid_without_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("another file system")

    tree, prefix = tmp_path / "torch", tmp_path / "env"
    of_own_packages = "lib/libtorch_cuda_linalg.so"
    more = ("bin/torch_shm_manager", "include/c10/util/a.h", "share/cmake/Torch/TorchConfig.cmake")
    for place in [*TREES["2.6.0's source"], *COMPILED, *STRAY, *more, of_own_packages]:
        write(tree / place)
    (tree / "include/c10/linked").symlink_to("util")
    install_libtorch.install(tree, prefix)
    monkeypatch.setattr(install_libtorch.os, "link", refuse)  # type: ignore[attr-defined]
    install_libtorch.install(tree, prefix)  # over those of an earlier, interrupted install
    laid = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if not path.is_dir()}
    assert laid == {*COMPILED, *more}
    assert (prefix / "include/c10/linked").readlink() == Path("util")
    assert {path.name for path in (prefix / "lib").iterdir() if path.is_dir()} == set()


@pytest.mark.parametrize("name", ["recipe.yaml", "wheel/recipe.yaml"])
@pytest.mark.parametrize("tree", [*TREES, "compiled"])
def test_the_recipe_packs_what_is_laid_and_nothing_else(repository: Path, tree: str, name: str) -> None:
    recipe = YAML(typ="safe", pure=True).load((repository / "recipe" / name).read_text())
    (output,) = (one for one in recipe["outputs"] if one.get("package", {}).get("name") == "libtorch")
    files = output["build"]["files"]
    places = [*TREES["2.6.0's source"], *COMPILED, *STRAY] if tree == "compiled" else TREES[tree]
    packed = {
        place
        for place in places
        if any(fnmatchcase(place, glob) for glob in files["include"])
        and not any(fnmatchcase(place, glob) for glob in files["exclude"])
    }
    assert packed == {place for place in places if is_libtorch(place)}
