"""The Debian root for real: made once (two minutes, the network), then read-only."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from debian_inputs import debian_cache

from cuda_code.elf_file import opened
from gpu_tools.slim import tables
from groundwork.errors import ProviderError
from megabuild.providers.debian import apt, libraries, root
from megabuild.providers.debian.root import DebianRoot, enter
from megabuild.providers.environment import machine_platform
from megabuild.providers.local.compilers import probe

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
    pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64"),
]


@pytest.fixture(scope="module")
def debian() -> DebianRoot:
    """The root with PyTorch's build dependencies."""
    try:
        apt.debian_lines(root.SUITE)
    except ProviderError as error:
        pytest.skip(error.message)
    return root.make(debian_cache() / "debian", lambda _: None)


def test_the_root_has_pytorch_its_compilers_and_its_build_dependencies(debian: DebianRoot) -> None:
    assert (debian.source / "setup.py").is_file()
    assert (debian.source / "debian" / "patches" / "series").is_file()
    toolchain = probe(root=debian.path, enter=enter(debian.path))
    assert (toolchain.major, toolchain.glibc) == ("14", "2.41")
    control = f"/{debian.source.relative_to(debian.path)}/debian/control"
    done = subprocess.run(
        [*enter(debian.path), "dpkg-checkbuilddeps", control], capture_output=True, text=True
    )
    assert "libonnx-dev" not in done.stderr
    assert root.make(debian_cache() / "debian", lambda _: None) == debian


def test_the_libraries_are_complete_without_the_c_library(debian: DebianRoot) -> None:
    chosen = libraries.select(debian, libraries.read(debian))
    assert {"libopenblas.so.0", "libprotobuf.so.32", "libonnx.so.1", "libsleef.so.3", "libfmt.so.10"} <= set(
        chosen
    )
    assert not {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libssl.so.3", "libz.so.1"} & set(chosen)
    assert chosen["libblas.so.3"][1].startswith("libopenblas")


def test_libraries_find_each_other_and_what_their_code_points_to_stays(
    debian: DebianRoot, tmp_path: Path
) -> None:
    chosen = libraries.select(debian, libraries.read(debian))
    libraries.fill(debian, chosen, "libraries", tmp_path)
    for soname, (source, _) in chosen.items():
        assert _contents(tmp_path / "lib" / soname) == _contents(source), soname
        with opened(tmp_path / "lib" / soname) as library:
            assert library.rpath() == ("$ORIGIN",)


def _contents(path: Path) -> dict[str, int]:
    """Addresses of what the program itself reads or runs, by section."""
    with opened(path) as library:
        found = tables.read(library)
    return {
        name: section.address
        for name, section in zip(found.names, found.sections, strict=True)
        if section.kind == 1 and section.flags & tables.ALLOC  # SHT_PROGBITS
    }
