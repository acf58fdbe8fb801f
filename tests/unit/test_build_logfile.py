"""Logs tell everything but secrets."""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from groundwork import redact
from groundwork.redact import Mask
from megabuild.run.logfile import LogFile
from megabuild.status.status import logger


@pytest.mark.parametrize(
    ("variables", "text", "shown"),
    [
        ({"ANACONDA_TOKEN": "tk-123456", "MY_api_key": "abcdefgh"}, "tk-123456 abcdefgh", "*** ***"),
        ({"HOME": "/home/me", "PASSWORD": "no", "SSH_KEY": "/home/me/.ssh/id"}, "/home/me/.ssh/id, no",
         "/home/me/.ssh/id, no"),
        ({"A_TOKEN": "secret", "B_TOKEN": "secret-and-more"}, "x secret-and-more y", "x *** y"),
        ({"PATH": "one:two", "GIT_AUTHOR_NAME": "somebody", "PWD": "folder", "COMPAT": "matters"},
         "one:two somebody folder matters", "one:two somebody folder matters"),
        ({"SIGNING_KEY": "--BEGIN--\nabcdefgh\nijklmnop\n"}, "ijklmnop here", "*** here"),
        *(({name: "abc/def+1"}, "use abc/def+1 or abc%2Fdef%2B1", "use *** or ***")
          for name in ("DB_PASS", "GH_PAT", "BASIC_AUTH", "AWS_CREDENTIALS", "MYSQL_PWD")),
    ],
)  # fmt: skip
def test_values_of_variables_that_sound_secret_are_masked(
    variables: dict[str, str], text: str, shown: str
) -> None:
    assert Mask(variables)(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "https://me:pw@host.example/t/x and https://host.example/a@b",
            "https://***@host.example/t/x and https://host.example/a@b",
        ),
        ("mail me@host.example", "mail me@host.example"),
        ("https://me:p@ss@host.example/x", "https://***@host.example/x"),
        ("https://host.example/t/tk-12/conda-forge", "https://host.example/t/***/conda-forge"),
        ("/work/t/tree/a.o https://host.example/x", "/work/t/tree/a.o https://host.example/x"),
        (
            "https://host.example/x?a=1&access_token=abc&b=2",
            "https://host.example/x?a=1&access_token=***&b=2",
        ),
        ("GET /x?sig=abc HTTP/1.1", "GET /x?sig=*** HTTP/1.1"),
        ("https://host.example/x#token=abc", "https://host.example/x#token=***"),
        ('"https://me:pw@host.example/x","a@b"', '"https://***@host.example/x","a@b"'),
        ("six @ http:/me:p4ss@host/six.whl: not found", "six @ http:/***@host/six.whl: not found"),
    ],
)
def test_what_gives_access_in_an_address_is_masked(text: str, shown: str) -> None:
    assert Mask({})(text) == shown


def test_every_line_has_its_time_and_source_and_latest_points_to_the_last_log(tmp_path: Path) -> None:
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as first:
        assert first.write("staging", "[1/2 1s] x") == "[1/2 1s] x"
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as second:
        second.emit(logging.makeLogRecord({"msg": "checked %s", "args": ("disk",)}))
        second.become_latest()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z staging +\[1/2 1s\] x\n", first.path.read_text()
    )
    assert re.search(r"Z driver +checked disk\n$", second.path.read_text())
    assert (tmp_path / "latest.log").resolve() == second.path
    assert first.path.name.startswith("linux_64_cpu-")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("use tk-\x1b[01;31m\x1b[K123\x1b[m456", "use ***"),
        ("https://me:\x1b[31mpw\x1b[0m@host/x", "https://***@host/x"),
        ("use tab\tand-\x1bescape", "use ***"),
        ("use \x1b[1mtk-123456\x1b[m", "use ***"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_secret_is_masked_among_control_characters_and_with_some(
    text: str, shown: str, tmp_path: Path
) -> None:
    """grep colours its matches; a password may have a tab."""
    mask = Mask({"A_TOKEN": "tk-123456", "B_TOKEN": "tab\tand-\x1bescape"})
    with LogFile(tmp_path, "linux_64_cpu", mask) as log:
        assert log.write("x", text) == shown
    assert log.path.read_text().endswith(f" {shown}\n")


def test_a_line_after_an_incomplete_one_begins_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up takes a part of a line."""
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as log:
        file = log._file
        with monkeypatch.context() as patch:
            patch.setattr(log, "_file", SimpleNamespace(write=lambda line: file.write(line[:30])))
            log.write("driver", "lost")
        log.write("driver", "next")
        log.write("driver", "last")
    assert [line.split()[-1] for line in log.path.read_text().splitlines()][1:] == ["next", "last"]


def test_a_run_s_log_gets_no_line_of_a_later_run_of_the_process(tmp_path: Path) -> None:
    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as log:
        logger.addHandler(log)
        logger.warning("own")
    logger.warning("later")
    assert [line.split()[-1] for line in log.path.read_text().splitlines()] == ["own"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF])
def test_on_a_full_disk_a_line_is_lost_and_another_error_is_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: bytes) -> int:
        raise OSError(number, os.strerror(number))

    with LogFile(tmp_path, "linux_64_cpu", Mask({})) as log:
        log.write("driver", "first")
        is_full = number in (errno.ENOSPC, errno.EDQUOT)
        with monkeypatch.context() as patch:
            patch.setattr(log, "_file", SimpleNamespace(write=refuse))
            with nullcontext() if is_full else pytest.raises(OSError, match=os.strerror(number)):
                log.write("driver", "lost")
        log.write("driver", "last")
    assert [line.split()[-1] for line in log.path.read_text().splitlines()] == ["first", "last"]


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("GH_TOKEN", "abc", True), ("DB_PASSWORD", "abc", True), ("MY_SECRET", "abc", True), ("API_KEY", "abc", True),
        ("AWS_CREDENTIALS", "abc", True), ("BASIC_AUTH", "abc", True), ("GITHUB_PAT", "abc", True),
        ("PAT", "abc", True), ("MYSQL_PWD", "abc", True), ("api_key", "abc", True),
        ("SSH_KEY", "/home/me/key", False), ("PWD", "abc", False),
        ("OLDPWD", "abc", False), ("AUTHOR", "abc", False), ("PATH", "abc", False), ("GIT_AUTHOR_NAME", "abc", False),
    ],
)  # fmt: skip
def test_names_of_variables_tell_secrets(name: str, value: str, is_secret: bool) -> None:
    assert redact.secret_names({name: value, "HOME": "abc"}) == ([name] if is_secret else [])
