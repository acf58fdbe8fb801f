"""Overrides keep zipped keys in step."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import UsageError
from megabuild.configs.config import load
from megabuild.configs.overrides import arch_list, complete, python_pins


def test_narrowing_the_pythons_narrows_their_partners(repository: Path) -> None:
    config = load(repository, "linux_64_cpu")
    pins = python_pins(config, ["3.12", "3.10"])
    assert pins == ("3.10.* *_cpython", "3.12.* *_cpython")
    assert complete(config, {"python": pins}) == {
        "python": pins,
        "is_python_min": ("true", "false"),
        "further_python": ("true", "false"),
    }


@pytest.mark.parametrize(
    "versions", [("3.21",), ("3.21", "3.12"), ("3.12", "3.21"), ("3.21", "2.7")], ids=str
)
def test_a_python_that_a_config_lacks_is_refused_also_next_to_one_that_it_has(
    versions: tuple[str, ...], repository: Path
) -> None:
    lacking = ", ".join(sorted({*versions} - {"3.12"}))
    with pytest.raises(UsageError, match=f"linux_64_cpu has no Python {lacking}$"):
        python_pins(load(repository, "linux_64_cpu"), versions)


def test_a_new_number_of_values_in_a_zip_is_refused(repository: Path) -> None:
    config = load(repository, "linux_64_cuda130")
    with pytest.raises(UsageError, match="zipped"):
        complete(config, {"c_stdlib_version": ["2.28", "2.36"]})


@pytest.mark.parametrize("text", ["9.0;12.0+PTX", " 9.0 12.0+PTX;", "sm_90,120+ptx", "90;sm_90 12.0+PTX"])
def test_an_arch_list_is_spelled_as_the_config_spells_it(repository: Path, text: str) -> None:
    assert arch_list(load(repository, "linux_64_cuda130"), text) == "9.0;12.0+PTX"


@pytest.mark.parametrize("text", ["12", "sm_9", "9", "", "9.0;twelve", "compute_90"])
def test_what_is_no_arch_list_is_refused(repository: Path, text: str) -> None:
    with pytest.raises(UsageError, match=f"'{text.rpartition(';')[2]}'"):
        arch_list(load(repository, "linux_64_cuda130"), text)


def test_an_arch_list_for_a_config_of_cpus_is_refused(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"^linux_64_cpu is for CPUs$"):
        arch_list(load(repository, "linux_64_cpu"), "9.0")
