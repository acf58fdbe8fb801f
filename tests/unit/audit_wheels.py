"""Wheels, source archives and index pages for the audit's tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from audit_site import Answer, Site, serving

from groundwork import pip_settings
from pin_audit.facts import SourceOutcome

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


#: An attribute of a link: the metadata lies beside the wheel.
BESIDE = 'data-core-metadata="true"'


def wheel(text: bytes, *, entries: int = 3, filler: int = 1000) -> bytes:
    """Return a wheel with a part that nobody needs, and so many files."""
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


def configured_by_the_test(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace this machine's configuration of pip by one that a test writes."""
    said = SimpleNamespace(text="", help="")
    answers = {"config": lambda: said.text, "download": lambda: said.help}
    monkeypatch.setattr(pip_settings, "ask", lambda pip, environ, *arguments: answers[arguments[0]]())
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


def values(outcome: SourceOutcome) -> list[tuple[str, str, str]]:
    return [(one.name, one.value, one.holds.words(())) for one in outcome.facts if one.name != "python"]
