"""Which addresses of repositories may be asked, and what relative ones mean."""

from __future__ import annotations

import pytest

from groundwork.errors import AuditError
from pin_audit.addresses import Address

_PARENT = Address.parse("https://example.org/owner/name.git")


@pytest.mark.parametrize(
    ("text", "protocol", "host", "name"),
    [
        ("https://github.com/NVIDIA/cutlass", "https", "github.com", "cutlass"),
        ("https://user:secret@example.org:8443/a/b.git/", "https", "example.org", "b"),
        ("http://[::1]:8080/a/b.git", "http", "[::1]", "b"),
        ("git://127.0.0.1:9418/x.git", "git", "127.0.0.1", "x"),
        ("ssh://git@example.org:22/a/b", "ssh", "example.org", "b"),
        ("git+ssh://git@example.org/a/b", "ssh", "example.org", "b"),
        ("git@github.com:google/flatbuffers.git", "ssh", "github.com", "flatbuffers"),
        ("host:path/to/x.git", "ssh", "host", "x"),
        ("file:///srv/git/x.git", "file", "", "x"),
        ("/srv/git/x/.git", "file", "", "x"),
    ],
)
def test_all_forms_of_git_are_understood(text: str, protocol: str, host: str, name: str) -> None:
    found = Address.parse(text)
    assert (found.protocol, found.host, found.name) == (protocol, host, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ext::sh -c touch% /tmp/x",
        "fd::17/x",
        "git-remote-foo::https://example.org/x",
        "--upload-pack=touch /tmp/x",
        "-u./payload",
        "ssh://-oProxyCommand=touch%20x/path",
        "-oProxyCommand=x:path",
        "ssh://-l@example.org/x",
        "git@-oProxyCommand=x:path",
        "example.org:-u./x",
        "ftp://example.org/x",
        "javascript://example.org/%0aalert(1)",
        "https://example.org/a%0a.git",
        "https://example.org/a\nhost=other",
        "https://example.org/\x1b[31mred",
        "https://example.org/a\u202egit.exe",
        "https://example.org/../../x",
        "https://example.org/a/%2e%2e/b",
        "https://example.org/",
        "https:///nohost",
        "https://exa mple.org/x",
        "https://example.org:port/x",
        "file://server/share",
        "https://example.org/" + "a" * 5000,
    ],
)
def test_dangerous_addresses_are_refused(text: str) -> None:
    with pytest.raises(AuditError, match="refused"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "parent", "expected"),
    [
        ("../x.git", "https://example.org/owner/name.git", "https://example.org/owner/x.git"),
        ("../../other/x.git", "https://example.org/owner/name.git/", "https://example.org/other/x.git"),
        ("./x.git", "https://example.org/owner/name", "https://example.org/owner/name/x.git"),
        ("../x.git/", "git@example.org:owner/name.git", "git@example.org:owner/x.git"),
        ("../x.git", "git@example.org:name.git", "git@example.org:x.git"),
        ("../x.git", "git@example.org:/srv/name.git", "git@example.org:/srv/x.git"),
        ("../x.git", "file:///srv/git/name.git", "file:///srv/git/x.git"),
        ("../x.git", "/srv/git/name.git", "/srv/git/x.git"),
        ("https://other.org/x", "git@example.org:a/b", "https://other.org/x"),
        ("/srv/git/x.git", "file:///srv/git/name.git", "/srv/git/x.git"),
    ],
)
def test_submodules_are_found_from_their_parent(text: str, parent: str, expected: str) -> None:
    assert Address.parse(parent).resolve(text).text == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("../../../x.git", "climbs out"),
        ("../../../../../etc/x.git", "climbs out"),
        ("../a/../../x.git", "climbs"),
        ("file:///etc/x.git", "folder of this machine"),
        ("/etc/x.git", "folder of this machine"),
        ("~/x.git", "folder of this machine"),
        ("x.git", "folder of this machine"),
        ("-u./x", "folder of this machine"),
        ("..", "folder of this machine"),
    ],
)
def test_a_remote_parent_reaches_neither_this_machine_nor_beyond_its_host(text: str, reason: str) -> None:
    with pytest.raises(AuditError, match=reason):
        _PARENT.resolve(text)


@pytest.mark.parametrize("text", ["x.git", "~/x.git", "..", "a/b"])
def test_a_local_parent_names_no_folder_of_where_one_happens_to_be(text: str) -> None:
    with pytest.raises(AuditError, match="relative folder"):
        Address.parse("/srv/git/name.git").resolve(text)


def test_ssh_addresses_are_tried_over_https_first() -> None:
    tried = [one.text for one in Address.parse("git@github.com:google/flatbuffers.git").candidates()]
    assert tried == ["https://github.com/google/flatbuffers.git", "git@github.com:google/flatbuffers.git"]
    assert [one.text for one in _PARENT.candidates()] == [_PARENT.text]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://github.com/o/n.git", "https://github.com/o/n/blob/abc/.gitmodules#L3"),
        ("git@github.com:o/n.git", "https://github.com/o/n/blob/abc/.gitmodules#L3"),
        ("https://u:p@gitlab.com/o/n", "https://gitlab.com/o/n/-/blob/abc/.gitmodules#L3"),
        ("https://example.org/o/n", ""),
        ("file:///srv/n.git", ""),
    ],
)
def test_a_person_is_sent_to_a_page(address: str, expected: str) -> None:
    assert Address.parse(address).page("abc", ".gitmodules", 3) == expected
