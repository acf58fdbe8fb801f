"""Credentials of channels: they give access, and are in no file that a command writes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest
from calling import call
from channel_server import FAULTS, PASSWORD, TOKEN, USER, served
from rattler.package_streaming import extract
from small_files import write
from tiny import ROOT, Tiny, make_channel, make_package, publish
from wheel_files import make_wheel

from command_line.run_command import Invocation
from groundwork.channel import Channel
from groundwork.errors import ConfigError, ProviderError, SwapRefused, UsageError
from groundwork.machine import machine_platform
from groundwork.network import channel_logins
from groundwork.network.channel_logins import Channels, credentials_file, separate_logins
from groundwork.network.index import Configured
from groundwork.network.resolver import Target, resolve
from megabuild.plan import planning, solving
from megabuild.providers.conda_forge.provider import CondaForgeProvider

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="packages of linux-64")
NAME = "linux_64_cpu"
LOGIN = f"{USER}:{quote(PASSWORD, safe='')}"
WAYS = (f"http://{LOGIN}@HOST/password", f"http://HOST/token/t/{TOKEN}", f"http://HOST/t/{TOKEN}")


def _separate(addresses: list[str]) -> Channels:
    return separate_logins([Channel.parse(address) for address in addresses])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of a channel, and an empty home folder."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CACHE_HOME", "RATTLER_AUTH_FILE", "NETRC", "CONDA_CHANNEL_ALIAS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    make_channel(tmp_path / "served" / "conda-forge")
    package = make_package(tmp_path / "made" / "linux-64", "greeting", "1.0", "0", depends=["tool"])
    publish(tmp_path / "output" / "packages" / NAME, [package])
    with served(tmp_path / "served") as address:
        yield address


def holders(folder: Path) -> list[str]:
    """The names of the files below a folder, and in the packages there, that have a secret."""
    for package in [*folder.rglob("*.conda"), *folder.rglob("*.tar.bz2")]:
        extract(package, folder / "unpacked" / package.name)
    secrets = [secret.encode() for secret in (PASSWORD, quote(PASSWORD, safe=""), TOKEN)]
    found = set[str]()
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if any(secret in content for secret in secrets):
            found.add(path.name)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    return sorted(found)


def create(tmp_path: Path, *channels: str) -> tuple[int, str]:
    more = [word for channel in channels for word in ("-c", channel)]
    output, env = str(tmp_path / "output"), str(tmp_path / "env")
    arguments = ("env", "create", env, "greeting", "--from", NAME, "--output", output, *more)
    done = call(Invocation(log_folder=tmp_path / "logs"), *arguments)
    return done.exit_code, done.output + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_an_environment_keeps_no_credentials_of_its_channel(way: str, host: str, tmp_path: Path) -> None:
    address = way.replace("HOST", host)
    assert create(tmp_path, f"{address}/conda-forge")[0] == 0
    assert holders(tmp_path) == []
    (record,) = (tmp_path / "env" / "conda-meta").glob("tool-*.json")
    assert f"//{host}/" in json.loads(record.read_text())["url"]


@pytest.mark.parametrize("fails", ["", "swap 3.12"])
@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]])
def test_a_build_keeps_no_credentials_of_its_addresses(
    way: str, fails: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", way.replace("HOST", host))
    for name in (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX_URL",
        "MEGABUILD_STORE",
        "CCACHE_REMOTE_STORAGE",
    ):
        monkeypatch.setenv(name, f"http://{LOGIN}@{host}/{name}?token={TOKEN}")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{LOGIN}@127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TINY_FAIL", fails)
    monkeypatch.setattr(planning, "choose_provider", CondaForgeProvider)
    shutil.copytree(ROOT, tmp_path / "root")
    tiny = Tiny(output=tmp_path / "output", channel=tmp_path, root=tmp_path / "root")
    with pytest.raises(SwapRefused) if fails else nullcontext():
        tiny.run()
    # launchers have no environment: ccache's server is in a file that only the user can read
    launchers = [name for name in holders(tmp_path) if "launcher" not in name]
    assert launchers == []
    for job in tmp_path.rglob("job.json"):
        assert job.stat().st_mode & 0o777 == 0o600
    # a later environment finds the credentials of its build's channel in the same variable
    channel, output = tiny.options().packages.name, str(tmp_path / "output")
    arguments = ("env", "create", str(tmp_path / "env"), "tinylib", "--from", channel, "--output", output)
    assert call(Invocation(log_folder=tmp_path), *arguments).exit_code == 0


def test_a_resolution_keeps_no_credentials_of_its_index(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "served", "demo-1.0-py3-none-any.whl", {"demo.py": b""})
    page = tmp_path / "served" / "simple" / "demo" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<html><body><a href="../../{wheel.name}">{wheel.name}</a></body></html>')
    places = Configured(indexes=(f"http://{LOGIN}@{host}/password/simple",))
    target = Target(version=".".join(map(str, sys.version_info[:3])))
    (found,) = resolve(["demo"], target, places, cache=tmp_path / "cache")
    assert (found.name, USER in found.url) == (wheel.name, True)  # in memory only
    assert holders(tmp_path) == []
    with pytest.raises(ProviderError) as refused:
        resolve(["demo"], target, Configured(indexes=(f"http://{LOGIN}x@{host}/password/simple",)))
    assert PASSWORD not in refused.value.message
    assert LOGIN not in refused.value.message


def test_netrc_gives_access_to_a_channel(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text(f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
    netrc.chmod(0o600)
    assert create(tmp_path, f"http://{host}/password/conda-forge")[0] == 0
    assert holders(tmp_path) == [".netrc"]


@pytest.mark.parametrize("fault", [*FAULTS, "password"])
def test_a_faulty_channel_is_named_and_no_environment_is_called_unsolvable(
    fault: str, host: str, tmp_path: Path
) -> None:
    code, shown = create(tmp_path, f"http://{host}/{fault}/conda-forge")
    assert (code, "cannot be solved" in shown) == (5, False), shown
    assert f"channel http://{host}/{fault}/conda-forge cannot be read: " in shown
    assert "hint: check the channel's address" in shown


def test_a_channel_without_an_answer_is_no_unsolvable_environment(host: str, tmp_path: Path) -> None:
    code, shown = create(tmp_path, "http://no-such-host.invalid/conda-forge")
    assert (code, "cannot be read" in shown) == (5, True), shown


def test_an_unsolvable_environment_keeps_its_code(host: str, tmp_path: Path) -> None:
    (tmp_path / "empty" / "noarch").mkdir(parents=True)
    (tmp_path / "empty" / "noarch" / "repodata.json").write_text('{"packages": {}}')
    code, shown = create(tmp_path, str(tmp_path / "empty"))
    assert (code, "cannot be solved" in shown) == (4, True), shown


def test_the_file_for_rattler_joins_all_credentials(tmp_path: Path) -> None:
    own, netrc = tmp_path / "own.json", tmp_path / "netrc"
    files = {name: {"BearerToken": "of the file"} for name in ("own.example", "netrc.example", "a.example")}
    own.write_text(json.dumps(files))
    lines = [f"machine {name}.example login o password q\n" for name in ("netrc", "other", "a", "b")]
    netrc.write_text("".join(lines))
    environ = {"RATTLER_AUTH_FILE": str(own), "NETRC": str(netrc)}
    channels = _separate(
        [
            "https://u:p%40w@a.example:8443/x", "https://u:p%40w@b.example/x", "https://netrc.example/y",
            "https://other.example/z",
        ]
    )  # fmt: skip
    assert json.loads(credentials_file(channels, environ)) == {
        "own.example": {"BearerToken": "of the file"},
        "netrc.example": {"BearerToken": "of the file"},
        "a.example": {"BasicHTTP": {"username": "u", "password": "p@w"}},
        "b.example": {"BasicHTTP": {"username": "u", "password": "p@w"}},
        "other.example": {"BasicHTTP": {"username": "o", "password": "q"}},
    }
    assert credentials_file(_separate(["https://free.example/x"]), environ) == ""
    assert "p@w" not in repr(channels)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        ("folder", "Is a directory"),
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"host.example": {"BearerToken": "b"}', "Expecting ',' delimiter: line 1 column 38 (char 37)"),
        (b'[{"BearerToken": "b"}]', "not an object of hosts"),
        (b"null", "not an object of hosts"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_file_with_credentials_that_cannot_be_read_is_named(
    content: bytes | str | None, reason: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.json"
    if content == "folder":
        own.mkdir()
    elif isinstance(content, bytes):
        own.write_bytes(content)
    monkeypatch.setenv("RATTLER_AUTH_FILE", str(own))
    code, shown = create(tmp_path, f"http://{LOGIN}@{host}/password/conda-forge")
    assert code == 3
    said = f"error: {own}: not a file with credentials: {reason} hint: correct or unset RATTLER_AUTH_FILE"
    assert said in " ".join(shown.split())
    assert not (tmp_path / "env").exists()


def test_credentials_that_rattler_cannot_use_are_refused() -> None:
    different = _separate(["https://a:b@host.example/x", "https://c:d@host.example/y"])
    with pytest.raises(ConfigError, match=r"^host\.example: its channels have different users"):
        credentials_file(different, {})
    below = _separate([f"https://host.example/api/t/{TOKEN}/x"])
    with pytest.raises(ConfigError, match="no token below the folder /api"):
        credentials_file(below, {})
    with pytest.raises(UsageError, match=r"no \? and no #") as refused:
        _separate([f"https://host.example/x?token={TOKEN}"])
    assert TOKEN not in refused.value.message


@pytest.mark.parametrize("is_set", [False, True])
def test_rattlers_own_variable_is_restored(
    is_set: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATTLER_AUTH_FILE", raising=False)
    if is_set:
        monkeypatch.setenv("RATTLER_AUTH_FILE", str(write(tmp_path / "own.json", "{}")))
    before = os.environ.get("RATTLER_AUTH_FILE")
    channel_logins.rattler_client(_separate(["https://a:b@host.example/x"]))
    assert os.environ.get("RATTLER_AUTH_FILE") == before


@pytest.mark.parametrize(
    ("address", "clean", "login"),
    [
        ("https://h.example/x", "https://h.example/x", None),
        ("https://u:p%2Fw@h.example:81/x", "https://h.example:81/x", ("u", "p/w", "", "https://h.example:81/x")),
        ("https://u@h.example/x", "https://h.example/x", ("u", "", "", "https://h.example/x")),
        ("https://h.example/t/tk-1/x/y", "https://h.example/x/y", ("", "", "tk-1", "https://h.example/t/tk-1/x/y")),
        ("https://h.example/a/t/tk/x", "https://h.example/a/x", ("", "", "tk", "https://h.example/a/t/tk/x")),
        ("https://u:p@h.example/t/tk/x", "https://h.example/x", ("u", "p", "tk", "https://h.example/t/tk/x")),
        ("https://h.example/t/x", "https://h.example/t/x", None),
    ],
)  # fmt: skip
def test_a_channel_s_address_is_separated_from_what_gives_access(
    address: str, clean: str, login: tuple[str, ...] | None
) -> None:
    channels = _separate([address])
    assert [channel.address for channel in channels.by_priority] == [clean]
    found = [(each.user, each.password, each.token, each.with_token) for each in channels.logins]
    assert found == ([login] if login else [])
    assert {each.host for each in channels.logins} <= {"h.example"}


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("https://h.example/t/tk/", ("https://h.example", "https://h.example/t/tk")),
        (" https://u:p@h.example/conda ", ("https://h.example/conda", "https://h.example/conda")),
        ("https://h.example/conda", None),
        ("h.example", None),
        ("", None),
    ],
)
def test_an_alias_s_login_is_for_all_channels_below_it(alias: str, expected: tuple[str, str] | None) -> None:
    logins = channel_logins.logins_of_alias({"CONDA_CHANNEL_ALIAS": alias})
    assert [(login.address, login.with_token) for login in logins] == ([expected] if expected else [])


def test_a_token_next_to_a_user_is_in_the_mirror_and_the_user_in_the_file() -> None:
    environ = {"NETRC": "/nowhere"}
    both = _separate(["https://u:p@h.example/t/tk/x", "https://h2.example/t/tk/x"])
    user = {"h.example": {"BasicHTTP": {"username": "u", "password": "p"}}}
    assert json.loads(credentials_file(both, environ, tokens=False)) == user
    token = {"h2.example": {"CondaToken": "tk"}}
    assert json.loads(credentials_file(both, environ)) == {**user, **token}


def test_only_channels_without_logins_share_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/nowhere")
    without = _separate(["https://host.example/x"])
    shared = channel_logins.rattler_client(without)
    assert channel_logins.rattler_client(without) is shared
    for address in ("https://a:b@host.example/x", "https://host.example/t/tk/x"):
        assert channel_logins.rattler_client(_separate([address])) is not shared
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert channel_logins.rattler_client(without) is not shared


def test_an_environment_s_channels_are_asked_with_their_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def solved(*words: object, **more: object) -> list[object]:
        asked.append((words, more))
        return []

    monkeypatch.setattr(solving, "solved", solved)
    given = cast(Any, SimpleNamespace(channels=(), logins={"a": "b"}, virtual_packages={"__cuda": "13"}))
    assert solving.environment(["x"], given, "linux-64", "y") == {}
    (((specs, channels, platform), more),) = cast(Any, asked)
    assert (specs, channels.by_priority, channels.logins, platform) == (["x"], (), {"a": "b"}, "linux-64")
    assert (more["virtual"], more["what"]) == ({"__cuda": "13"}, "y")


@pytest.mark.parametrize("end", ["?a=b", "#a", "?a=b#c"])
def test_a_channel_s_address_has_neither_query_nor_fragment(end: str) -> None:
    with pytest.raises(UsageError, match=r"no \? and no #"):
        channel_logins._login_of(f"https://host/channel{end}")
    assert channel_logins._login_of("https://host/channel").address == "https://host/channel"


@pytest.mark.parametrize("named", ["other/.netrc", "", None], ids=str)
def test_a_login_comes_from_the_netrc_file_that_is_named_or_of_the_user(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder in ("home", "other"):
        write(tmp_path / folder / ".netrc", f"machine a login {folder} password p\n").chmod(0o600)
    environ = {}
    if named is not None:
        environ["NETRC"] = str(tmp_path / named) if named else ""
    user = "other" if named else "home"
    assert channel_logins._find_in_netrc("a", environ) == {"BasicHTTP": {"username": user, "password": "p"}}
    assert channel_logins._find_in_netrc("b", environ) is None
