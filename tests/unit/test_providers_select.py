"""Choosing a provider: what is asked of it, and how absence is told."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_site import serving
from small_files import program

from groundwork.channel import Channel
from groundwork.errors import ConfigError, IsolationError, ProviderError, UsageError
from megabuild.configs.config import CONFIG_FOLDER, Config, load
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.engine import Engine
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.planning import survey_plan
from megabuild.plan.run_choices import PygMode
from megabuild.plan.torch_version import with_torch
from megabuild.providers import local_channel
from megabuild.providers.conda_forge import provider as conda_forge
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.local import interpreters
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.machine.provider import MachineProvider
from megabuild.providers.provider import (
    Figures,
    Provider,
    build_requirements,
    host_requirements,
    requirements,
)
from megabuild.providers.pypi import lock
from megabuild.providers.select import PROVIDERS, choose_provider
from megabuild.run.estimate import estimate
from megabuild.run.progress import Progress


def _planned(name: str, *, run: tuple[str, ...] = (), host: tuple[str, ...] = ()) -> PlannedPackage:
    return PlannedPackage(
        name=name, version="1", build_string="0", build_number=0, file_name=f"{name}.conda", subdir="linux-64",
        python=None, build=(), host=host, run=run, constraints=(), test=("pip",),
    )  # fmt: skip


def test_packages_of_the_plan_are_not_asked_of_the_provider() -> None:
    planned = [
        _planned("libtorch", host=("numpy 2.*",)),
        _planned("pytorch", run=("libtorch ==1 0", "libtorch-cuda-linalg", "six")),
    ]
    assert requirements(planned) == ["libtorch-cuda-linalg", "numpy 2.*", "pip", "six"]


@pytest.mark.parametrize("kind", ["staging_build", "build", "staging_host", "host", "run", "test"])
def test_a_provider_is_asked_for_the_requirements_of_each_environment(kind: str) -> None:
    """Of build environments for the machine that compiles, of the others for the packages' platform."""
    needs: dict[str, Any] = {"test": (), kind: ("x 1.*", "own ==1", "left-out")}
    planned = [replace(_planned("own"), **needs)]
    asked = ["left-out", "x 1.*"]
    of_build = kind.endswith("build")
    assert build_requirements(planned) == (asked if of_build else [])
    assert host_requirements(planned) == ([] if of_build else asked)
    assert requirements(planned) == asked


def test_an_environment_has_the_values_and_the_programs_of_its_channel(
    repository: Path, tmp_path: Path
) -> None:
    config = load(repository, "linux_64_cuda130")
    variant = {**config.variant, "c_compiler_version": ("99", "14"), "torch_optimization": ("2",)}
    request = ProviderRequest(
        config=replace(config, variant=variant), planned=(), cache=tmp_path, report=lambda _: None
    )
    packages = [
        LocalPackage(name=name, version="77", platform="linux-64", inputs=inputs)
        for name, inputs in (("pybind11-abi", {"wheel": "1"}), ("gcc", {"compiler": "1"}), ("ninja", {"program": "1"}))
    ]  # fmt: skip
    toolchain = Toolchain(cc="", cxx="", version="99.1", glibc="2.99", programs={}, libraries={}, digest="")
    channel = LocalChannel(
        path=tmp_path,
        packages=tuple(packages),
        toolchain=toolchain,
        stand_ins=("glib",),
        by_name=("six", "toml"),
    )
    values = {"torch_python_base": "3.10", "torch_optimization": "2", "no_key_of_the_config": "1"}
    made = MachineProvider(request).of_channel(channel, ("3.12",), values)
    assert made.overrides == {
        "c_compiler_version": ("99",), "cxx_compiler_version": ("99",), "c_stdlib_version": ("2.99",),
        "pybind11_abi": ("77",), "torch_python_base": ("3.10",),
    }  # fmt: skip
    assert made.programs == {package.path for package in packages[1:]}
    assert made.virtual_packages == {"__cuda": "13.0"}
    assert (made.channels, made.pythons) == ((Channel.of_folder(tmp_path, this_machine=True),), ("3.12",))
    assert made.stand_ins == ("glib",)
    differences, by_name = made.notes
    assert "c_compiler_version 99 (not 99, 14)" in differences
    assert by_name == "not in the catalogue, taken from pip's indexes by name: six, toml"
    rehearsal = MachineProvider(replace(request, rehearsal=True))
    assert rehearsal.of_channel(replace(channel, by_name=()), ("3.12",), values).notes == ()


@pytest.fixture
def config(repository: Path) -> Config:
    """A config of the conda-forge provider."""
    return load(repository, "linux_64_cpu")


def _ask(
    config: Config, tmp_path: Path, *, rehearsal: bool = False, planned: Sequence[PlannedPackage] = ()
) -> Environment:
    return choose_provider(
        ProviderRequest(
            config=config, planned=planned, cache=tmp_path, report=lambda _: None, rehearsal=rehearsal
        )
    ).provide()


def test_a_channel_that_answers_is_the_environment(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"/conda-forge/noarch/repodata.json.zst": b""}) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        environment = _ask(config, tmp_path)
    assert environment.channels == (Channel.parse(f"{site.url}/conda-forge"),)
    assert environment.pythons == config.pythons
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="is unreachable"):
        _ask(config, tmp_path)


@pytest.mark.parametrize("silent", [("first",), ("second",), ("first", "second"), ()])
def test_each_channel_of_a_config_has_to_answer(
    silent: tuple[str, ...], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build would learn it in its first environment, from rattler-build."""
    of_two = replace(config, variant={**config.variant, "channel_sources": ("first,second",)})
    monkeypatch.setattr(
        conda_forge, "why_channel_unreachable", lambda url: "refused" if url.endswith(silent) else ""
    )
    if not silent:
        names = [channel.address.rpartition("/")[2] for channel in _ask(of_two, tmp_path).channels]
        assert names == ["first", "second"]
        return
    with pytest.raises(ProviderError, match=rf"channel {silent[0]} is unreachable: refused"):
        _ask(of_two, tmp_path)


def test_a_silent_channel_is_named_without_its_login(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = replace(
        config, variant={**config.variant, "channel_sources": ("https://bob:hunter2@own.invalid/x",)}
    )
    monkeypatch.setattr(conda_forge, "why_channel_unreachable", lambda url: "refused")
    with pytest.raises(ProviderError, match="is unreachable") as raised:
        _ask(private, tmp_path)
    assert "hunter2" not in raised.value.message


def test_outside_a_rehearsal_what_is_missing_is_an_error(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "with_wheels", lambda *_: ())
    needs_glib = [replace(_planned("mine"), host=("glib", "python 3.11.*"))]
    with pytest.raises(ProviderError, match=r"^glib: "):
        _ask(replace(config, provider=ProviderName.LOCAL), tmp_path, planned=needs_glib)


@pytest.mark.parametrize(("asked", "needed"), [("3.11", {"3.11", "3.12"}), ("3.12", {"3.12"})])
def test_of_the_pythons_only_those_asked_for_and_the_one_of_staging_are_prepared(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, needed: set[str]
) -> None:
    noted: dict[str, Any] = {}

    def make(request: object, needs: object, pythons: object, **given: Any) -> None:
        noted.update(given, interpreters=pythons)
        raise ProviderError("enough")

    monkeypatch.setattr(interpreters, "find", lambda report: dict.fromkeys(("3.11", "3.12", "3.13")))
    monkeypatch.setattr(local_channel, "make", make)
    planned = [_planned("libtorch"), replace(_planned("pytorch"), python=asked)]
    with pytest.raises(ProviderError, match="enough"):
        _ask(config, tmp_path, rehearsal=True, planned=planned)
    assert config.variant["torch_python_base"] == ("3.12",)
    assert set(noted["only"]) == needed
    assert set(noted["interpreters"]) == {"3.11", "3.12", "3.13"}, "wheels are chosen as for all of them"
    assert noted["any_wheel"] is False
    with pytest.raises(ProviderError, match="enough"):
        _ask(replace(config, provider=ProviderName.LOCAL), tmp_path, planned=planned)
    assert noted["any_wheel"] is True


@pytest.mark.parametrize(
    ("host", "chosen"),
    [
        (("python 3.12.* *_cpython", "numpy"), {"3.12"}),
        (("python >=3.11", "python_abi 3.12.* *_cp312"), {"3.13"}),
        ((), {"3.13"}),
    ],
)
def test_a_recipe_without_pythons_gets_those_that_its_packages_name_else_the_newest(
    host: tuple[str, ...],
    chosen: set[str],
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As another feedstock's does."""
    given: list[set[str]] = []

    def make(request: object, needs: object, pythons: dict[str, object], **_: Any) -> None:
        given.append(set(pythons))
        raise ProviderError("enough")

    monkeypatch.setattr(interpreters, "find", lambda report: dict.fromkeys(("3.11", "3.12", "3.13")))
    monkeypatch.setattr(local_channel, "make", make)
    without = replace(config, provider=ProviderName.LOCAL, pythons=())
    planned = [_planned("mine", host=host)]
    with pytest.raises(ProviderError, match="enough"):
        _ask(without, tmp_path, planned=planned)
    assert given == [chosen]


@pytest.mark.parametrize("name", ["linux_64_cpu_wheel", "linux_64_cpu"])
def test_without_any_python_it_says_what_to_install(
    repository: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "candidates", lambda environ, home: ())
    with pytest.raises(ProviderError, match=r"Python 3\..*: ") as caught:
        _ask(load(repository, name), tmp_path, rehearsal=name == "linux_64_cpu")
    assert "uv python install 3." in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        (
            "/usr/bin/apt-get",
            r"run: .*apt-get install python3-dev.*; or, for another Python: uv python install 3\.14",
        ),
        (None, r"run: uv python install 3\.14"),
    ],
)
def test_the_first_hint_is_the_systems_own_way(
    program: str | None, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find", lambda report: {})
    monkeypatch.setattr("shutil.which", lambda name, **_: program)
    with pytest.raises(ProviderError) as caught:
        interpreters.some_of(("3.13", "3.14", "3.14t"), lambda note: None)
    assert re.fullmatch(remedy, caught.value.remedy)


class Toy(Provider):
    """A provider of PyTorch from a channel of ready parts."""

    engines = (Engine.BUBBLEWRAP,)
    compiles = False
    cpu_figures = Figures(tree=1, package=1, per_python=1, memory=1, hours=0, python_hours=1, basis="nowhere")

    def provide(self) -> Environment:
        """Return its channel."""
        return Environment(
            channels=(Channel.parse("https://toy.invalid"),), pythons=("3.12",), source=Path("/toy")
        )


def test_a_class_in_the_table_makes_a_provider(
    config: Config, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROVIDERS, ProviderName.LOCAL, Toy)
    toy = replace(config, provider=ProviderName.LOCAL)
    options = Options(
        config=toy,
        own=True,
        root=repository,
        output=tmp_path / "out",
        cache=tmp_path / "cache",
        pyg=PygMode.NONE,
    )
    monkeypatch.setattr("megabuild.plan.fingerprint.staging", lambda *_: Fingerprint())
    plan = survey_plan(options, lambda _: None)
    assert plan.environment.channels == (Channel.parse("https://toy.invalid"),)
    assert not plan.compiles_torch
    assert {item.package.python for item in plan.items} == {None, "3.12"}
    assert not isinstance(plan.isolation, IsolationError)
    assert plan.isolation.name == "bubblewrap"
    figures = estimate(Progress.read(plan))
    assert (figures.basis, figures.disk) == ("nowhere", 1.5e9 + 6e9)
    with pytest.raises(UsageError):
        with_torch(toy, None, tmp_path)


def test_a_config_of_an_unknown_provider_is_refused(repository: Path, tmp_path: Path) -> None:
    text = (repository / CONFIG_FOLDER / "linux_64_cpu.yaml").read_text()
    folder = tmp_path / CONFIG_FOLDER
    folder.mkdir()
    (folder / "linux_64_cpu.yaml").write_text(
        text.replace("provider:\n- conda-forge\n", "provider:\n- nobody\n")
    )
    with pytest.raises(ConfigError, match="no provider nobody"):
        load(tmp_path, "linux_64_cpu")


def test_a_channel_of_one_platform_is_made_as_its_caller_says(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(local_channel, "make_of_sides", lambda *words, **flags: asked.append((words, flags)))
    toolchain = Toolchain(cc="", cxx="", version="14", glibc="2.41", programs={}, libraries={}, digest="")
    request = ProviderRequest(config=config, planned=(), cache=tmp_path, report=lambda _: None)
    own = LocalPackage(name="own", version="1", platform="linux-64")
    flags = {"survey": True, "more": ["index"], "only": ["3.12"], "any_wheel": True}
    local_channel.make(request, ["need"], {}, toolchain=toolchain, extra=[own], **cast(Any, flags))
    ((asked_request, (side,)), given) = asked.pop()
    assert (asked_request, given) == (request, flags)
    assert (side.needs, side.toolchain, side.own[-1]) == (["need"], toolchain, own)


def test_wheels_to_pack_come_from_further_indexes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(local_channel.download, "download", lambda *_, more: asked.append(more))  # type: ignore[attr-defined]
    request = cast(Any, SimpleNamespace(cache=tmp_path, report=print, config=SimpleNamespace(
        platforms=SimpleNamespace(subdirs=("linux-64", "noarch")),
    )))  # fmt: skip
    local_channel._pack([], [], request, ["index"])
    assert asked == [["index"]]


def test_a_program_of_this_machine_is_started_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "git", 'echo "git version 2.47.3" "$@"')
    monkeypatch.setattr(local_channel, "_PATH", str(tmp_path))
    (package,) = local_channel._launchers(["git", "absent"], "linux-64")
    assert (package.name, package.version) == ("git", "2.47.3")
    (tmp_path / "env").mkdir()
    package.fill(tmp_path / "env")
    printed = subprocess.check_output([tmp_path / "env/bin/git", "a b", "c"], text=True)
    assert printed == "git version 2.47.3 a b c\n"


def test_each_provider_has_a_class() -> None:
    assert PROVIDERS.keys() == set(ProviderName)


def test_each_provider_has_its_engines() -> None:
    assert {name: set(provider.engines) for name, provider in PROVIDERS.items()} == {
        ProviderName.CONDA_FORGE: {Engine.DOCKER, Engine.PODMAN},
        ProviderName.DEBIAN: {Engine.BUBBLEWRAP},
        ProviderName.LOCAL: {Engine.BUBBLEWRAP},
        ProviderName.WHEEL: {Engine.HOST},
    }
