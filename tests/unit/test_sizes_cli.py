"""`megabuild sizes` as a user and a script see it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sizes_files import GPU_CODE, elf
from wheel_files import make_wheel

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from gpu_tools.sizes.treemap import Area, squarified
from groundwork.errors import PreflightError


def call(invocation: Invocation, *arguments: str) -> int:
    """Run the command line and return its exit code."""
    return outcome(lambda: megabuild.main(list(arguments), standalone_mode=False, obj=invocation), invocation)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    library = elf([(".text", b"t" * 3000), (".nv_fatbin", GPU_CODE)])
    files = {
        "torch/lib/libx.so": library,
        "torch/x.py": b"x" * 900,
        "torch/x<script>.h": b"h" * 500,
        "small.md": b"d",
    }
    return make_wheel(tmp_path, "torch-2.0-cp312-cp312-linux_x86_64.whl", files)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, "torch-2.1-cp312-cp312-linux_x86_64.whl", {"torch/x.py": b"x" * 1500})


def test_the_table_fits_a_terminal_and_names_architectures(
    wheel: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "sizes", str(wheel)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split("  ")[0] or line.strip().rpartition("  ")[0].split("  ")[0]: line for line in lines}
    assert rows["torch 2.0"].endswith("kB")
    assert any(row.startswith("    sm_90a") for row in lines)
    assert any(row.startswith("not attributed: ") for row in lines)


def test_json_adds_up_at_every_level(
    wheel: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "sizes", "--json", str(wheel)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["installed"] == sum(part["bytes"] for part in document["parts"])
    (package,) = document["packages"]
    assert package["installed"] == sum(part["bytes"] for part in package["parts"]) == document["installed"]
    (library,) = package["libraries"]
    assert library["path"] == "torch/lib/libx.so"
    assert library["installed"] == sum(part["bytes"] for part in library["parts"])
    assert {"kind": "GPU code", "arch": "sm_80", "bytes": 1064} in library["parts"]
    assert (document["kind"], package["download"]) == ("wheel", wheel.stat().st_size)


class Page(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [tag] if tag in ("script", "link", "img", "iframe", "object", "use") else []
        self.loads += [name for name, _ in attrs if name in ("src", "href", "onload", "srcset")]


def test_the_picture_loads_nothing_and_shows_everything(
    wheel: Path, tmp_path: Path, invocation: Invocation
) -> None:
    picture = tmp_path / "sizes.html"
    assert call(invocation, "sizes", str(wheel), "--html", str(picture)) == 0
    text = picture.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.loads == []
    assert "url(" not in text
    drawing = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    titles = [str(title.text) for title in drawing.iter("title")]
    assert "torch 2.0 / torch/lib/libx.so / GPU code sm_80: 1.1 kB" in titles
    areas = [float(one.attrib["width"]) * float(one.attrib["height"]) for one in drawing.iter("rect")]
    assert areas[0] == pytest.approx(1200 * 680)


def test_two_subjects_stand_side_by_side(
    wheel: Path, other: Path, tmp_path: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "sizes.html"
    assert call(invocation, "sizes", "--compare", str(wheel), str(other), "--html", str(picture)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert picture.read_text(encoding="utf-8").count("<svg") == 2
    assert any(line.split() == ["Python", "900", "B", "1.5", "kB", "+600", "B"] for line in lines)
    assert call(invocation, "sizes", "--compare", "--json", str(wheel), str(other)) == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["subjects"]
    for what in ("package", "part"):
        rows = [row for row in document["differences"] if row["what"] == what]
        assert sum(row["first"] for row in rows) == first["installed"]
        assert sum(row["difference"] for row in rows) == second["installed"] - first["installed"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("sizes", "missing.whl"),
        ("sizes", "a b c"),
        ("sizes", "torch", "tensorflow"),
        ("sizes", "--compare", "torch"),
        ("sizes", "--python", "3", "torch"),
    ],
)
def test_a_mistake_is_a_sentence_with_a_remedy(
    arguments: tuple[str, ...], invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, *arguments) == 2
    message, remedy = capsys.readouterr().err.splitlines()[:2]
    assert message.startswith("error: ")
    assert remedy.startswith("  ")


def test_a_page_that_cannot_be_written_is_a_sentence(
    wheel: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "sizes", str(wheel), "--html", "/proc/none/x.html") == PreflightError.exit_code
    assert "--html FILE" in capsys.readouterr().err


@pytest.mark.parametrize("octets", [[1], [6, 6, 4, 3, 2, 2, 1], [10**12, 1, 1], [5] * 1000, []])
def test_rectangles_fill_their_area_in_proportion(octets: list[int]) -> None:
    area = Area(x=10, y=20, width=600, height=400)
    found = squarified(octets, area)
    for one, where in zip(octets, found, strict=True):
        assert where.width * where.height == pytest.approx(600 * 400 * one / sum(octets), rel=1e-3, abs=1e-3)
        assert where.x >= 10
        assert where.y >= 20
        assert where.x + where.width <= 610 + 1e-6
        assert where.y + where.height <= 420 + 1e-6
