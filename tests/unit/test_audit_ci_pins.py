"""What upstream's CI pins, read from a tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from audit_trees import INSTALL_CUDA, MATRIX, NEW, MemoryTree, about, request, values

from groundwork.errors import AuditError
from pin_audit.facts import CiPin, SourceOutcome, UpstreamArchs
from pin_audit.repositories import Repository
from pin_audit.run_sources import gather
from pin_audit.sources import ci_pins

TRITON = ".ci/docker/triton_version.txt"
#: cuDSS for the CUDA of a condition, as a stored form of upstream's script has it.
UNDER_A_CONDITION = r"""
if [[ ${CUDA_VERSION:0:4} =~ ^12\.[1-4]$ ]]; then
    CUDSS_NAME="libcudss-linux-${arch_path}-0.3.0.9_cuda12-archive"
else
    CUDSS_NAME="libcudss-linux-${arch_path}-0.7.1.4_cuda13-archive"
fi
"""
TWO_FORMS = """\
if a; then
    CUDSS_NAME="libcudss-linux-${arch_path}-0.7.1.4_cuda13-archive"
elif b; then
    CUDSS_NAME="libcudss-linux-${arch_path}-0.7.1.3_cuda12-archive"
else
    CUDSS_NAME=""
fi
"""


def pins(files: Mapping[str, str], folder: Path, version: str = "2.13.0") -> SourceOutcome:
    return ci_pins.read(request(MemoryTree(files), folder, version=version))


def archs(
    files: Mapping[str, str], folder: Path, version: str = "2.13.0", package: str = "pytorch"
) -> SourceOutcome:
    return ci_pins.read_archs(request(MemoryTree(files), folder, version=version, package=package))


def test_the_newer_form_yields_every_value_with_its_line_and_nothing_is_amiss(tmp_path: Path) -> None:
    outcome = pins(NEW, tmp_path)
    assert [f"{f.name}: {f.trouble}" for f in outcome.facts if f.trouble] == []
    assert outcome.trouble == ""
    cudnn = about(outcome, "cudnn", "wheels")
    assert {f.holds.cuda: f.value for f in cudnn} == {("12.6",): "==9.10.2.21", ("13.0",): "==9.20.0.48"}
    assert {f.holds.marker for f in cudnn} == {'platform_system == "Linux"'}
    assert values(about(outcome, "triton")) == {"": "3.7.1"}
    assert values(about(outcome, "python")) == {"": "3.12, 3.13, 3.13t"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('CUDSS_NAME="libcudss-linux-${arch_path}-0.7.0.20_cuda${CUDA_MAJOR}-archive"', {(): "0.7.0.20"}),
        (
            TWO_FORMS,
            {("13",): "0.7.1.4", ("12",): "0.7.1.3"},
        ),
        (UNDER_A_CONDITION, {("12.1", "12.2", "12.3", "12.4"): "0.3.0.9", ("13",): "0.7.1.4"}),
        (UNDER_A_CONDITION.replace("[1-4]", "6"), {("12.6",): "0.3.0.9", ("13",): "0.7.1.4"}),
    ],
)
def test_both_forms_of_the_line_about_cudss_are_read(
    text: str, found: dict[tuple[str, ...], str], tmp_path: Path
) -> None:
    files = {**NEW, ".ci/docker/common/install_cudss.sh": text}
    assert {one.holds.cuda: one.value for one in about(pins(files, tmp_path), "cudss")} == found


def test_eigen_and_build_tools_have_lines_of_their_own(tmp_path: Path) -> None:
    outcome = pins(NEW, tmp_path)
    names = ("eigen", "cmake", "ninja", "packaging", "setuptools")
    assert [about(outcome, name)[0].value for name in names] == [
        "5.0.1",
        "3.31.6",
        "1.11.1.4",
        "24.0",
        "78.1.1",
    ]


def test_values_carry_file_line_address_and_commit(tmp_path: Path) -> None:
    found = about(pins(NEW, tmp_path), "cudnn", "builder image")[-1]
    line = NEW[INSTALL_CUDA].splitlines().index("  CUDNN_VERSION=9.20.0.48") + 1
    assert (type(found), found.holds.cuda, found.value) == (CiPin, ("13.0",), "9.20.0.48")
    assert (found.where.file, found.where.line) == (INSTALL_CUDA, line)
    assert found.where.url == f"https://example.org/{INSTALL_CUDA}#L{line}"
    assert found.where.commit == "c" * 40


def test_a_requirement_in_the_middle_of_a_string_has_its_own_line(tmp_path: Path) -> None:
    found = about(pins(NEW, tmp_path), "nccl", "wheels")[-1]
    assert "nvidia-nccl-cu13==2.29.7" in NEW[MATRIX].splitlines()[(found.where.line or 0) - 1]


def test_a_pin_in_a_file_of_its_own_holds_for_the_cuda_in_its_name(tmp_path: Path) -> None:
    found = about(pins(NEW, tmp_path), "nccl", "builder image")
    assert {f.holds.cuda: (f.value, f.where.file, f.where.line) for f in found} == {
        ("12.6",): ("v2.29.3-1", ".ci/docker/ci_commit_pins/nccl-cu126.txt", 1),
        (): ("v2.29.7-1", ".ci/docker/ci_commit_pins/nccl.txt", 1),
    }


def test_a_file_that_vanished_is_told_with_its_name_and_what_to_do(tmp_path: Path) -> None:
    files = {path: text for path, text in NEW.items() if path != TRITON}
    (found,) = about(pins(files, tmp_path), "triton")
    assert found.value == ""
    assert f"{TRITON} is not in upstream's tree" in found.trouble


def test_a_pattern_that_vanished_is_told_with_file_and_pattern(tmp_path: Path) -> None:
    files = {**NEW, TRITON: "newest\n", MATRIX: NEW[MATRIX].replace("-nccl-", "-nickel-")}
    outcome = pins(files, tmp_path)
    (triton,) = about(outcome, "triton")
    assert triton.trouble.startswith(f"{TRITON} has no line that fits '^(?P<value>")
    (nccl,) = about(outcome, "nccl", "wheels")
    assert nccl.trouble.startswith(f"{MATRIX} has nothing that fits 'nvidia-nccl(-cu")


def test_a_value_that_is_computed_is_told_rather_than_guessed(tmp_path: Path) -> None:
    files = {
        **NEW,
        INSTALL_CUDA: NEW[INSTALL_CUDA].replace("CUDNN_VERSION=9.20.0.48", "CUDNN_VERSION=$(curl newest)"),
        MATRIX: NEW[MATRIX].replace('["3.12", "3.13", "3.13t"]', "sorted(os.environ)"),
    }
    outcome = pins(files, tmp_path)
    assert ("13.0",) not in [f.holds.cuda for f in about(outcome, "cudnn", "image")]
    (python,) = about(outcome, "python")
    assert "computes FULL_PYTHON_VERSIONS instead of writing it down" in python.trouble


def test_something_that_upstream_has_for_no_cuda_version_is_told_once(tmp_path: Path) -> None:
    files = {**NEW, INSTALL_CUDA: "#!/bin/bash\n:\n"}
    (found,) = about(pins(files, tmp_path), "cudnn", "image")
    assert "install_cuda.sh has no line that fits" in found.trouble


def test_the_tree_is_read_in_one_request(tmp_path: Path) -> None:
    tree = MemoryTree(NEW)
    ci_pins.read(request(tree, tmp_path))
    assert len(tree.requests) == 1


def test_a_tree_that_cannot_be_opened_is_the_trouble_of_the_whole_source(tmp_path: Path) -> None:
    def refuse() -> Repository:
        raise AuditError("the repository does not answer")

    asked = request(MemoryTree({}), tmp_path)
    broken = type(asked)(
        target=asked.target,
        services=asked.services,
        repository=refuse,
        configs=asked.configs,
        root=asked.root,
    )
    for read in (ci_pins.read, ci_pins.read_archs):
        (outcome,) = gather([broken], {"it": read})["pytorch"]
        assert (outcome.facts, outcome.trouble) == ((), "the repository does not answer")


def test_a_package_without_rules_is_told(tmp_path: Path) -> None:
    outcome = ci_pins.read(request(MemoryTree({}), tmp_path, package="torch_unheard_of"))
    assert outcome.trouble == "ci_rules.py has no rule for torch_unheard_of"


def test_nonsense_in_every_file_is_trouble_in_every_cell_and_nothing_worse(tmp_path: Path) -> None:
    outcome = pins(dict.fromkeys(NEW, "\x00{[(\"'$(\n" * 50), tmp_path)
    assert outcome.trouble == ""
    assert outcome.facts
    assert all(f.trouble for f in outcome.facts)


# -------------------------------------------------------------------------------------------------- arch lists
def test_a_table_of_numbers_becomes_arch_lists_per_cuda_version_and_platform(tmp_path: Path) -> None:
    outcome = archs(NEW, tmp_path)
    assert values(outcome.facts) == {
        "CUDA 12.6, linux-64": "5.0;9.0",
        "CUDA 12.6, linux-aarch64": "8.0;9.0",
        "CUDA 13.0, linux-64": "7.5;10.0;12.0+PTX",
        "CUDA 13.0, linux-aarch64": "8.0;11.0;12.0+PTX",
    }
    first = outcome.facts[0]
    assert isinstance(first, UpstreamArchs)
    assert (first.archs, first.holds.cuda, first.holds.platforms) == (
        ("5.0", "9.0"),
        ("12.6",),
        ("linux-64",),
    )


@pytest.mark.parametrize("version", ["2.13.0", "2.14.0", "2.15.0"])
def test_ptx_is_upstreams_unless_its_script_leaves_it_to_nightly_builds(version: str, tmp_path: Path) -> None:
    (name,) = [one for one in NEW if one.endswith("build_env_setup.py")]
    assert values(archs(NEW, tmp_path, version).facts)["CUDA 13.0, linux-64"] == "7.5;10.0;12.0+PTX"
    stripped = {**NEW, name: NEW[name] + "\n\ndef _is_release_build() -> bool:\n    return True\n"}
    assert values(archs(stripped, tmp_path, version).facts)["CUDA 13.0, linux-64"] == "7.5;10.0;12.0"


def test_an_arch_list_that_moved_away_is_told(tmp_path: Path) -> None:
    (found,) = archs({MATRIX: NEW[MATRIX]}, tmp_path).facts
    assert found.value == ""
    assert ".ci/manywheel/build_env_setup.py is not in upstream's tree" in found.trouble


@pytest.mark.parametrize(
    "package", ["pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv"]
)
def test_extensions_have_a_file_for_each_cuda_version(tmp_path: Path, package: str) -> None:
    folder = ".github/workflows/cuda"
    files = {
        f"{folder}/cu102-Linux-env.sh": 'export TORCH_CUDA_ARCH_LIST="3.5"\n',
        f"{folder}/cu121-Linux-env.sh": 'export FORCE_CUDA=1\nexport TORCH_CUDA_ARCH_LIST="5.0+PTX;9.0"\n',
        f"{folder}/cu121-Windows-env.sh": 'export TORCH_CUDA_ARCH_LIST="6.0+PTX"\n',
        ".github/workflows/building.yml": (
            "jobs:\n  wheel:\n    strategy:\n      matrix:\n        python-version: [3.8, 3.10]\n"
            "        torch-version: [2.0.0, 2.1.0]\n        cuda-version: ['cpu', 'cu121']\n"
        ),
    }
    found = archs(files, tmp_path, "2.1.2", package).facts
    assert values(found) == {"CUDA 12.1, linux-64": "5.0+PTX;9.0"}
    assert found[0].where.line == 2
    outcome = ci_pins.read(request(MemoryTree(files), tmp_path, package=package, version="2.1.2"))
    assert {f.name: (f.value, f.where.line) for f in outcome.facts} == {
        "cuda": ("cpu, cu121", 7),
        "pytorch": ("2.0.0, 2.1.0", 6),
        "python": ("3.8, 3.10", 5),
    }


def test_pyg_lib_has_a_matrix_and_takes_its_arch_list_from_pytorch(tmp_path: Path) -> None:
    files = {
        ".github/workflows/utils/full_matrix_linux.json": (
            '[\n  {\n    "torch-version": "2.13.0",\n    "cuda-version": ["cpu", "cu130"]\n  },\n'
            '  {\n    "torch-version": "2.12.0",\n    "cuda-version": ["cpu"]\n  }\n]\n'
        ),
        "setup.py": "        # Set TORCH_CUDA_ARCH_LIST from PyTorch's built architectures\n",
        "pyproject.toml": '[tool.cibuildwheel]\nbuild = "cp3{13,14}-*"\n',
    }
    outcome = ci_pins.read(request(MemoryTree(files), tmp_path, package="pyg-lib", version="0.8.0"))
    assert values(about(outcome, "cuda")) == {"PyTorch 2.13.0": "cpu, cu130", "PyTorch 2.12.0": "cpu"}
    assert [(f.value, f.where.line) for f in about(outcome, "pytorch")] == [("2.13.0", 3), ("2.12.0", 7)]
    assert [f.value for f in archs(files, tmp_path, "0.8.0", "pyg-lib").facts] == [
        "those of the PyTorch it is built against"
    ]
