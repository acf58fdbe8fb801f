"""The test of an extension's package: what its command line asks of the module's libraries."""

from __future__ import annotations

import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from small_files import write
from test_verify_judge import BOTH, PLAIN, library, unit

import verify_package
from cuda_code.library_facts import LibraryFacts, NamedPython

#: A symbol of torch's C++.
CPP = frozenset({"_ZN3c106detail14torchCheckFailEPKcS2_jS2_"})
OF_311 = (NamedPython("3.11", "its file name"),)
GOOD = (
    library("_basis_cuda.so", BOTH, cuda=13),
    library("_weighting_cuda.so", BOTH, cuda=13),
    library("_version_cuda.so", cuda=13),
)
CUDA_12 = tuple(replace(facts, cuda_runtime=12) for facts in GOOD)
ONLY_90 = (library("_basis_cuda.so", unit("sm_90"), cuda=13), *GOOD[1:])
OF_OTHER_PYTHON = (replace(GOOD[0], pythons=OF_311), *GOOD[1:])
OF_TORCHS_CPP = (*GOOD[:2], replace(GOOD[2], undefined=CPP))
PYG = replace(PLAIN, path="pyg_lib/libpyg.so", units=(BOTH,), cuda_runtime=13, pythons=OF_311)
DAMAGED = "_basis_cuda.so"


def verify(
    options: str, libraries: tuple[LibraryFacts, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str | int | None:
    """Return the exit code or message of the test of a package with these libraries, and one that is damaged."""
    known = {facts.path: facts for facts in libraries}

    def read(file: Path, path: str) -> LibraryFacts:
        if path not in known:
            raise ValueError("truncated")
        return known[path]

    for path in known:
        write(folder / path)
    monkeypatch.setattr(verify_package, "read", read)
    module = libraries[0].path.partition("/")[0]
    arguments = [module, "--folder", str(folder), "--python", "3.12", *options.split(",")]
    monkeypatch.setattr("sys.argv", ["verify_package.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        verify_package.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("options", "libraries", "fault"),
    [
        ("--accelerator,cuda130,--archs,9.0;12.0", GOOD, ""),
        ("--accelerator,cuda130,--archs,9.0;12.0", ONLY_90, "torch_spline_conv/_basis_cuda.so: no code for sm_120"),
        ("--accelerator,cuda130,--archs,9.0 12.0", ONLY_90, "torch_spline_conv/_basis_cuda.so: no code for sm_120"),
        ("--accelerator,cuda130,--archs,None", GOOD, ""),
        ("--accelerator,cuda130", GOOD, ""),
        ("--accelerator,cuda129", CUDA_12, ""),
        ("--accelerator,cuda129", GOOD, "torch_spline_conv/_basis_cuda.so: links to CUDA 13"),
        ("--accelerator,cpu", GOOD, "torch_spline_conv/_basis_cuda.so: compiled with CUDA"),
        ("--accelerator,cuda130", OF_OTHER_PYTHON, "torch_spline_conv/_basis_cuda.so: built for Python 3.11"),
        ("--accelerator,cuda130", (PYG,), ""),
        ("--accelerator,cuda130", OF_TORCHS_CPP, ""),
        ("--accelerator,cuda130,--torch-pin,minor", OF_TORCHS_CPP, ""),
        (
            "--accelerator,cuda130,--torch-pin,stable",
            OF_TORCHS_CPP,
            "torch_spline_conv/_version_cuda.so: not for every later torch",
        ),
    ],
)  # fmt: skip
def test_the_options_of_a_package_s_test_say_which_libraries_are_faulty(
    options: str,
    libraries: tuple[LibraryFacts, ...],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = verify(options, libraries, tmp_path, monkeypatch)
    if not fault:
        assert said == 0
        return
    assert isinstance(said, str)
    assert said.startswith(fault)


def test_a_damaged_library_of_a_package_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "torch_spline_conv" / DAMAGED)
    said = verify("--accelerator,cuda130", GOOD[1:], tmp_path, monkeypatch)
    assert said == f"torch_spline_conv/{DAMAGED}: truncated\n  build it again"


@pytest.mark.parametrize(("disabled", "letter"), [(0, ""), (1, "t"), (None, "")])
def test_the_python_of_a_package_s_test_says_if_it_is_free_threaded(
    disabled: int | None, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": disabled}.get)
    monkeypatch.setattr("sys.version_info", (3, 14, 2))
    assert verify_package._python() == f"3.14{letter}"
