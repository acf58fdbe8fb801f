"""Which files count: by pip's configuration, versions, source archives, and PyG's own index."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from audit_site import (
    Answer,
    config,
    request,
    services,
    serving,
)
from audit_wheels import (
    EXPECTED,
    LINUX,
    REQUIRES,
    REQUIRES_TXT,
    configured_by_the_test,
    html,
    index,
    metadata,
    source_archive,
    values,
    wheel,
)

from megabuild.audit.sources import wheel_metadata
from megabuild.audit.sources.wheel_metadata import newest_version, read
from megabuild.errors import AuditError
from megabuild.network.simple.configured import configured
from megabuild.network.simple.page import files


@pytest.fixture(autouse=True)
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return configured_by_the_test(monkeypatch)


NEWEST = {
    "thing-1.9-py3-none-any.whl": "",
    "thing-1.10-py3-none-any.whl": "",
    "thing-1.11-py3-none-any.whl": 'data-yanked="broken"',
    "thing-2.0rc1-py3-none-any.whl": "",
    "thing-3.0.tar.gz": "",
    "other-4.0-py3-none-any.whl": "",
}


def test_newest_is_neither_yanked_nor_a_prerelease(pip: SimpleNamespace, tmp_path: Path) -> None:
    text = metadata("numpy", version="1.10")
    with index(pip, html(NEWEST), **{"thing-1.10-py3-none-any.whl": wheel(text)}):
        outcome = read(request(services(tmp_path), version="newest"))
        assert newest_version("thing", services(tmp_path)) == "1.10"
    assert values(outcome) == [("numpy", "*", "")]


def test_a_version_without_a_wheel_names_the_newest(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, html(NEWEST)):
        outcome = read(request(services(tmp_path), version="9.9"))
    assert "no wheel of version 9.9; the newest is 1.10" in outcome.trouble


def test_a_project_that_is_nowhere_is_told(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, lambda handler: handler.reply(404, b"")):
        assert "has thing" in read(request(services(tmp_path))).trouble


def test_a_project_with_source_archives_only_has_its_requirements_from_there(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    content = source_archive(REQUIRES_TXT)
    hashed = html({"thing-1.2.tar.gz": ""}).replace(
        b'.tar.gz"', f'.tar.gz#sha256={hashlib.sha256(content).hexdigest()}"'.encode()
    )
    with index(pip, hashed, **{"thing-1.2.tar.gz": content}):
        outcome = read(request(services(tmp_path), version="newest"))
    assert values(outcome) == [
        ("scipy", ">=1", ""),
        ("tomli", "*", 'python_version < "3.11"'),
        ("pytest", "*", 'extra == "test"'),
        ("colorama", "*", 'os_name == "nt" and extra == "test"'),
    ]
    assert outcome.findings[1].origin.line == 4
    assert outcome.findings[0].origin.file.endswith("thing.egg-info/requires.txt")
    assert not outcome.trouble


def test_requirements_in_pkg_info_come_before_those_beside_it(pip: SimpleNamespace, tmp_path: Path) -> None:
    content = source_archive(REQUIRES_TXT, head="Requires-Dist: numpy")
    with index(pip, html({"thing-1.2.tar.gz": ""}), **{"thing-1.2.tar.gz": content}):
        assert values(read(request(services(tmp_path)))) == [("numpy", "*", "")]


def test_what_is_not_on_pypi_is_looked_for_on_the_index_of_pyg(
    pip: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "thing-1.2+pt213cpu-cp310-abi3-manylinux_2_28_x86_64.whl"
    quoted = name.replace("+", "%2B")
    answers: dict[str, bytes | Answer] = {
        "/torch-2.13.0%2Bcpu.html": html({quoted: ""}, base="torch-2.13.0%2Bcpu/"),
        f"/torch-2.13.0%2Bcpu/{quoted}": wheel(metadata("numpy", version="1.2+pt213cpu")),
    }
    with serving(answers) as site:
        monkeypatch.setattr(wheel_metadata, "INDEX", site.url)
        outcome = read(request(services(tmp_path), wheel="", configs=(config("linux-64"),)))
    assert values(outcome) == [("numpy", "*", "")]
    assert outcome.findings[0].origin.url == f"{site.url}/torch-2.13.0%2Bcpu.html"


def test_a_second_index_helps_out_and_the_trouble_of_the_first_is_told(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata(*REQUIRES))}) as site:
        pip.text = f"global.index-url='{site.url}/down'\nglobal.extra-index-url='{site.url}/simple'\n"
        site.answers["/down/thing/"] = lambda handler: handler.reply(500, b"")
        outcome = read(request(services(tmp_path)))
    assert values(outcome) == EXPECTED
    assert "HTTP status 500" in outcome.trouble


def test_a_folder_of_wheels_and_an_index_of_files_serve(pip: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / LINUX).write_bytes(wheel(metadata(*REQUIRES)))
    pip.text = f"global.no-index='1'\nglobal.find-links='{tmp_path / 'links'}'\n"
    assert values(read(request(services(tmp_path / "cache")))) == EXPECTED
    page = tmp_path / "simple" / "thing" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_bytes(html({LINUX: ""}, base="../../links/"))
    pip.text = f"global.index-url='{(tmp_path / 'simple').as_uri()}'\n"
    assert values(read(request(services(tmp_path / "cache", offline=True)))) == EXPECTED


def test_pips_environment_wins_over_its_files(pip: SimpleNamespace) -> None:
    pip.text = (
        "global.index-url='https://a/simple'\nglobal.extra-index-url='https://b/simple\\nhttps://c/simple/'\n"
        "install.index-url='https://d/simple'\nglobal.proxy='proxy:3128'\nnonsense\nglobal.odd=not quoted\n"
    )
    found = configured({})
    assert found.indexes == ("https://d/simple", "https://b/simple", "https://c/simple")
    assert found.proxy == "http://proxy:3128"
    assert configured({"PIP_INDEX_URL": "https://e/simple"}).indexes[0] == "https://e/simple"
    assert configured({"PIP_NO_INDEX": "1"}).indexes == ()
    pip.text = ""
    pip.help = "  -i, --index-url <url>   Base URL of the index (default\n      https://f/simple). This should point to"
    assert configured({}).indexes == ("https://f/simple",)
    assert configured({"PIP_EXTRA_INDEX_URL": "https://g/simple"}).indexes[1] == "https://g/simple"
    pip.help = ""
    assert configured({}).indexes == ()


def test_pip_is_asked_for_its_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    pytest.importorskip("pip")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://user:s3cret@example.org/simple\n")
    found = configured({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), "PATH": ""})
    assert found.indexes[0] == "https://user:s3cret@example.org/simple"
    nothing = {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path), "PATH": ""}
    (default,) = configured(nothing).indexes
    assert re.fullmatch(r"https://\S+/simple", default)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert configured(nothing).indexes == ()


def test_a_page_may_have_a_base_and_odd_links() -> None:
    page = (
        b'<head><base href="https://files.example.org/"></head><a>none</a><a href="http://[broken">x</a>'
        b'<a href="a/thing-1.2%2Bcpu-py3-none-any.whl#sha256=' + b"A" * 64 + b'" data-core-metadata>x</a>'
    )
    (file,) = (file for file in files(page, "https://index.example.org/simple/thing/") if file.name)
    assert file.name == "thing-1.2+cpu-py3-none-any.whl"
    assert file.url.startswith("https://files.example.org/a/thing")
    assert file.sha256 == "a" * 64
    assert file.metadata
    with pytest.raises(AuditError, match="no page"):
        files(b"plain text", "https://index.example.org/")
