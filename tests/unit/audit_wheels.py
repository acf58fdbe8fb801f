"""Wheels, source archives and index pages for the audit's tests."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from audit_site import (
    Answer,
    Site,
    serving,
)

from megabuild.audit.model import Outcome
from megabuild.network.simple import configured as pip_configuration

REQUIRES = (
    "numpy>=1.9,<3",
    "typing_extensions",
    'triton==3.7.1; platform_system == "Linux"',
    "pyyaml; extra == 'y'",
)
LINUX = "thing-1.2-cp312-cp312-manylinux_2_28_x86_64.whl"
MAC = "thing-1.2-cp312-cp312-macosx_14_0_arm64.whl"


EXPECTED = [
    ("numpy", "<3,>=1.9", ""),
    ("typing-extensions", "*", ""),
    ("triton", "==3.7.1", 'platform_system == "Linux"'),
    ("pyyaml", "*", 'extra == "y"'),
]


def metadata(*requires: str, name: str = "thing", version: str = "1.2") -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "\n".join([*lines, "", "Requires-Dist: not-in-the-head", ""]).encode()


def wheel(text: bytes, *, entries: int = 3, filler: int = 400_000) -> bytes:
    """Return a wheel with a large part that nobody needs, and so many files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("thing/large.so"), bytes(filler), zipfile.ZIP_STORED)
        for number in range(entries):
            archive.writestr(f"thing/a_rather_long_name_of_a_module_{number}.py", b"")
        archive.writestr("thing-1.2.dist-info/METADATA", text)
        archive.writestr("thing-1.2.dist-info/RECORD", b"")
    return stream.getvalue()


def html(names: Mapping[str, str], base: str = "/files/") -> bytes:
    links = "".join(
        f'<a href="{base}{name}" {attributes}>{name}</a><br>' for name, attributes in names.items()
    )
    return f"<!DOCTYPE html><html><body>{links}</body></html>".encode()


def source_archive(requires: str, *, head: str = "", name: str = "thing") -> bytes:
    stream = io.BytesIO()
    info = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n{head}\n"
    files = {
        "thing-1.2/PKG-INFO": info,
        "thing-1.2/thing.egg-info/requires.txt": requires,
        "thing-1.2/setup.py": "",
    }
    with tarfile.open(fileobj=stream, mode="w:gz") as packed:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


REQUIRES_TXT = (
    'scipy>=1\n\n[:python_version < "3.11"]\ntomli\n\n[test]\npytest\n\n[test:os_name == "nt"]\ncolorama\n'
)


def configured_by_the_test(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace this machine's configuration of pip by one that a test writes."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    said = SimpleNamespace(text="", help="")
    answers = {"config": lambda: said.text, "download": lambda: said.help}
    monkeypatch.setattr(pip_configuration, "_said", lambda environment, *arguments: answers[arguments[0]]())
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "CERT", "NO_INDEX", "PROXY"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return said


@contextmanager
def index(pip: SimpleNamespace, page: bytes | Answer, **answers: bytes | Answer) -> Iterator[Site]:
    """Serve a page of the project and files, and let pip's configuration lead there."""
    with serving(
        {"/simple/thing/": page, **{f"/files/{name}": body for name, body in answers.items()}}
    ) as site:
        pip.text = f"global.index-url='{site.url}/simple/'\n"
        yield site


def values(outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(finding.name, finding.value, finding.scope) for finding in outcome.findings]
