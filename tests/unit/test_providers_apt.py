"""Reading the machine's own apt configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import ProviderError
from megabuild.providers.debian import apt

_DEB822 = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs:
Suites: bookworm

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example/debian/
Suites: bookworm
  bookworm-updates
Components: main contrib
Trusted: yes
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@pytest.fixture(autouse=True)
def _no_mirror_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEGABUILD_DEBIAN_MIRROR", raising=False)


def _apt(folder: Path, **files: str) -> Path:
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        (folder / "sources.list.d" / name.replace("_", ".")).write_text(text)
    return folder


def test_the_main_archive_is_chosen_with_its_key(tmp_path: Path) -> None:
    lines = apt.debian_lines("trixie", configured=apt.sources(_apt(tmp_path, debian_sources=_DEB822)))
    option = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg trusted=yes]"
    assert lines == [
        f"{kind} {option} http://mirror.example/debian/ trixie main" for kind in ("deb", "deb-src")
    ]


@pytest.mark.parametrize("word", ["no", "No", "false"])
def test_a_mirror_that_is_switched_off_is_not_used(word: str, tmp_path: Path) -> None:
    stanzas = _DEB822.replace("Enabled: no", f"Enabled: {word}")
    first, *_ = apt.debian_lines("trixie", configured=apt.sources(_apt(tmp_path, debian_sources=stanzas)))
    assert "disabled.example" not in first


def test_a_key_in_the_text_of_a_source_is_left_out(tmp_path: Path) -> None:
    """One line cannot hold it."""
    block = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBFit\n"
    stanza = f"Types: deb\nURIs: http://mirror.example/debian\nSuites: x\nComponents: main\n{block}"
    lines = apt.debian_lines("trixie", configured=apt.sources(_apt(tmp_path, debian_sources=stanza)))
    assert lines[0] == "deb http://mirror.example/debian trixie main"


def test_one_line_sources_are_read(tmp_path: Path) -> None:
    text = "# deb http://old.example/debian x main\n"
    text += "deb [arch=amd64 signed-by=/k.gpg trusted=yes] file:/srv/debian sid main # ours\n"
    folder = _apt(tmp_path, a_list=text, b_sources="Types: deb\n")
    for path in (folder / "sources.list.d").iterdir():  # comments may have any encoding
        path.write_bytes(b"# \xff\n" + path.read_bytes())
    lines = apt.debian_lines("trixie", configured=apt.sources(folder))
    assert lines[0] == "deb [signed-by=/k.gpg trusted=yes] file:/srv/debian trixie main"


def test_other_projects_are_no_debian_mirror(tmp_path: Path) -> None:
    text = "deb http://archive.example/ubuntu noble main\ndeb http://other.example/apt stable main\n"
    text += "deb http://packages.example/debian/12/prod bookworm main\ndeb http://x.example/debian-ports sid main\n"
    text += "deb http://mirror.example/debian trixie contrib\ndeb http://mirror.example/debian trixie-security main\n"
    with pytest.raises(ProviderError, match="Debian") as raised:
        apt.debian_lines("trixie", configured=apt.sources(_apt(tmp_path, a_list=text)))
    assert "MEGABUILD_DEBIAN_MIRROR" in raised.value.remedy


def test_a_variable_names_the_mirror_where_apt_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://chosen.example/debian")
    # CUDA is in non-free; nobody needs its sources
    assert apt.debian_lines("trixie", ("contrib", "non-free"), configured=iter(())) == [
        "deb http://chosen.example/debian trixie main contrib non-free",
        "deb-src http://chosen.example/debian trixie main",
    ]


def test_how_this_machine_reaches_its_mirrors_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        'APT "";',
        'Acquire::http::Proxy "http://p:1";',
        'Acquire::Retries "3";',
        'Acquire::https::Proxy "";',
    ]
    (tmp_path / "apt-config").write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    (tmp_path / "apt-config").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert apt.options() == lines[1:3]
