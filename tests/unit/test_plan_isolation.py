"""Which isolation a config gets, and which configs are named where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from small_files import program
from tiny import Tiny, provider

from groundwork.channel import Channel
from groundwork.errors import IsolationError, PreflightError, ProviderError
from megabuild.configs.config import Config, load
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import choose_isolation as choosing
from megabuild.plan import planning, solving
from megabuild.plan.choose_isolation import choose_isolation, rehearsal_image, unreachable
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.run_choices import PygMode
from megabuild.providers.debian.provider import SOURCE_INSIDE
from megabuild.providers.environment import Environment
from megabuild.run.outlook import look_ahead
from megabuild.run.plan_report import plan_result
from megabuild.run.store_lookup import Stored


def config(**changes: Any) -> Config:
    """A config of conda-forge's, with changes."""
    return replace(load(Path(__file__).parents[2], "linux_64_cpu"), **changes)


def environment(*addresses: str, **given: Any) -> Environment:
    """What a provider may have made."""
    channels = tuple(map(Channel.parse, addresses or ("https://conda.example/conda-forge",)))
    return Environment(channels=channels, pythons=(), **given)


REHEARSAL = environment("/channel", overrides={"torch_source": ("model",)})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_IMAGE", raising=False)
    monkeypatch.setattr(choosing, "machine_platform", lambda: "linux-64")
    return folder


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> Options:
    return Options(
        config=config(), root=repository, output=tmp_path, cache=tmp_path / "cache", pyg=PygMode.NONE
    )


@pytest.mark.parametrize("name", ["my builds", "50%", "builds-für-mich", "x" * 160])
def test_a_path_that_compilers_cannot_handle_is_refused_by_the_plan(
    name: str, options: Options, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match=f"{name}/"):
        planning.survey_plan(replace(options, output=tmp_path / name), print)
    assert not list(tmp_path.iterdir())


def fake(folder: Path, name: str, answer: str, code: int = 0) -> None:
    program(folder / name, f'[ "$1" = --version ] || echo "{answer}"\nexit {code}')


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({}, REHEARSAL),
        ({"provider": "wheel"}, environment()),
        ({"platform": "osx-arm64", "build_platform": "osx-arm64"}, environment()),
    ],
    ids=["a rehearsal", "wheels", "another system"],
)
def test_what_needs_no_isolation_runs_on_the_host(changes: dict[str, str], made: Environment) -> None:
    assert choose_isolation(None, config(**changes), made).name == "host"


@pytest.mark.parametrize("engine", Engine)
def test_the_requested_engine_isolates_the_build(engine: Engine) -> None:
    assert choose_isolation(engine, config(), environment()).name == engine.value


def test_no_other_engine_takes_the_place_of_an_unknown_one() -> None:
    with pytest.raises(AssertionError, match="systemd-nspawn"):
        choose_isolation(cast(Engine, "systemd-nspawn"), config(), environment())


def test_conda_forge_prefers_docker_then_podman(programs: Path) -> None:
    fake(programs, "podman", "5.2.0 rootless=true")
    assert choose_isolation(None, config(), environment()).name == "podman"
    fake(programs, "docker", "28.0.1 []")
    assert choose_isolation(None, config(), environment()).name == "docker"
    fake(programs, "docker", "", code=1)
    assert choose_isolation(None, config(), environment()).name == "podman"


def test_a_plan_keeps_where_it_is_built_or_why_it_cannot_be(
    programs: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = provider("https://channel.invalid", pythons=config().pythons)
    monkeypatch.setattr(planning, "choose_provider", made)
    monkeypatch.setattr("megabuild.plan.fingerprint.staging", lambda *args: Fingerprint())
    monkeypatch.setattr(solving, "free_threaded_gaps", lambda *args: {})
    plan = planning.make_plan(options, print)
    with pytest.raises(IsolationError, match=r"docker: .*podman: ") as none:
        plan.usable_isolation()
    assert "--engine host" in none.value.remedy
    assert "linux_64_cpu_debian" in none.value.remedy
    fake(programs, "podman", "5.2.0 rootless=true")
    assert planning.make_plan(options, print).usable_isolation().name == "podman"


@pytest.mark.parametrize(("published", "stored"), [(0, 0), (1, 1), (3, 0), (1, 2), (0, 3)])
def test_a_plan_without_an_isolation_fails_if_packages_are_left_to_build(
    published: int, stored: int, tiny: Tiny
) -> None:
    """Packages that a store has are fetched, which needs no isolation."""
    outlook = tiny.outlook()
    plan = replace(outlook.plan, isolation=IsolationError("no engine", "install one"), untested="no engine")
    names = sorted(plan.file_names)
    fetched = dict.fromkeys(names[published : published + stored], cast(Any, None))
    progress = replace(
        outlook.progress, plan=plan, existing=frozenset(names[:published]), stored=Stored(packages=fetched)
    )
    result = plan_result(replace(outlook, progress=progress))
    left = len(names) - published - len(fetched)
    assert result.exit_code == (IsolationError.exit_code if left else 0)
    text = "\n".join(result.lines)
    assert ("cannot be built here" in text, "will not be tested" in text) == (left > 0, left > 0)
    assert ("nothing to build" in text) == (left == 0)


@pytest.mark.parametrize(
    ("planned", "stored", "reason"),
    [
        (3, 0, "all packages exist"),
        (3, 1, "the store has the rest"),
        (0, 0, "the recipe skips all packages for this config"),
    ],
)
def test_a_plan_says_why_nothing_is_built(planned: int, stored: int, reason: str, tiny: Tiny) -> None:
    outlook = tiny.outlook()
    plan = replace(outlook.plan, items=outlook.plan.items[:planned])
    names = sorted(plan.file_names)
    fetched = dict.fromkeys(names[:stored], cast(Any, None))
    progress = replace(
        outlook.progress, plan=plan, existing=frozenset(names[stored:]), stored=Stored(packages=fetched)
    )
    lines = plan_result(replace(outlook, progress=progress)).lines
    assert f"nothing to build: {reason}" in lines


@pytest.mark.parametrize("engine", [None, Engine.DOCKER, Engine.PODMAN, Engine.BUBBLEWRAP])
def test_a_plan_tests_the_engine_of_its_run(
    engine: Engine | None, programs: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = provider("https://channel.invalid", pythons=config().pythons)
    monkeypatch.setattr(planning, "choose_provider", made)
    monkeypatch.setattr("megabuild.plan.fingerprint.staging", lambda *args: Fingerprint())
    monkeypatch.setattr(solving, "free_threaded_gaps", lambda *args: {})
    plan = planning.make_plan(replace(options, engine=engine), print)
    result = plan_result(look_ahead(plan, {}, print))
    assert result.exit_code == IsolationError.exit_code
    assert result.lines[2].startswith("✗ cannot be built here: ")
    assert (engine or Engine.DOCKER).value in result.lines[2]
    assert result.document["isolation"] is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("linux_64_cuda134", "or run: python3 build-locally.py linux_64_cuda132_wheel"),
        ("linux_64_cuda130", "or run: python3 build-locally.py linux_64_cuda130_wheel"),
        ("linux_64_cpu", "or run: python3 build-locally.py linux_64_cpu_debian"),
    ],
)
def test_the_way_out_has_the_same_accelerator(name: str, hint: str, repository: Path) -> None:
    error = unreachable(ProviderError("x", "set CONDA_CHANNEL_ALIAS to a mirror"), load(repository, name))
    assert error.remedy == f"set CONDA_CHANNEL_ALIAS to a mirror, {hint}"


@pytest.mark.parametrize(
    ("cuda", "nearest"), [("12.3", "124_debian"), ("12.9", "130_wheel"), ("13.9", "132_wheel")]
)
def test_without_the_same_accelerator_the_nearest_is_the_way_out(
    cuda: str, nearest: str, repository: Path
) -> None:
    known = load(repository, "linux_64_cuda130")
    other = replace(known, accelerator=f"cuda{cuda.replace('.', '')}", cuda_version=cuda)
    error = unreachable(ProviderError("x", ""), other)
    assert error.remedy == f"run: python3 build-locally.py linux_64_cuda{nearest}"


def test_debian_is_built_in_its_root_and_gets_the_network_where_a_build_needs_it(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = load(repository, "linux_64_cpu_debian")
    made = environment(str(tmp_path), root=tmp_path, overrides={"torch_source_path": (SOURCE_INSIDE,)})
    found = choose_isolation(None, debian, made)
    assert found == Bubblewrap(root=tmp_path, network=False)
    with_extensions = choose_isolation(None, debian, made, fetches_sources=True)
    assert with_extensions == Bubblewrap(root=tmp_path, network=True)
    remote = choose_isolation(None, debian, environment(root=tmp_path))
    assert remote == Bubblewrap(root=tmp_path, network=True)
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://cache.example")
    assert choose_isolation(None, debian, made) == with_extensions, "ccache asks its server"
    monkeypatch.setenv("PATH", "")
    with pytest.raises(IsolationError, match="bubblewrap: not installed"):
        found.check()


@pytest.mark.parametrize("engine", [Engine.HOST, Engine.DOCKER, Engine.PODMAN])
def test_an_engine_that_enters_no_debian_root_is_refused_before_anything_is_made(
    engine: Engine, options: Options, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = replace(options, config=load(repository, "linux_64_cpu_debian"), engine=engine)
    monkeypatch.setattr(choosing, "machine_platform", lambda: "linux-64")
    for plan in (planning.survey_plan, planning.make_plan):
        with pytest.raises(
            IsolationError, match=r"^linux_64_cpu_debian: .*only bubblewrap enters"
        ) as refused:
            plan(debian, print)
        assert refused.value.remedy == "leave out --engine"
    assert not list(options.output.iterdir()), "neither caches nor folders"
    assert choose_isolation(engine, debian.config, REHEARSAL).engine is engine, "of this machine's programs"


def test_a_machine_without_a_named_release_has_an_image_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise OSError("no os-release")

    monkeypatch.setattr("platform.freedesktop_os_release", read)
    assert rehearsal_image() == "megabuild-rehearsal:unknown"


def test_a_container_rehearsal_uses_the_image_made_here_without_a_network(programs: Path) -> None:
    found = choose_isolation(Engine.DOCKER, config(), REHEARSAL)
    assert isinstance(found, Container)
    assert (found.image, found.network) == (rehearsal_image(), False)
    assert "make-image.sh docker" in found.made_here
    found = choose_isolation(Engine.PODMAN, config(), environment("/channel", overrides={}))
    assert isinstance(found, Container)
    assert found.network, "a source from elsewhere"


def test_another_image_can_be_named_and_one_must_be(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IsolationError, match="container image"):
        choose_isolation(Engine.DOCKER, config(docker_image=""), environment())
    monkeypatch.setenv("DOCKER_IMAGE", "mine:1")
    found = choose_isolation(Engine.DOCKER, config(), REHEARSAL)
    assert isinstance(found, Container)
    assert (found.image, found.made_here) == ("mine:1", "")


def test_only_configs_that_this_machine_builds_are_named(
    programs: Path, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / ".ci_support").mkdir()
    (tmp_path / ".ci_support" / "linux_64_.yaml").write_text("target_platform: [linux-64]\n")
    error = ProviderError("no channel", "Set X")
    assert unreachable(error, load(repository, "linux_aarch64_cpu")).remedy.endswith(
        " linux_aarch64_cpu_debian"
    )
    assert " linux_64_" in unreachable(error, load(repository, "linux_aarch64_cuda130")).remedy
    assert "--provider local" in unreachable(error, load(tmp_path, "linux_64_")).remedy
    cross = replace(load(tmp_path, "linux_64_"), platform="linux-aarch64")
    assert unreachable(error, cross).remedy == "Set X", "it has no cross compilers"
    assert unreachable(error, config()).remedy.split()[-2:] == ["build-locally.py", "linux_64_cpu_debian"]
    cuda = config(accelerator="cuda130")
    assert unreachable(error, cuda).remedy.split()[-1] == "linux_64_cuda130_wheel"
