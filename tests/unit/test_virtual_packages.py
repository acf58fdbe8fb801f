"""Environments of other platforms are solved with those platforms' virtual packages, not this machine's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rattler
from small_files import write

from groundwork.channel import Channel
from groundwork.errors import MegabuildError, PreflightError, UsageError
from groundwork.machine import machine_platform
from groundwork.network.channel_logins import Channels, Login
from megabuild.configs.platforms import Platforms
from megabuild.plan import solving, virtual_packages
from megabuild.plan.environment_packages import Requirements, solve_all
from megabuild.plan.solving import solved
from megabuild.plan.virtual_packages import find_virtual_packages
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.environment import Environment

#: Builds of a package without platform, by what each requires; the solver takes the last one that fits.
BUILDS = {
    "any": (),
    "glibc": ("__linux", "__glibc >=2.28", "__unix"),
    "osx": ("__osx >=12.0", "__unix"),
    "win": ("__win",),
    "icelake": ("__archspec 1.* icelake",),
    "m1": ("__osx >=12.0", "__archspec 1.* m1"),
    "aarch64": ("__linux", "__archspec 1.* aarch64"),
    "cuda": ("__cuda >=13.0", "__glibc"),
}


@pytest.fixture
def channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Channels:
    """A channel with a build of ``tool`` for each fact; on a Linux machine whose processor is a server's."""
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CONDA_OVERRIDE_ARCHSPEC", "icelake")
    monkeypatch.setenv("CONDA_OVERRIDE_GLIBC", "2.36")
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "13.0")
    monkeypatch.setattr(virtual_packages, "machine_platform", lambda: "linux-64")
    here = find_virtual_packages("linux-64", {})
    for name in ("ARCHSPEC", "GLIBC", "CUDA"):
        monkeypatch.delenv(f"CONDA_OVERRIDE_{name}")
    names = {package.name.source for package in here}
    monkeypatch.setattr(rattler.VirtualPackage, "detect", lambda overrides: [_Detected(one) for one in here])
    assert names == {"__unix", "__linux", "__glibc", "__cuda", "__archspec"}
    folder = tmp_path / "channel" / "noarch"
    folder.mkdir(parents=True)
    packages: dict[str, Mapping[str, object]] = {}
    for number, (build, depends) in enumerate(BUILDS.items()):
        packages[f"tool-1.0-{build}_{number}.conda"] = {
            "name": "tool", "version": "1.0", "build": f"{build}_{number}", "build_number": number,
            "depends": depends, "subdir": "noarch", "noarch": "generic", "sha256": "0" * 64, "size": 1,
        }  # fmt: skip
    index = {"info": {"subdir": "noarch"}, "packages": {}, "packages.conda": packages}
    (folder / "repodata.json").write_text(json.dumps(index))
    return Channels(by_priority=(Channel.of_folder(folder.parent),))


LOGIN = Login(address="https://a.invalid", host="a.invalid", user="ann")
GIVEN = Environment(
    channels=(Channel.parse("https://a.invalid/x"), Channel.parse("https://b.invalid/x")),
    pythons=(), virtual_packages={"__glibc": "2.41"}, logins=(LOGIN,),
)  # fmt: skip


def ask_for_staging(given: Environment) -> None:
    solving.environment(("fmt",), given, "linux-64", "x")


def ask_for_all(given: Environment) -> None:
    solve_all([Requirements(specs=("fmt",), platform="linux-64", what="x")], given)


@pytest.mark.parametrize("ask", [ask_for_staging, ask_for_all], ids=lambda one: one.__name__)
def test_environments_are_solved_with_all_that_their_provider_gives(
    ask: Callable[[Environment], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The glibc of a root, the CUDA of a GPU that this machine lacks, and each channel with its user."""
    asked: list[object] = []

    def solve(specs: object, channels: Channels, platform: str, *, virtual: object, **_: object) -> list[Any]:
        asked.append((specs, channels, platform, virtual))
        return []

    monkeypatch.setattr(solving, "solved", solve)
    monkeypatch.setattr(solving, "make_gateway", lambda channels: asked.append(channels))
    ask(GIVEN)
    channels = Channels(by_priority=GIVEN.channels, logins=(LOGIN,))
    assert asked.pop() == (("fmt",), channels, "linux-64", {"__glibc": "2.41"})
    assert asked in ([], [channels])


def test_packages_are_listed_for_both_platforms_with_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    class Gateway:
        async def query(self, _: object, subdirs: Sequence[str], names: object, **__: object) -> list[Any]:
            asked.append(subdirs)
            return [[SimpleNamespace(file_name="a.conda", sha256=bytes([len(asked)] * 32))], []]

    monkeypatch.setattr(solving, "make_gateway", lambda _: Gateway())
    channels = Channels(by_priority=GIVEN.channels)
    listed = solving.list_packages(["a"], channels, Platforms(build="linux-64", target="linux-aarch64"))
    assert listed == [frozenset({("a.conda", digit * 32)}) for digit in ("01", "02")]
    assert asked == [["linux-aarch64", "linux-64", "noarch"]] * 2


def test_a_channel_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "channel/linux-64/repodata.json", "damaged")
    channels = Channels(by_priority=(Channel.of_folder(tmp_path / "channel"),))
    with pytest.raises(ChannelError, match=rf"^channel {tmp_path}/channel cannot be read: "):
        solving.list_packages(["a"], channels, Platforms.native("linux-64"))


class _Detected:
    """A virtual package of this machine, as rattler returns it."""

    def __init__(self, generic: object) -> None:
        self._generic = generic

    def into_generic(self) -> object:
        return self._generic


def solve(
    channels: Channels, platform: str, *, given: Mapping[str, str], specs: Sequence[str] = ("tool",)
) -> str:
    (record,) = solved(specs, channels, platform, virtual=given, what="x", remedy="")
    return str(record.build).partition("_")[0]


@pytest.mark.parametrize(
    ("platform", "build"),
    [
        ("linux-64", "cuda"),
        ("linux-aarch64", "aarch64"),
        ("osx-arm64", "m1"),
        ("osx-64", "osx"),
        ("win-64", "win"),
    ],
)
def test_an_environment_gets_the_facts_of_its_platform(platform: str, build: str, channels: Channels) -> None:
    assert solve(channels, platform, given={}) == build


def test_given_facts_hold_for_every_platform_that_can_have_them(channels: Channels) -> None:
    given = {"__cuda": "13.0", "__glibc": "2.17"}
    assert solve(channels, "linux-aarch64", given=given) == "cuda"
    assert solve(channels, "osx-arm64", given=given) == "m1"
    found = find_virtual_packages("linux-aarch64", given)
    glibc = {package.name.source: str(package.version) for package in found}
    assert glibc["__glibc"] == "2.17"
    of_macos = {package.name.source for package in find_virtual_packages("osx-arm64", given)}
    assert of_macos == {"__unix", "__osx", "__archspec"}


@pytest.mark.skipif(not machine_platform().startswith("linux"), reason="macOS has no glibc")
def test_given_facts_replace_those_of_this_machine() -> None:
    given = {"__cuda": "99.9", "__glibc": "2.99"}
    found = {
        package.name.source: str(package.version)
        for package in find_virtual_packages(machine_platform(), given)
    }
    assert given.items() <= found.items()


def test_a_processor_that_the_user_names_is_this_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host environment of a cross build is for another one."""
    monkeypatch.setattr(virtual_packages, "machine_platform", lambda: "linux-64")
    monkeypatch.setenv("CONDA_OVERRIDE_ARCHSPEC", "icelake")
    found = {}
    expected = {"linux-64": "icelake", "linux-aarch64": "aarch64", "osx-64": "x86_64", "osx-arm64": "m1"}
    for platform in expected:
        packages = {
            package.name.source: package.build_string for package in find_virtual_packages(platform, {})
        }
        found[platform] = str(packages["__archspec"])
    assert found == expected


def test_the_user_can_name_another_macos(channels: Channels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_OSX", "11.0")
    assert solve(channels, "osx-64", given={}) == "any"


@pytest.mark.parametrize(
    ("platform", "name"),
    [("linux-aarch64", "GLIBC"), ("osx-arm64", "OSX"), ("win-64", "WIN"), ("osx-arm64", "ARCHSPEC")],
)
def test_an_empty_variable_means_that_there_is_no_such_package(
    platform: str, name: str, channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conda and rattler read it so for this machine's platform."""
    packages = {package.name.source for package in find_virtual_packages(platform, {})}
    monkeypatch.setenv(f"CONDA_OVERRIDE_{name}", "")
    left = {package.name.source for package in find_virtual_packages(platform, {})}
    assert packages - left == {f"__{name.lower()}"}


def test_a_channel_hides_newer_packages_of_those_after_it(channels: Channels, tmp_path: Path) -> None:
    package = {
        "name": "tool", "version": "2.0", "build": "newer_0", "build_number": 0, "depends": [], "subdir": "noarch",
        "noarch": "generic", "sha256": "0" * 64, "size": 1,
    }  # fmt: skip
    index = {
        "info": {"subdir": "noarch"},
        "packages": {},
        "packages.conda": {"tool-2.0-newer_0.conda": package},
    }
    write(tmp_path / "newer/noarch/repodata.json", json.dumps(index))
    newer = Channel.of_folder(tmp_path / "newer")
    (older,) = channels.by_priority
    versions = []
    for order in ((older, newer), (newer, older)):
        (record,) = solved(
            ["tool"], Channels(by_priority=order), "linux-64", virtual={}, what="x", remedy="y"
        )
        versions.append(str(record.version))
    assert versions == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("spec", "kind"), [("tool >>>1", UsageError), ("tool >=9", PreflightError), ("none", PreflightError)]
)
def test_a_requirement_that_is_wrong_and_one_without_solution_are_two_errors(
    spec: str, kind: type[MegabuildError], channels: Channels
) -> None:
    with pytest.raises(MegabuildError) as caught:
        solved([spec], channels, "linux-64", virtual={}, what="x", remedy="y")
    assert type(caught.value) is kind
    assert caught.value.message.startswith("x")


def test_an_error_of_the_solver_shows_no_password(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("https://ann:hunter22@host.example/x:\n  refused")

    monkeypatch.setattr(solving, "solve", refuse)
    with pytest.raises(PreflightError, match=r"https://host\.example/x: refused$"):
        solved(["tool"], channels, "linux-64", virtual={}, what="x", remedy="y")
