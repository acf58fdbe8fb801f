"""Links between Markdown files, and paths of pages in text and code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (
    "contrib",
    "docs",
    "recipe",
    "rehearsal",
    "scripts",
    "src",
    "benchmarks",
    "tests/unit",
    "tests/integration",
)
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_SCRIPT = re.compile(r"(?<![\w./-])[\w/-]+\.(?:py|sh)\b")
_PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.(?:md|svg)\b")


def _files(*endings: str) -> list[Path]:
    below = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in (*ROOT.glob("*"), *below) if path.suffix in endings)


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: list[str] = []
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def dead(page: Path, text: str) -> Iterator[str]:
    """Yield the links of a page to files, or headings in them, that do not exist."""
    for target in _LINK.findall(_CODE.sub("", _FENCED.sub("", text))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = unquote(target).partition("#")
        place = page.parent / path
        content = place.read_text(encoding="utf-8") if place.suffix == ".md" and place.exists() else text
        if not place.exists() or (anchor and anchor not in anchors(content)):
            yield target


@pytest.mark.parametrize("page", _files(".md"), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    assert list(dead(page, page.read_text(encoding="utf-8"))) == []


def test_every_mentioned_page_exists() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {page}"
        for path in _files(".md", ".py", ".sh", ".yaml", ".patch", ".Containerfile")
        for page in _PAGE.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / page).exists()
    }
    assert missing == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_script_that_a_guide_names_exists(page: str) -> None:
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in _files(".py", ".sh")]
    named = set(_SCRIPT.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 5
    named = {name for name in named if not (ROOT / name).is_file()}
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in there)] == []


def test_every_search_in_the_guide_finds_lines() -> None:
    searches = re.findall(r"`(grep -r[^`]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert searches
    for search in searches:
        done = subprocess.run(["sh", "-c", search], cwd=ROOT, capture_output=True, check=False)
        assert done.stdout, search


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# It's `one`, or two\n## Same\n## Same\n")
    good = "[a](other.md) [b](other.md#its-one-or-two) [c](other.md#same-1) [d](#top) `[e](no.md)` [f](http://x/y)"
    bad = "[a](gone.md) [b](other.md#same-2) [c](#bottom) ![d](gone.svg) [e](gone.md#top)"
    assert list(dead(page, f"# Top\n{good}\n```\n[a](gone.md)\n```\n")) == []
    missing = "gone.md other.md#same-2 #bottom gone.svg gone.md#top"
    assert list(dead(page, f"# Top\n{bad}\n")) == missing.split()
