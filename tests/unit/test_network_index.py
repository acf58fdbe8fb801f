"""What a page of an index says of its files, which of several wheels is the best, and who gets addresses."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from packaging.tags import parse_tag
from packaging.version import Version
from small_files import write

from groundwork import files, pip_settings
from groundwork.errors import ProviderError
from groundwork.network import resolver, wheel_contents
from groundwork.network.client import Answer, NetworkError, NotFound
from groundwork.network.index import Configured, File, best_first, configured, linked, links, with_user
from groundwork.network.resolver import Target
from groundwork.network.wheel_contents import Contents, RemoteFile, metadata_beside, read_local

WHEEL = "a_b-1.0-py3-none-any.whl"


def test_a_page_says_of_each_file_what_its_link_says() -> None:
    page = f"""<html><head><base href="https://files.example/x/"></head><body>
        <a href="{WHEEL}#sha256={"AB" * 32}" data-yanked>a</a> <a href="../a_b-1.0.tar.gz">b</a> <a href="c.txt">c</a>
        """
    wheel = File(
        name=WHEEL, project="a-b", version=Version("1.0"), url=f"https://files.example/x/{WHEEL}",
        tags=parse_tag("py3-none-any"), sha256="ab" * 32, yanked=True,
    )  # fmt: skip
    archive = File(
        name="a_b-1.0.tar.gz",
        project="a-b",
        version=wheel.version,
        url="https://files.example/a_b-1.0.tar.gz",
    )
    assert links(page, "https://index.example/simple/a-b/") == (wheel, archive)


@pytest.mark.parametrize(
    ("core", "former", "expected"),
    [
        (None, None, (False, "")),
        ("true", None, (True, "")),
        ("false", "sha256=" + "b" * 64, (False, "")),
        ("sha256=" + "a" * 64, "sha256=" + "b" * 64, (True, "a" * 64)),
        (None, "sha256=" + "b" * 64, (True, "b" * 64)),
    ],
)
def test_metadata_are_at_the_index_as_its_newer_attribute_says(
    core: str | None, former: str | None, expected: tuple[bool, str]
) -> None:
    attributes = {"data-core-metadata": core, "data-dist-info-metadata": former}
    file = linked(f"https://host/{WHEEL}", {name: value for name, value in attributes.items() if value})
    assert file is not None
    assert (file.metadata, file.metadata_sha256) == expected


@pytest.mark.parametrize(
    ("python", "machine", "expected"),
    [
        ("3.13", "x86_64", ["10-py3-none-any", "2-cp313-cp313-manylinux_2_28_x86_64",
                            "2-cp313-cp313-manylinux_2_17_x86_64", "2-py3-none-any"]),
        ("3.13t", "x86_64", ["10-py3-none-any", "2-cp313-cp313t-manylinux_2_17_x86_64", "2-py3-none-any"]),
        ("3.13", "aarch64", ["10-py3-none-any", "2-cp313-cp313-manylinux_2_28_aarch64",
                             "2-cp313-cp313-manylinux_2_17_aarch64", "2-py3-none-any"]),
    ],
)  # fmt: skip
def test_the_best_wheel_is_the_newest_and_then_the_most_specific(
    python: str, machine: str, expected: list[str]
) -> None:
    names = ["2-py3-none-any", "10-py3-none-any"]
    for glibc in (17, 28):
        names += [f"2-cp313-cp313-manylinux_2_{glibc}_{each}" for each in ("x86_64", "aarch64")]
    names += ["2-cp313-cp313t-manylinux_2_17_x86_64"]
    offered = [linked(f"https://host/a-{name}.whl", {}) for name in names]
    target = Target(version="3.13.1", machine=machine)
    found = best_first([file for file in offered if file], python, target.platforms)
    assert [file.name.removeprefix("a-").removesuffix(".whl") for file in found] == expected


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://host/a", "ann:hunter2@host"),
        ("http://host/a", "host"),
        ("https://host:8443/a", "host:8443"),
        ("https://other/a", "other"),
    ],
)
def test_credentials_are_sent_to_the_server_of_their_index_alone(url: str, host: str) -> None:
    expected = url.replace(url.split("/")[2], host)
    assert with_user(url, "https://ann:hunter2@host/simple") == expected
    assert with_user(url, "https://host/simple") == url


def test_pip_s_configuration_has_its_own_index_and_certificates_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "own.pem")
    common = write(tmp_path / "common.pem")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(common))
    listed = (
        "global.extra-index-url='https://b.example https://c.example'\nglobal.index-url='https://a.example'\n"
    )
    for text, certificates in ((listed, common), (f"{listed}global.cert='{own}'\n", own)):
        monkeypatch.setattr(pip_settings, "ask", lambda *_, text=text: text)
        monkeypatch.setenv("ASKED_FOR", text)  # answers are kept by environment
        found = configured()
        assert found.indexes == ("https://a.example", "https://b.example", "https://c.example")
        assert found.certificates == certificates


def test_uv_gets_pip_s_indexes_in_their_order_links_proxy_and_certificates(tmp_path: Path) -> None:
    """Of its indexes, uv asks the default one last."""
    where = Configured(
        indexes=("https://first.example", "https://next.example", "https://last.example"),
        links=(str(tmp_path), str(tmp_path / "missing"), "https://page.example/a,b"),
        certificates=tmp_path / "ca.pem", proxy="http://proxy.example",
    )  # fmt: skip
    environ = resolver._environment(where)
    expected = {
        "UV_INDEX": "https://first.example https://next.example", "UV_DEFAULT_INDEX": "https://last.example",
        "UV_FIND_LINKS": f"https://page.example/a%2Cb,{tmp_path.as_uri()}", "SSL_CERT_FILE": f"{tmp_path}/ca.pem",
    }  # fmt: skip
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        expected |= {name: where.proxy, name.lower(): where.proxy}
    assert {name: environ.get(name) for name in expected} == expected


def test_a_resolved_wheel_has_its_hash_and_the_credentials_of_its_index() -> None:
    """uv writes addresses without credentials."""
    where = Configured(indexes=("https://other.example/simple", "https://ann:hunter2@host.example/simple"))
    offers = [
        {"url": f"https://host.example/a-1-{tags}.whl", "hashes": {"sha256": digit * 64}}
        for tags, digit in (("py3-none-any", "1"), ("cp313-cp313-manylinux_2_17_aarch64", "2"))
    ]
    file = resolver._best(offers, Target(version="3.13.1", machine="aarch64"), where)
    assert (file.url, file.sha256) == (
        "https://ann:hunter2@host.example/a-1-cp313-cp313-manylinux_2_17_aarch64.whl",
        "2" * 64,
    )


@pytest.mark.parametrize(
    ("error", "unreachable"),
    [
        (NotFound("not found"), ["https://page.example"]),
        (NetworkError("no answer"), ["https://index.example", "https://page.example"]),
    ],
)
def test_an_index_without_a_project_is_reachable_but_a_page_of_links_must_exist(
    error: NetworkError, unreachable: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(address: str, _: object) -> None:
        asked.append(address)
        raise error

    monkeypatch.setattr(resolver, "listed", refuse)
    where = Configured(indexes=("https://index.example",), links=("https://page.example",))
    assert list(resolver._unreachable(where, "torch")) == unreachable
    assert asked == ["https://index.example/torch/", "https://page.example"]


def test_metadata_are_next_to_a_wheel_whose_address_has_a_query() -> None:
    asked: list[str] = []

    def get(url: str, **_: object) -> Answer:
        asked.append(url)
        return Answer(url=url, body=b"Name: a")

    file = linked(f"https://host/{WHEEL}?signature=1#sha256=0", {})
    assert file is not None
    assert metadata_beside(cast(Any, SimpleNamespace(get=get)), file) == b"Name: a"
    assert asked == [f"https://host/{WHEEL}.metadata?signature=1"]


def test_a_wheel_has_one_metadata_only(tmp_path: Path) -> None:
    for number, folders in enumerate((["a-1"], ["a-1", "a-2"], [])):
        path = tmp_path / f"{number}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for folder in folders:
                archive.writestr(f"{folder}.dist-info/METADATA", "Name: a")
        with nullcontext() if number == 0 else pytest.raises(ValueError, match="not exactly one METADATA"):
            assert read_local(path).metadata == "Name: a"


def test_a_local_wheel_is_the_one_that_its_page_means(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a_b-1.0.dist-info/METADATA", "Name: a_b")
    digest = files.sha256(path)
    contents = Contents(Configured(), tmp_path / "cache")
    for fragment in ("", f"#sha256={digest}"):
        file = linked(path.as_uri() + fragment, {})
        assert file is not None
        assert contents.of(file).sha256 == digest
    other = linked(f"{path.as_uri()}#sha256={'0' * 64}", {})
    assert other is not None
    with pytest.raises(ProviderError, match=f"broken wheel: sha256 is {digest}, the index says 000"):
        contents.of(other)


def test_a_wheel_is_read_by_a_limited_number_of_bytes_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bytes(500_000)

    def get(url: str, *, headers: Mapping[str, str], **_: object) -> Answer:
        start, end = map(int, headers["Range"].removeprefix("bytes=").split("-"))
        answered = {"content-range": f"bytes {start}-{end}/{len(whole)}"}
        return Answer(url=url, body=whole[start : end + 1], headers=answered)

    monkeypatch.setattr(wheel_contents, "_MOST", 150_000)
    remote = RemoteFile(cast(Any, SimpleNamespace(get=get)), "https://host/a.whl")
    assert remote.read(100) == bytes(100)
    remote.seek(100_000)
    with pytest.raises(ValueError, match="needs more than 150000 bytes"):
        remote.read(100)
