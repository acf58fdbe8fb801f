"""PygIndex pages, and which wheel of them fits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from wheel_files import make_page

from groundwork.errors import ProviderError, UsageError
from groundwork.network import index
from groundwork.network.client import Answer, Client, NetworkError
from groundwork.network.index import Configured, File, configured, offered
from pyg_extensions.pyg_index import PygIndex, WheelTarget, fitting


def target(**changes: str | None) -> WheelTarget:
    torch: dict[str, str | None] = {"torch_version": "2.13.0+cu130", "cuda_version": "13.0"}
    return WheelTarget(**{"python": "3.12", "platform": "linux-64", **torch, **changes})  # type: ignore[arg-type]


def wheels(folder: Path, *links: str, torch: str = "2.13.0", tag: str = "cu130") -> tuple[File, ...]:
    make_page(folder, torch, tag, list(links))
    return PygIndex(str(folder)).wheels(torch, tag)


@pytest.mark.parametrize(
    "link",
    [
        "torch-2.13.0%2Bcu130/torch_scatter-2.1.2%2Bpt213cu130-cp312-cp312-linux_x86_64.whl",
        "torch-2.13.0+cu130/torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl",
        "./torch-2.13.0%2Bcu130/torch_scatter-2.1.2%2Bpt213cu130-cp312-cp312-linux_x86_64.whl",
    ],
)
def test_relative_links_lead_below_the_index(tmp_path: Path, link: str) -> None:
    (wheel,) = wheels(tmp_path, link)
    assert (wheel.project, str(wheel.version), wheel.sha256) == ("torch-scatter", "2.1.2+pt213cu130", "")
    assert wheel.url.replace("%2B", "+").startswith(tmp_path.as_uri() + "/torch-2.13.0+cu130/")
    assert wheel.version.local == "pt213cu130"


def test_a_patch_release_of_torch_is_served_by_the_page_of_the_first(tmp_path: Path) -> None:
    make_page(tmp_path, "2.13.0", "cpu", ["torch_scatter-2.1.2%2Bpt213cpu-cp312-cp312-linux_x86_64.whl"])
    (wheel,) = PygIndex(str(tmp_path)).wheels("2.13.2+cpu", "cpu")
    assert wheel.version.local == "pt213cpu"
    assert PygIndex(str(tmp_path)).wheels("2.14.0", "cpu") == ()
    make_page(tmp_path, "2.13.2", "cpu", ["torch_scatter-2.1.3%2Bpt213cpu-cp312-cp312-linux_x86_64.whl"])
    (wheel,) = PygIndex(str(tmp_path)).wheels("2.13.2+cpu", "cpu")
    assert wheel.version.public == "2.1.3", "its own page comes first"


def test_a_refusal_is_no_empty_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: Client, url: str, **_: object) -> Answer:
        raise NetworkError(f"{url}: HTTP status 403", "check the credentials for this server", 403)

    monkeypatch.setattr(Client, "get", refuse)
    with pytest.raises(ProviderError, match="HTTP status 403") as refused:
        PygIndex("https://own.example/whl").wheels("2.13.1", "cpu")
    assert "credentials" in refused.value.remedy
    assert PygIndex().wheels("2.13.1", "cpu") == ()  # its bucket answers so for a missing page


def test_the_newest_fitting_wheel_is_taken(tmp_path: Path) -> None:
    versions = ("2.1.1", "2.1.10", "2.1.2")
    names = [wheel("312-cp312-linux_x86_64", project=f"torch_scatter-{version}") for version in versions]
    offered = wheels(tmp_path, *names)
    every = ["2.1.10", "2.1.2", "2.1.1"]
    for version, found in ((None, every), ("2.1.2", ["2.1.2"]), ("2.1.2.0+pt213cpu", ["2.1.2"])):
        fits, _ = fitting("torch_scatter", offered, target(), version)
        assert [wheel.version.public for wheel in fits] == found
    assert "not 3.0" in fitting("torch_scatter", offered, target(), "3.0")[1]
    platforms = ("linux", "manylinux_2_28", "manylinux_2_17")
    same = wheels(tmp_path, *(wheel(f"312-cp312-{platform}_x86_64") for platform in platforms))
    fits, _ = fitting("torch_scatter", same, target(glibc="2.28"), None)
    assert [file.name.rpartition("-")[2] for file in fits] == [
        f"{platform}_x86_64.whl" for platform in ("manylinux_2_28", "manylinux_2_17", "linux")
    ]


def test_the_reason_is_that_of_the_closest_wheel(tmp_path: Path) -> None:
    names = (
        wheel("312-cp312-linux_x86_64", "%2Bpt213cu126"), wheel("311-cp311-linux_x86_64"),
        wheel("312-cp312-linux_x86_64", project="torch_scatter-2.1.1"),
    )  # fmt: skip
    _, why = fitting("torch_scatter", wheels(tmp_path, *names), target(), "2.1.2")
    assert why.startswith("no wheel of the index fits; the closest is for cp311-cp311")


def wheel(tags: str, local: str = "%2Bpt213cu130", project: str = "torch_scatter-2.1.2") -> str:
    """Name a wheel by tags such as ``312-cp312-linux_x86_64``."""
    return f"{project}{local}-cp{tags}.whl"


@pytest.mark.parametrize(
    ("file", "changes", "reason"),
    [
        (wheel("312-cp312-linux_x86_64", "%2Bpt213cu126"), {}, "is for torch 2.13 cu126"),
        (wheel("312-cp312-linux_x86_64", "%2Bpt212cu130"), {}, "is for torch 2.12 cu130"),
        (wheel("311-cp311-linux_x86_64"), {}, "is for cp311-cp311"),
        (wheel("312-cp312-win_amd64"), {}, "win_amd64"),
        (wheel("312-cp312-manylinux_2_34_x86_64"), {"glibc": "2.28"}, "manylinux_2_34"),
        (wheel("312-cp312-manylinux_2_17_x86_64"), {"glibc": ""}, "manylinux_2_17"),  # musl
        (wheel("314-cp314-linux_x86_64"), {"python": "3.14t"}, "is for cp314-cp314"),
        (wheel("312-cp312-linux_x86_64", project="torch_sparse-0.6.18"), {}, "has no torch_scatter"),
        (wheel("312-cp312-linux_x86_64", local=""), {}, ""),
        (wheel("312-cp312-manylinux_2_28_x86_64"), {}, ""),
        (wheel("312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64"), {}, ""),
        (wheel("312-cp312-manylinux2014_x86_64"), {}, ""),
        (wheel("310-abi3-linux_x86_64"), {}, ""),
        (wheel("312-cp312-any"), {}, "has"),
        (wheel("312-cp312-any.linux_x86_64"), {}, ""),  # with a library, though for any platform, too
        (wheel("314-cp314t-linux_x86_64"), {"python": "3.14t"}, ""),
        (wheel("312-cp312-linux_aarch64"), {"platform": "linux-aarch64"}, ""),
        (wheel("312-cp312-macosx_11_0_arm64"), {"platform": "osx-arm64"}, ""),
        (wheel("312-cp312-macosx_10_9_universal2"), {"platform": "osx-64"}, ""),
    ],
)
def test_a_wheel_fits_or_the_reason_says_why_not(
    tmp_path: Path, file: str, changes: dict[str, str], reason: str
) -> None:
    fits, why = fitting("torch_scatter", wheels(tmp_path, file), target(**changes), None)
    assert (len(fits) == 1) == (not reason)
    assert reason in why
    assert bool(reason) == bool(why)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    where = replace(configured(), indexes=(), links=(str(tmp_path / "gone"),))
    with pytest.raises(NetworkError, match="gone: no such folder"):
        offered("torch", where, where.client().page)


def test_a_folder_of_wheels_has_those_of_a_project_by_its_whole_name(tmp_path: Path) -> None:
    names = ["torch-2.13.0-py3-none-any.whl", "torch_scatter-2.1.2-py3-none-any.whl"]
    for name in names:
        (tmp_path / name).touch()
    where = Configured(links=(str(tmp_path),))
    for project, name in zip(("torch", "torch-scatter"), names, strict=True):
        found, troubles = offered(project, where, where.client().page)
        assert ([file.name for file in found], troubles) == ([name], ())


def test_an_index_that_is_asked_alone_stands_for_pip_s_indexes_and_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip = Configured(indexes=("https://pip.invalid",), links=("/wheels",), proxy="http://proxy.invalid")
    monkeypatch.setattr(index, "configured", lambda: pip)
    more = ("https://more.invalid/", "/more")
    added = index.places(more)
    assert (added.indexes, added.links) == (
        ("https://pip.invalid", "https://more.invalid"),
        ("/wheels", "/more"),
    )
    alone = index.places(more, "https://alone.invalid")
    assert (alone.indexes, alone.links, alone.proxy) == (("https://alone.invalid",), (), pip.proxy)


@pytest.mark.parametrize("source", ["gone", "http://[broken"])
def test_an_index_of_the_user_that_does_not_exist_is_refused(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(source)):
        PygIndex(source)


def test_a_platform_without_wheels_is_told_to_compile() -> None:
    with pytest.raises(UsageError, match="win-64: no wheels are known") as told:
        target(platform="win-64").tags()
    assert told.value.remedy == "compile instead: --pyg source"
