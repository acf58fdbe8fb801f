"""The patches for official sources, applied by the engine to the files of each release as far as its wheel holds them.

A wheel is not downloaded: the files are read from it where pip's index answers range requests. With an unpacked release
in ``MEGABUILD_TEST_PYTORCH`` all patches are tried on that; with Debian's source, its own patches applied, in
``MEGABUILD_TEST_DEBIAN_SOURCE`` those for Debian.
"""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import plain_engine
import pytest
from ruamel.yaml import YAML
from small_files import write

from groundwork.network.client import NetworkError
from groundwork.network.index import offered, places
from groundwork.network.wheel_contents import RemoteFile

#: Where a wheel has the files of the source.
IN_WHEEL = {
    "cmake/Modules/FindCUDAToolkit.cmake": "torch/share/cmake/Caffe2/FindCUDAToolkit.cmake",
    "torch/_inductor/cpp_builder.py": "torch/_inductor/cpp_builder.py",
    "torch/utils/cpp_extension.py": "torch/utils/cpp_extension.py",
    **{
        name: f"torch/include/{name}"
        for name in (
            "torch/csrc/distributed/c10d/control_plane/Handlers.hpp",
            "torch/csrc/jit/python/pybind_utils.h",
            "torch/csrc/python_headers.h",
        )
    },
}
HELD = (
    "size-of-strings-is-Py_ssize_t.patch",
    "official/0002-explicit-CUDAToolkit_ROOT-wins.patch",
    "official/0003-headers-and-libraries-of-the-environment.patch",
    "official/0007-Handlers-include-what-they-use.patch",
    "official/0008-export-a-function-that-a-header-calls.patch",
)
Apply = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def apply(tmp_path: Path) -> Apply:
    """Build a package of a tree with patches, as rattler-build does it for the recipe."""

    def build(tree: Path, *patches: Path) -> subprocess.CompletedProcess[str]:
        recipe, channel = tmp_path / "recipe", tmp_path / "channel"
        write(channel / "noarch" / "repodata.json", '{"packages": {}}')
        for patch in patches:
            write(recipe / patch.name, patch.read_bytes())
        script = 'mkdir "$PREFIX/patched" && cp -r . "$PREFIX/patched/tree"'
        content = {
            "package": {"name": "patched", "version": "0"},
            "source": {
                "path": str(tree),
                "use_gitignore": False,
                "patches": [patch.name for patch in patches],
            },
            "build": {"noarch": "generic", "script": script},
        }
        with (recipe / "recipe.yaml").open("w") as file:
            YAML().dump(content, file)
        arguments = {
            "recipes": [str(recipe / "recipe.yaml")],
            "output_dir": str(tmp_path / "out"),
            "channel": [channel.as_uri()],
            "test": "skip",
        }
        return plain_engine.attempt(arguments)

    return build


def of_wheel(version: str, folder: Path) -> Path:
    """Lay out the files of a release as its source does; skip the test where its wheel cannot be had."""
    try:
        client = places().client()
        files = offered("torch", places(), client.get)[0]
        wheel = next(
            one
            for one in files
            if str(one.version) == version and one.name.endswith("cp312-cp312-manylinux_2_28_x86_64.whl")
        )
        with zipfile.ZipFile(RemoteFile(client, wheel.url)) as archive:
            inside = {name: archive.read(name) for name in IN_WHEEL.values()}
    except (NetworkError, StopIteration) as error:
        pytest.skip(f"no index has the wheel of PyTorch {version}: {error}")
    for source, name in IN_WHEEL.items():
        write(folder / source, inside[name])
    return folder


@pytest.mark.parametrize("version", ["2.13.0", "2.14.1", "2.15.0"])
def test_patches_fit_the_files_in_the_wheel(
    repository: Path, tmp_path: Path, apply: Apply, version: str
) -> None:
    tree = of_wheel(version, tmp_path / "tree")
    patches = [repository / "recipe/patches" / name for name in HELD]
    made = apply(tree, *patches)
    assert made.returncode == 0, made.stderr
    # the lines around a change are the same in all releases: what git takes, which knows no fuzz
    for patch in patches:
        subprocess.run(["patch", "-p1", "--fuzz=0", "-s", "-i", patch], cwd=tree, check=True)
    (tree / "torch/_inductor/cpp_builder.py").write_text("import sys\n")
    refused = apply(tree, *patches)
    assert refused.returncode != 0
    assert "Patch application error" in refused.stderr


@pytest.mark.parametrize(
    ("variable", "kind"),
    [("MEGABUILD_TEST_PYTORCH", "official"), ("MEGABUILD_TEST_DEBIAN_SOURCE", "debian")],
)
def test_all_patches_fit_a_whole_source(
    repository: Path, tmp_path: Path, apply: Apply, variable: str, kind: str
) -> None:
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no unpacked source")
    folder = repository / "recipe/patches"
    patches = [*sorted(folder.glob("*.patch")), *sorted((folder / kind).iterdir())]
    text = "".join(patch.read_text() for patch in patches)
    for name in set(
        re.findall(r"^--- a/(.*)$", text, re.MULTILINE)
    ):  # the whole source takes minutes to pack
        write(tmp_path / "tree" / name, Path(given, name).read_bytes())
    made = apply(tmp_path / "tree", *patches)
    assert made.returncode == 0, made.stderr
