"""What conda-forge pins is in the matrix as in its pinning, of one day for all platforms: the audit's snapshot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megabuild.configs.config import MATRIX_FILE as MATRIX
from megabuild.configs.config import Config, available, load
from pin_audit import snapshots
from pin_audit.facts import GlobalPin

#: PyTorch's own choice of BLAS, and what the matrix has once for each Python.
OURS = {"blas_impl", "is_python_min"}


@pytest.fixture(scope="module")
def pins() -> list[GlobalPin]:
    """Pins and migrations."""
    found = snapshots.load(snapshots.CHANNEL, "")
    assert found is not None
    return [fact for source in found.sources for fact in source.facts if isinstance(fact, GlobalPin)]


def holds(pin: GlobalPin, config: Config) -> bool:
    """Whether a pin is meant for a config."""
    platforms, cuda, version = pin.holds.platforms, pin.holds.cuda, config.cuda_version or "None"
    return config.platform in (platforms or (config.platform,)) and (not cuda or version in cuda)


def drifted(config: Config, pins: list[GlobalPin]) -> dict[str, tuple[tuple[str, ...], set[str]]]:
    """Return the keys whose values are not conda-forge's, with both."""
    found = {}
    for key, values in config.variant.items():
        known = {value for pin in pins if pin.name == key and holds(pin, config) for value in pin.values}
        if known and key not in OURS and not set(values) <= known:
            found[key] = (values, known)
    return found


def of_conda_forge(repository: Path) -> list[Config]:
    """The configs that build with its packages."""
    configs = [load(repository, name) for name in available(repository)]
    return [config for config in configs if config.provider == "conda-forge"]


def test_the_matrix_says_of_which_day_its_pins_are(repository: Path, pins: list[GlobalPin]) -> None:
    text = (repository / MATRIX).read_text(encoding="utf-8")
    day = re.search(r"pinning of (\d{4}-\d\d-\d\d)", text)
    commit = re.search(r"commit ([0-9a-f]{40}) of conda-forge-pinning-feedstock", text)
    assert day
    assert commit
    read = [pin for pin in pins if not pin.where.inferred]  # later pull requests are known by their text
    assert {(pin.where.fetched[:10], pin.where.commit) for pin in read} == {(day[1], commit[1])}


def test_every_config_has_conda_forges_pins(repository: Path, pins: list[GlobalPin]) -> None:
    for config in of_conda_forge(repository):
        remedy = "take conda-forge's value, or renew its pins: python3 scripts/megabuild audit --snapshot"
        assert drifted(config, pins) == {}, f"{config.name}: {remedy}"
        pinned = {pin.name for pin in pins if holds(pin, config)}
        assert len(pinned & config.variant.keys()) > 20, config.name
