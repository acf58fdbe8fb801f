"""Logs tell everything but secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groundwork.redact import Mask
from megabuild.run.logfile import LogFile


def test_values_of_variables_that_sound_secret_are_masked() -> None:
    mask = Mask(
        {"ANACONDA_TOKEN": "tk-123456", "MY_api_key": "abcdefgh", "HOME": "/home/me", "PASSWORD": "no"}
    )
    assert mask("push tk-123456 as abcdefgh from /home/me, no") == "push *** as *** from /home/me, no"


def test_a_secret_inside_another_does_not_show_its_rest() -> None:
    assert Mask({"A_TOKEN": "secret", "B_TOKEN": "secret-and-more"})("x secret-and-more y") == "x *** y"


def test_a_file_that_holds_a_secret_is_no_secret() -> None:
    assert Mask({"SSH_KEY": "/home/me/.ssh/id"})("reading /home/me/.ssh/id") == "reading /home/me/.ssh/id"


def test_names_and_passwords_in_urls_are_masked() -> None:
    mask = Mask({})
    assert mask("https://me:pw@host.example/t/x and https://host.example/a@b") == (
        "https://***@host.example/t/x and https://host.example/a@b"
    )
    assert mask("mail me@host.example") == "mail me@host.example"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:p@ss@host.example/x", "https://***@host.example/x"),
        ("https://host.example/t/tk-12/conda-forge", "https://host.example/t/***/conda-forge"),
        ("/work/t/tree/a.o https://host.example/x", "/work/t/tree/a.o https://host.example/x"),
        (
            "https://host.example/x?a=1&access_token=abc&b=2",
            "https://host.example/x?a=1&access_token=***&b=2",
        ),
        ("GET /x?sig=abc HTTP/1.1", "GET /x?sig=*** HTTP/1.1"),
        ('"https://me:pw@host.example/x","a@b"', '"https://***@host.example/x","a@b"'),
    ],
)
def test_what_gives_access_in_an_address_is_masked(text: str, shown: str) -> None:
    assert Mask({})(text) == shown


@pytest.mark.parametrize("name", ["DB_PASS", "GH_PAT", "BASIC_AUTH", "AWS_CREDENTIALS", "MYSQL_PWD"])
def test_further_names_sound_secret(name: str) -> None:
    assert Mask({name: "abc/def+1"})("use abc/def+1 or abc%2Fdef%2B1") == "use *** or ***"


def test_names_that_only_look_secret_are_none() -> None:
    harmless = {"PATH": "one:two", "GIT_AUTHOR_NAME": "somebody", "PWD": "folder", "COMPAT": "matters"}
    assert Mask(harmless)("one:two somebody folder matters") == "one:two somebody folder matters"


def test_every_line_of_a_secret_is_masked() -> None:
    mask = Mask({"SIGNING_KEY": "--BEGIN--\nabcdefgh\nijklmnop\n"})
    assert mask("found abcdefgh") == "found ***"
    assert mask("found ijklmnop here") == "found *** here"


def test_every_line_has_its_time_and_source_and_latest_points_to_the_last_log(tmp_path: Path) -> None:
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as first:
        assert first.write("staging", "[1/2 1s] x") == "[1/2 1s] x"
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as second:
        second.write("driver", "again")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z staging +\[1/2 1s\] x\n", first.path.read_text()
    )
    assert (tmp_path / "latest.log").resolve() == second.path
    assert first.path.name.startswith("linux_64_cpu-")


def test_a_log_is_readable_while_it_is_written(tmp_path: Path) -> None:
    with LogFile(tmp_path, "x", Mask({})) as log:
        log.write("driver", "here")
        assert "here" in log.path.read_text()
