"""Requirements that are not installed: what pip would take, by an index alone, without a whole wheel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from audit_site import Answer, Site, serving
from audit_wheels import configured_by_the_test, html, metadata
from wheel_files import make_wheel

from gpu_tools.sizes.requirement import measure_requirements
from gpu_tools.sizes.tree import ContentPart, Kind, Sizes
from groundwork.errors import ProviderError

LARGE = random.Random(1).randbytes(1_000_000)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    configured_by_the_test(monkeypatch)


def made(folder: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any") -> str:
    """Make a wheel with a megabyte that nobody needs; return its name."""
    file = f"{name}-{version}-{tag}.whl"
    text = metadata(*requires, name=name, version=version)
    make_wheel(folder, file, {f"{name}/lib/large.so": LARGE, f"{name}/x.py": b"x" * 10}, metadata=text)
    return file


@contextmanager
def index(folder: Path, **attributes: str) -> Iterator[Site]:
    """Serve the wheels of a folder; attributes of their links by project."""
    projects: dict[str, dict[str, str]] = {}
    answers: dict[str, bytes | Answer] = {}
    for wheel in folder.glob("*.whl"):
        name = wheel.name.partition("-")[0]
        projects.setdefault(name, {})[wheel.name] = attributes.get(name, "")
        answers[f"/files/{wheel.name}"] = wheel.read_bytes()
    answers |= {f"/simple/{name.replace('_', '-')}/": html(files) for name, files in projects.items()}
    with serving(answers) as site, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", f"{site.url}/simple/")
        yield site


def measured(*texts: str, python: str = "3.12") -> Sizes:
    return measure_requirements(texts, python)


def versions(sizes: Sizes) -> dict[str, str]:
    return {package.name: package.version for package in sizes.packages}


def test_the_tree_of_a_requirement_is_found_without_fetching_a_wheel(tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.2", "other[gpu]>=1", "absent; python_version < '3.12'", "only; extra == 'x'")
    made(tmp_path, "other", "1.0", "kernels; extra == 'gpu'")
    made(tmp_path, "other", "2.0rc1")
    made(tmp_path, "kernels", "3.0")
    with index(tmp_path):
        sizes = measured("thing")
    assert versions(sizes) == {"thing": "1.2", "other": "1.0", "kernels": "3.0"}
    by = {package.name: package.required_by for package in sizes.packages}
    assert by == {"thing": (), "other": ("thing",), "kernels": ("other",)}
    archives = {
        path.name.partition("-")[0]: path.stat().st_size
        for path in tmp_path.glob("*.whl")
        if "rc1" not in path.name
    }
    assert {package.name: package.download for package in sizes.packages} == archives
    assert sizes.parts[ContentPart(Kind("libraries, not looked into"))] == 3 * len(LARGE)
    assert sizes.parts[ContentPart(Kind("Python"))] == 30
    assert 0 < sizes.fetched < 300_000 < 3_000_000 < sum(archives.values())
    assert not sizes.remarks


def test_two_packages_that_exclude_each_other_are_an_error_that_names_them(tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.0", "left", "right")
    made(tmp_path, "left", "1.0", "third<2")
    made(tmp_path, "right", "1.0", "third>=2")
    for version in ("1.0", "2.0"):
        made(tmp_path, "third", version)
    with index(tmp_path), pytest.raises(ProviderError, match=r"left depend on third<2"):
        measured("thing")


def test_several_requirements_are_one_environment(tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.2", "other")
    for version in ("1.0", "2.0"):
        made(tmp_path, "other", version)
    with index(tmp_path):
        sizes = measured("thing==1.2", "other<2", "third; python_version < '3'")
        assert versions(sizes) == {"thing": "1.2", "other": "1.0"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("absent", "absent"),
        ("thing>9", "thing>9"),
        ("lacking", "tagged"),
        ("thing @ https://example.org/x.whl", "address"),
        ("broken", "broken"),
        ("old", "old"),
    ],
)
def test_without_a_wheel_for_all_of_it_a_requirement_is_an_error(
    text: str, named: str, tmp_path: Path
) -> None:
    made(tmp_path, "thing", "1.2")
    made(tmp_path, "lacking", "1.0", "tagged")
    made(tmp_path, "tagged", "1.0", tag="cp310-cp310-manylinux_2_17_x86_64")
    broken = made(tmp_path, "broken", "1.0")
    with index(tmp_path) as site:
        site.answers[f"/files/{broken}"] = b"x" * 5000
        site.answers["/simple/old/"] = html({"old-0.6.tar.gz": ""})
        with pytest.raises(ProviderError, match=named):
            measured(text)


def test_a_server_without_ranges_is_an_error(tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.2")
    with index(tmp_path) as site:
        site.ranges = False
        with pytest.raises(ProviderError, match="does not give parts"):
            measured("thing")
