"""CMakeCache.txt by key: what is read, what may be written, and that nothing else changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from cmake_python_swap import __main__ as command_line
from cmake_python_swap import atomic_file
from cmake_python_swap.__main__ import main
from cmake_python_swap.cmake_cache import CacheError, CMakeCache, load, save

SMALL = """# This is the CMakeCache file.

########################
# EXTERNAL cache entries
########################

//A first line of help
// and a second
ALPHA:STRING=one two

//A switch
SWITCH:BOOL=ON

//Given without a type
LOOSE:UNINITIALIZED=x

//A quoted name
"with:colon":PATH=/a;/b

//Outer blanks
BLANKS:STRING='  kept '

//The project's
PROJECT_VERSION:STATIC=1.0

########################
# INTERNAL cache entries
########################

//ADVANCED property for variable: ALPHA
ALPHA-ADVANCED:INTERNAL=1
//STRINGS property for variable: ALPHA
ALPHA-STRINGS:INTERNAL=one;two
EMPTY:INTERNAL=
"""


@pytest.fixture
def build_dir(tmp_path: Path) -> Path:
    (tmp_path / "CMakeCache.txt").write_text(SMALL)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        SMALL.replace("\n", "\r\n"),
        SMALL.rstrip("\n"),
        SMALL + "\n\n\n",
        "A:STRING=form\x0cfeed\u2028separator\n",
        "A:STRING=tab at the end\t\nB:BOOL=OFF",
    ],
)
def test_any_cache_comes_back_byte_for_byte(text: str) -> None:
    assert str(CMakeCache.parse(text)) == text


@pytest.mark.parametrize("python", ["311", "312"])
def test_random_sets_and_resets_leave_the_bytes_as_they_were(python: str, repository: Path) -> None:
    real_cache = repository / f"tests/data/cmake-caches/pytorch-2.6.0.py{python}.CMakeCache.txt"
    dice = random.Random(7)
    cache = load(real_cache)
    assert str(cache).encode() == real_cache.read_bytes()
    names = [entry.name for entry in cache if entry.type in ("STRING", "PATH", "INTERNAL", "UNINITIALIZED")]
    for name in dice.sample(names, 60):
        old = cache[name].value
        cache.set(name, "".join(dice.choices(" =:;'\"/$\\#abc", k=12)))
        assert CMakeCache.parse(str(cache))[name].value == cache[name].value
        cache.set(name, old)
    assert str(cache).encode() == real_cache.read_bytes()


def test_entries_have_type_and_value_which_is_quoted_where_cmake_would_trim_it() -> None:
    cache = CMakeCache.parse(SMALL)
    alpha = cache["ALPHA"]
    assert (alpha.type, alpha.value) == ("STRING", "one two")
    assert cache["with:colon"].value == "/a;/b"
    assert cache["BLANKS"].value == "  kept "
    assert cache["EMPTY"].value == ""
    for value in (" leading", "trailing ", "'quoted'", "", " ", "'", "it's"):
        cache.set("ALPHA", value)
        assert CMakeCache.parse(str(cache))["ALPHA"].value == value
    names = [entry.name for entry in cache]
    assert names == ["ALPHA", "SWITCH", "LOOSE", "with:colon", "BLANKS", "PROJECT_VERSION", "EMPTY"]


def test_an_untyped_entry_takes_a_type_and_others_take_only_what_fits_theirs() -> None:
    cache = CMakeCache.parse(SMALL)
    cache.set("LOOSE", "/x", "PATH")
    assert cache["LOOSE"].type == "PATH"
    with pytest.raises(CacheError, match=r"ALPHA .*STRING.*PATH"):
        cache.set("ALPHA", "/x", "PATH")
    with pytest.raises(CacheError, match="STATIC"):
        cache.set("PROJECT_VERSION", "2")
    for value in ("a\nB:STRING=injected", "a\r", "nul\0"):
        with pytest.raises(CacheError, match="line break"):
            cache.set("ALPHA", value)
    for value in ("OFF", "true", "0", "MKL-NOTFOUND"):
        cache.set("SWITCH", value)
    with pytest.raises(CacheError, match=r"SWITCH .*BOOL"):
        cache.set("SWITCH", "maybe")


def test_added_entries_go_to_their_section_and_can_be_removed_again() -> None:
    cache = CMakeCache.parse(SMALL)
    cache.add("NEW", "1", "STRING", "why it is here")
    cache.add("_NEW", "2", "INTERNAL")
    text = str(cache)
    assert text.index("NEW:STRING=1") < text.index("# INTERNAL cache entries") < text.index("_NEW:INTERNAL=2")
    assert "//why it is here\nNEW:STRING=1" in text
    cache.remove("NEW")
    cache.remove("_NEW")
    assert str(cache) == SMALL
    cache.remove("ALPHA")
    assert "ALPHA" not in str(cache), "its properties, too"
    assert "first line of help" not in str(cache)
    with pytest.raises(CacheError, match="ALPHA"):
        cache.remove("ALPHA")
    for type in ("", "TEXT", "STRING=x\nB:STRING"):
        with pytest.raises(CacheError, match="not a type"):
            cache.add("NEW", "1", type)
    for name in ("", 'a"b', "a\nB"):
        with pytest.raises(CacheError, match="not a valid name"):
            cache.add(name, "1", "STRING")
    cut = CMakeCache.parse("FIRST:STRING=1")  # an editor may leave out the last line break
    cut.add("NEW", "2", "STRING", "help")
    assert str(cut) == "FIRST:STRING=1\n//help\nNEW:STRING=2\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no cache entries"),
        ("A:STRING=1\ngarbage\n", "line 2: not a cache entry: 'garbage'"),
        ("A:NOTYPE=1\n", "line 1: not a cache entry"),
        ("A:STRING=1\n\nA:STRING=2\n", "line 3: A was already set in line 1"),
    ],
)
def test_a_broken_cache_is_named_with_the_line(text: str, complaint: str) -> None:
    with pytest.raises(CacheError, match=complaint):
        CMakeCache.parse(text)


def test_saving_keeps_the_first_original_the_mode_and_bytes_that_are_no_utf8(build_dir: Path) -> None:
    path, small = build_dir / "CMakeCache.txt", SMALL.encode() + b"DIR:PATH=/opt/caf\xe9\n"
    path.write_bytes(small)
    path.chmod(0o640)
    for value in ("first", "second"):
        cache = load(path)
        cache.set("ALPHA", value)
        save(cache, path)
    assert (build_dir / "CMakeCache.txt.orig").read_bytes() == small
    assert path.read_bytes() == small.replace(b"ALPHA:STRING=one two", b"ALPHA:STRING=second")
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in build_dir.iterdir()) == ["CMakeCache.txt", "CMakeCache.txt.orig"]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    build_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = build_dir / "CMakeCache.txt"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_file.write_atomically(path, b"half")
    assert path.read_text() == SMALL
    assert os.listdir(build_dir) == ["CMakeCache.txt"]


def test_the_whole_content_is_on_the_disk_before_it_replaces_the_former(
    build_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, an empty cache would be configured from scratch."""
    path = build_dir / "CMakeCache.txt"
    synced: list[tuple[int, str]] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_size, path.read_text())))
    atomic_file.write_atomically(path, b"half")
    assert (synced, path.read_text()) == ([(4, SMALL)], "half")


def test_the_command_line_sets_all_or_nothing(build_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["set", str(build_dir), "ALPHA=three", "SWITCH:BOOL=OFF"]) == 0
    assert main(["get", str(build_dir), "ALPHA", "SWITCH"]) == 0
    assert capsys.readouterr().out == "three\nOFF\n"
    assert main(["set", str(build_dir), "LOOSE:PATH=/y", "ALPHA:PATH=/y"]) == 1
    assert "ALPHA is of type STRING" in capsys.readouterr().err
    assert main(["set", str(build_dir), "ALPHA=four", "MISSING=1"]) == 1
    shown = capsys.readouterr().err
    assert ("MISSING" in shown, "--new" in shown) == (True, True)
    cache = load(build_dir / "CMakeCache.txt")
    assert (cache["ALPHA"].value, cache["LOOSE"].type) == ("three", "UNINITIALIZED")
    assert main(["set", str(build_dir), "--new", "UNTYPED=1"]) == 0
    assert load(build_dir / "CMakeCache.txt")["UNTYPED"].type == "UNINITIALIZED"
    assert main(["set", str(build_dir), "--new", "MISSING:PATH=/x=y:z"]) == 0
    assert load(build_dir / "CMakeCache.txt")["MISSING"].value == "/x=y:z"
    for assignment in ("", "no value", "A:lower=1", "=x"):
        assert main(["set", str(build_dir), assignment]) == 1
    assert "NAME[:TYPE]=VALUE" in capsys.readouterr().err
    folder = Path(command_line.__file__).parent  # as the recipe calls it, which has nothing installed
    nowhere = [sys.executable, "-I", str(folder), "get", str(build_dir / "nowhere")]
    result = subprocess.run(nowhere, capture_output=True, text=True)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1), "no traceback"
