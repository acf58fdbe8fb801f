"""Requirements that are not installed: what pip would take, by an index alone, without a whole wheel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from audit_site import PATIENT, Answer, Site, serving
from audit_wheels import BESIDE, configured_by_the_test, html, metadata
from wheel_files import make_wheel

from megabuild.errors import ProviderError
from megabuild.network.client import Client
from megabuild.sizes import requirement as subject
from megabuild.sizes.tree import Kind, Part, Sizes

LARGE = random.Random(1).randbytes(1_000_000)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return configured_by_the_test(monkeypatch)


def made(
    folder: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any", python: str = ""
) -> str:
    """Make a wheel with a megabyte that nobody needs; return its name."""
    file = f"{name}-{version}-{tag}.whl"
    text = metadata(*requires, name=name, version=version)
    if python:
        text = text.replace(b"\n\n", f"\nRequires-Python: {python}\n\n".encode(), 1)
    make_wheel(folder, file, {f"{name}/lib/large.so": LARGE, f"{name}/x.py": b"x" * 10}, metadata=text)
    return file


@contextmanager
def index(pip: SimpleNamespace, folder: Path, **attributes: str) -> Iterator[Site]:
    """Serve the wheels of a folder; attributes of their links by project."""
    projects: dict[str, dict[str, str]] = {}
    answers: dict[str, bytes | Answer] = {}
    for wheel in folder.glob("*.whl"):
        name = wheel.name.partition("-")[0]
        projects.setdefault(name, {})[wheel.name] = attributes.get(name, "")
        answers[f"/files/{wheel.name}"] = wheel.read_bytes()
    answers |= {f"/simple/{name.replace('_', '-')}/": html(files) for name, files in projects.items()}
    with serving(answers) as site:
        pip.text = f"global.index-url='{site.url}/simple/'\n"
        yield site


def measured(text: str, python: str = "3.12") -> Sizes:
    return subject.requirement(text, python, Client(patience=PATIENT))


def versions(sizes: Sizes) -> dict[str, str]:
    return {package.name: package.version for package in sizes.packages}


def test_the_tree_of_a_requirement_is_found_without_fetching_a_wheel(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    made(tmp_path, "thing", "1.2", "other[gpu]>=1", "absent; python_version < '3.12'", "only; extra == 'x'")
    made(tmp_path, "other", "1.0", "kernels; extra == 'gpu'")
    made(tmp_path, "other", "2.0rc1")
    made(tmp_path, "kernels", "3.0")
    with index(pip, tmp_path):
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
    assert sizes.parts[Part(Kind("libraries, not looked into"))] == 3 * len(LARGE)
    assert sizes.parts[Part(Kind("Python"))] == 30
    assert 0 < sizes.fetched < 300_000 < 3_000_000 < sum(archives.values())
    assert not sizes.remarks


def test_metadata_beside_the_wheel_are_enough_to_choose(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.0")
    newer = made(tmp_path, "thing", "2.0", python=">=3.13")
    with index(pip, tmp_path, thing=BESIDE) as site:
        for wheel in tmp_path.glob("*.whl"):
            python = "\nRequires-Python: >=3.13" if wheel.name == newer else ""
            version = wheel.name.split("-")[1]
            site.answers[f"/files/{wheel.name}.metadata"] = (
                f"Name: thing\nVersion: {version}{python}\n".encode()
            )
        assert versions(measured("thing")) == {"thing": "1.0"}
        assert f"/files/{newer}" not in {path for path, _ in site.asked}
        assert versions(measured("thing", "3.13")) == {"thing": "2.0"}


def test_a_requirement_found_later_counts_for_what_was_chosen_before(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    made(tmp_path, "thing", "1.2", "first", "second")
    made(tmp_path, "first", "1.0")
    made(tmp_path, "first", "2.0", "gone")
    made(tmp_path, "gone", "1.0")
    made(tmp_path, "second", "1.0", "third")
    made(tmp_path, "third", "1.0", "first<2")
    with index(pip, tmp_path):
        sizes = measured("thing")
    assert versions(sizes) == {"thing": "1.2", "first": "1.0", "second": "1.0", "third": "1.0"}


def test_wheels_for_other_machines_and_pythons_are_passed_over(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.0", tag="cp312-cp312-manylinux_2_17_x86_64.manylinux_2_17_aarch64")
    made(tmp_path, "thing", "2.0", tag="cp312-cp312-win_amd64")
    made(tmp_path, "thing", "3.0", tag="cp313-cp313-manylinux_2_17_x86_64.manylinux_2_17_aarch64")
    with index(pip, tmp_path):
        assert versions(measured("thing")) == {"thing": "1.0"}


def test_withdrawn_wheels_are_taken_only_by_name(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.0")
    withdrawn = made(tmp_path, "thing", "2.0")
    with index(pip, tmp_path) as site:
        names = {
            path.name: "data-yanked" if path.name == withdrawn else "" for path in tmp_path.glob("*.whl")
        }
        site.answers["/simple/thing/"] = html(names)
        assert versions(measured("thing")) == {"thing": "1.0"}
        assert versions(measured("thing==2.0")) == {"thing": "2.0"}


def test_a_dependency_that_cannot_be_had_is_a_remark(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(
        tmp_path,
        "thing",
        "1.2",
        "absent",
        "other>5",
        "named @ https://example.org/x.whl",
        "not !! understood",
    )
    made(tmp_path, "other", "1.0")
    with index(pip, tmp_path):
        sizes = measured("thing")
    assert versions(sizes) == {"thing": "1.2", "absent": "", "other": "", "named": ""}
    assert len(sizes.remarks) == 3
    assert any("other>5 (thing)" in remark for remark in sizes.remarks)


@pytest.mark.parametrize(
    "text", ["absent", "thing>9", "thing @ https://example.org/x.whl", "thing; python_version < '3'"]
)
def test_without_an_answer_for_itself_a_requirement_is_an_error(
    pip: SimpleNamespace, tmp_path: Path, text: str
) -> None:
    made(tmp_path, "thing", "1.2")
    with index(pip, tmp_path), pytest.raises(ProviderError):
        measured(text)


def test_a_server_without_ranges_is_not_made_to_send_a_wheel(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.2")
    with index(pip, tmp_path) as site:
        site.ranges = False
        with pytest.raises(ProviderError, match="does not give parts"):
            measured("thing")


@pytest.mark.parametrize("broken", [b"", b"PK\x05\x06" + bytes(18), b"x" * 5000])
def test_a_broken_wheel_is_a_sentence(pip: SimpleNamespace, tmp_path: Path, broken: bytes) -> None:
    wheel = made(tmp_path, "thing", "1.2")
    with index(pip, tmp_path) as site:
        site.answers[f"/files/{wheel}"] = broken
        with pytest.raises(ProviderError, match="thing"):
            measured("thing")


def test_a_wheel_in_a_folder_of_links_counts_too(pip: SimpleNamespace, tmp_path: Path) -> None:
    made(tmp_path, "thing", "1.2")
    pip.text = f"global.no-index='1'\nglobal.find-links='{tmp_path}'\n"
    sizes = measured("thing")
    assert (versions(sizes), sizes.fetched) == ({"thing": "1.2"}, 0)
    assert sizes.parts[Part(Kind("libraries, not looked into"))] == len(LARGE)
