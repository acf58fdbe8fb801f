"""Overrides keep zipped keys in step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import ROOT

from groundwork.errors import UsageError
from megabuild.configs.config import Config, load
from megabuild.configs.overrides import arch_list, chosen, complete, python_pins, use_provider
from megabuild.configs.provider_name import ProviderName


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


@pytest.fixture
def zipped() -> Config:
    """A config with two keys, each of three values that belong together."""
    variant = {"a": ("1", "2", "3"), "b": ("x", "y", "z"), "c": ("C",)}
    return replace(load(ROOT, "tiny"), variant=variant, zip_keys=(("a", "b"),))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"a": ("3", "1")}, {"a": ("3", "1"), "b": ("z", "x")}),
        ({"a": ("2",), "b": ("own",)}, {"a": ("2",), "b": ("own",)}),
        ({"a": ("7", "8", "9")}, {"a": ("7", "8", "9")}),
        ({"a": ("7",), "b": ("own",)}, {"a": ("7",), "b": ("own",)}),
        ({"c": ("D", "E")}, {"c": ("D", "E")}),
    ],
)
def test_partners_of_a_zipped_key_follow_unless_they_are_given(
    zipped: Config, overrides: Mapping[str, tuple[str, ...]], expected: dict[str, tuple[str, ...]]
) -> None:
    assert complete(zipped, overrides) == expected
    assert chosen(zipped, overrides).variant == {**zipped.variant, **expected}


@pytest.mark.parametrize("values", [("7",), ("7", "8"), ("1", "7"), ("6", "7", "8", "9")])
def test_other_values_of_a_zipped_key_are_as_many_as_its_partners(
    zipped: Config, values: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match=f"{len(values)} values for 'a'"):
        complete(zipped, {"a": values})


@pytest.mark.parametrize("provider", [None, ProviderName.CONDA_FORGE])
@pytest.mark.parametrize(
    ("alias", "torch_version", "has_channels"),
    [("", "", True), (" ", "", True), ("https://mirror", "", False), ("https://mirror", "2.13.0", True)],
)
def test_a_mirror_takes_the_channels_from_the_names_of_another_feedstock_only(
    zipped: Config, alias: str, torch_version: str, has_channels: bool, provider: ProviderName | None
) -> None:
    variant = {**zipped.variant, "channel_sources": ("conda-forge",)}
    config = replace(zipped, variant=variant, torch_version=torch_version, provider=ProviderName.CONDA_FORGE)
    used = use_provider(config, provider, {"CONDA_CHANNEL_ALIAS": alias})
    assert ("channel_sources" in used.variant) == has_channels


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
