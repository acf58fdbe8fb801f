"""What is advised in place of a config that needs a conda channel or a container engine: what works here, no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from groundwork.errors import IsolationError, ProviderError
from megabuild.configs.config import Config, load
from megabuild.plan import isolation
from megabuild.plan.options import Options
from megabuild.providers.pypi.torch import TorchWheels


class Machine:
    """What there is: a compiler, a Debian mirror, bubblewrap and mmdebstrap, wheels of some configs."""

    def __init__(self) -> None:
        self.pythons = {"3.13": None}
        self.compiler = self.index = self.mirror = self.namespaces = True
        self.install_command = ""
        self.wheels = ("linux_64_cuda130_wheel", "linux_64_cuda132_wheel")

    def find(self, config: Config, *_: object) -> TorchWheels:
        need(config.name in self.wheels)
        return TorchWheels(locks={}, left_out={})


def need(there: bool, kind: type[ProviderError | IsolationError] = ProviderError) -> None:
    if not there:
        raise kind("not here")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    fake = Machine()

    def some_of(*_: object) -> dict[str, None]:
        need(bool(fake.pythons))
        return fake.pythons

    monkeypatch.setattr("megabuild.plan.isolation.interpreters.some_of", some_of)
    monkeypatch.setattr("megabuild.plan.isolation.lock.resolve", lambda *_: need(fake.index))
    monkeypatch.setattr("megabuild.plan.isolation.compilers.probe", lambda: need(fake.compiler))
    monkeypatch.setattr("megabuild.plan.isolation.apt.debian_lines", lambda _: need(fake.mirror))
    monkeypatch.setattr("megabuild.plan.isolation.debian_root.install_command", lambda: fake.install_command)
    monkeypatch.setattr(
        "megabuild.plan.isolation.Bubblewrap.check", lambda _: need(fake.namespaces, IsolationError)
    )
    monkeypatch.setattr("megabuild.plan.isolation.torch.find", fake.find)
    monkeypatch.setattr(isolation, "machine_platform", lambda: "linux-64")
    isolation._usable_others.cache_clear()
    return fake


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> Options:
    return Options(
        config=load(repository, "linux_64_cuda130"),
        root=repository,
        output=tmp_path,
        cache=tmp_path / "cache",
    )


DEBIAN = ["linux_64_cpu_debian", "linux_64_cuda124_debian"]
WHEELS = ["linux_64_cuda130_wheel", "linux_64_cuda132_wheel"]


def test_a_machine_that_has_everything_can_rehearse_and_build_what_needs_no_channel(
    machine: Machine, options: Options
) -> None:
    assert isolation.usable_configs(options)[0] == "linux_64_cuda130 --rehearse"
    assert set(isolation.usable_configs(options)[1:]) == {*DEBIAN, *WHEELS}


@pytest.mark.parametrize(
    ("lack", "left"),
    [
        ({"install_command": "apt-get install mmdebstrap"}, WHEELS),
        ({"mirror": False}, WHEELS),
        ({"namespaces": False}, WHEELS),
        ({"wheels": ("linux_64_cpu_wheel",)}, [*DEBIAN, "linux_64_cpu_wheel"]),
        ({"wheels": ()}, DEBIAN),
    ],
)
def test_what_lacks_something_is_not_advised(
    machine: Machine, options: Options, lack: dict[str, object], left: list[str]
) -> None:
    vars(machine).update(lack)
    rehearsal, *others = isolation.usable_configs(options)
    assert rehearsal == "linux_64_cuda130 --rehearse"
    assert sorted(others) == sorted(left)


@pytest.mark.parametrize("lack", [{"compiler": False}, {"pythons": {}}, {"index": False}])
def test_without_a_compiler_a_python_or_an_index_nothing_is_advised(
    machine: Machine, options: Options, lack: dict[str, object]
) -> None:
    vars(machine).update(lack)
    assert isolation.usable_configs(options) == ()


def test_a_channel_and_an_engine_that_are_both_missing_are_told_at_once(
    machine: Machine, options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = isolation.unreachable(ProviderError("no channel", "Set X"), options)
    assert "no channel" in error.message
    assert "docker" in error.message
    assert "docker or podman" in error.remedy
    assert "--rehearse" in error.remedy


def test_a_config_for_another_machine_is_not_to_be_rehearsed_here(
    machine: Machine, options: Options, repository: Path
) -> None:
    other = replace(options, config=load(repository, "linux_aarch64_cpu"))
    assert not any("--rehearse" in one for one in isolation.usable_configs(other))


def test_of_another_feedstock_nothing_is_said_to_work_that_was_not_tried(
    machine: Machine, options: Options, tmp_path: Path
) -> None:
    (tmp_path / ".ci_support").mkdir()
    (tmp_path / ".ci_support" / "linux_64_.yaml").write_text("target_platform: [linux-64]\n")
    foreign = replace(options, config=load(tmp_path, "linux_64_"), root=tmp_path)
    assert isolation.usable_configs(foreign) == ()
    remedy = isolation.unreachable(ProviderError("no channel", "Set X"), foreign).remedy
    assert "linux_64_ --provider local" in remedy
