"""`megabuild upload`: the order of what a config built, what conda-forge would refuse, and a server that takes it."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zstandard
from calling import call

from command_line.run_command import Invocation
from groundwork.errors import ConfigError, UsageError, VerdictError
from megabuild.engine import archive
from megabuild.plan import published

CONFIG = "linux_64_cuda130"
FLAVOUR = "cuda130_mkl"


@dataclass
class Channel:
    """The published packages of a config."""

    output: Path
    packages: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.output / "packages" / CONFIG

    def publish(self, made_with: str = "https://mirror.example/conda-forge/") -> None:
        fingerprints = {path.name: "f" for path in self.packages}
        found = [archive.read(path) for path in self.packages]
        published.publish(self.folder, found, platform="linux-64", fingerprints=fingerprints, seconds={})
        published.note_channels(self.folder, [made_with])

    def add(
        self,
        name: str,
        build: str,
        files: Mapping[str, bytes] | None = None,
        *,
        version: str = "2.13.0",
        depends: Sequence[str] = (),
        licence: str = "BSD-3-Clause",
    ) -> Path:
        """Write a package."""
        files = {f"share/{name}": b"x"} if files is None else files
        index = {"name": name, "version": version, "build": build, "build_number": 0, "subdir": "linux-64",
                 "license": licence, "depends": list(depends)}  # fmt: skip
        entries = [
            {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(content).hexdigest(),
             "size_in_bytes": len(content)}
            for path, content in files.items()
        ]  # fmt: skip
        info = {
            "info/index.json": json.dumps(index).encode(),
            "info/paths.json": json.dumps({"paths": entries, "paths_version": 1}).encode(),
            "info/about.json": json.dumps({"license": licence}).encode(),
        }
        stem = f"{name}-{version}-{build}"
        path = self.output / "out" / "linux-64" / f"{stem}.conda"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as outer:
            outer.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            outer.writestr(f"info-{stem}.tar.zst", packed(info))
            outer.writestr(f"pkg-{stem}.tar.zst", packed(files))
        self.packages.append(path)
        return path


def packed(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return zstandard.ZstdCompressor().compress(stream.getvalue())


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path)


@pytest.fixture
def release(channel: Channel) -> Channel:
    """A release without fault, built in another order than it is to be uploaded in."""
    channel.add("pytorch-gpu", f"{FLAVOUR}_h4_300", depends=[f"pytorch ==2.13.0 {FLAVOUR}_*_300"])
    for python in ("310", "312"):
        channel.add(
            "pytorch", f"{FLAVOUR}_py{python}_h3_300", depends=[f"libtorch ==2.13.0 {FLAVOUR}_h2_300"]
        )
    channel.add(
        "libtorch", f"{FLAVOUR}_h2_300", depends=[f"libtorch-cuda-linalg ==2.13.0 {FLAVOUR}_*", "libgcc >=14"]
    )
    for flavour in ("magma", "nomagma"):
        channel.add("libtorch-cuda-linalg", f"{FLAVOUR}_{flavour}_h1_300")
    return channel


def upload(channel: Channel, *words: str, code: int = 0) -> dict[str, Any]:
    invocation = Invocation(log_folder=channel.output / "logs")
    result = call(invocation, "upload", CONFIG, "-o", str(channel.output), "--json", *words)
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.fixture
def anaconda(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server in place of anaconda.org; give what it was asked, and the token."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            self.send_response(500 if "refused" in self.path else 200)
            self.end_headers()
            told = {"post_url": f"http://127.0.0.1:{server.server_port}/s3", "form_data": {}, "dist_id": "d"}
            self.wfile.write(json.dumps({"package_types": ["conda"], **told}).encode())

        do_GET = do_POST = do_PATCH = do_PUT = answer

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ANACONDA_SERVER_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("ANACONDA_API_KEY", "s3cr3t-token")
    yield asked
    server.shutdown()
    server.server_close()


def test_nobody_is_offered_half_a_release(release: Channel, anaconda: list[str]) -> None:
    release.publish()
    assert upload(release)["uploaded"] is False
    assert anaconda == []
    document = upload(release, "--user", "me", "--apply")
    assert (document["uploaded"], document["label"], document["faults"]) == (True, "cfep03", [])
    staged = [line.split("/")[3] for line in anaconda if line.startswith("POST /stage/me/")]
    order = ["libtorch-cuda-linalg"] * 2 + ["libtorch"] + ["pytorch"] * 2 + ["pytorch-gpu"]
    assert staged == order == [one["name"] for one in document["packages"]]
    assert all("token s3cr3t-token" in line for line in anaconda if "/s3" not in line)
    copied = "anaconda copy --from-label cfep03 --to-label main --to-owner conda-forge me/libtorch/2.13.0"
    assert document["copy"][1] == copied


def test_a_server_that_refuses_is_an_error_without_the_token(release: Channel, anaconda: list[str]) -> None:
    release.publish()
    error = upload(release, "--user", "refused", "--apply", code=8)["error"]
    assert "libtorch-cuda-linalg was not uploaded" in error["message"]
    assert "s3cr3t" not in json.dumps(error)
    assert not [line for line in anaconda if "/libtorch/" in line], (
        "nothing is uploaded without what it needs"
    )


def test_a_core_member_uploads_without_copying(release: Channel) -> None:
    release.publish()
    document = upload(release, "--user", "conda-forge")
    assert (document["label"], document["copy"]) == ("main", [])


def test_a_release_candidate_goes_where_only_who_asks_for_it_gets_it(channel: Channel) -> None:
    channel.add("pytorch", f"{FLAVOUR}_py312_h3_300", version="2.14.0.rc10")
    channel.publish()
    assert "--to-label pytorch_rc" in upload(channel)["copy"][0]
    assert upload(channel, "--user", "conda-forge")["label"] == "pytorch_rc"
    upload(channel, "--user", "conda-forge", "--label", "main", code=VerdictError.exit_code)


def test_of_several_builds_the_newest_is_taken_and_what_no_longer_fits_is_refused(release: Channel) -> None:
    release.publish()
    release.packages.clear()
    release.add("libtorch", f"{FLAVOUR}_h9_300")
    release.publish()
    faults = upload(release, code=VerdictError.exit_code)["faults"]
    assert len(faults) == 2
    assert all(f"needs libtorch ==2.13.0 {FLAVOUR}_h2_300" in fault for fault in faults)


@pytest.mark.parametrize("made_with", ["a folder", "https://example.org/other"])
def test_what_was_made_with_another_channel_is_refused(
    release: Channel, anaconda: list[str], made_with: str
) -> None:
    made_with = str(release.output) if made_with == "a folder" else made_with
    release.publish(made_with=made_with)
    document = upload(release, "--user", "me", "--apply", code=VerdictError.exit_code)
    (fault,) = document["faults"]
    assert made_with in fault
    assert anaconda == []


def test_what_is_wrong_inside_is_found_where_all_is_read(channel: Channel) -> None:
    channel.add("pytorch", "b_py312_0", {"lib/a.so": b"x"})
    channel.add("libtorch", "b_0", {"lib/a.so": b"x"}, licence="")
    channel.publish()
    assert upload(channel)["faults"] == []
    faults = upload(channel, "--check", code=VerdictError.exit_code)["faults"]
    assert [fault.split(" ", 1)[1] for fault in faults] == [
        "names no licence",
        "and pytorch both install lib/a.so",
    ]


def test_a_damaged_package_is_an_error_that_names_it(release: Channel) -> None:
    release.publish()
    package = release.folder / "linux-64" / f"libtorch-2.13.0-{FLAVOUR}_h2_300.conda"
    with package.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(b"xx")
    assert str(package) in upload(release, "--check", code=6)["error"]["message"]


def test_a_rehearsal_and_what_was_never_built_are_nothing_to_upload(tmp_path: Path) -> None:
    invocation = Invocation(log_folder=tmp_path / "logs")
    rehearsed = call(invocation, "upload", f"{CONFIG}-rehearsal", "-o", str(tmp_path))
    assert (rehearsed.exit_code, "scaled model" in rehearsed.stderr) == (UsageError.exit_code, True)
    never = call(invocation, "upload", "../../etc", "-o", str(tmp_path))
    assert (never.exit_code, "nothing is published" in never.stderr) == (ConfigError.exit_code, True)


@pytest.mark.parametrize("words", [["--apply"], ["--user", ""], ["--user", "me", "--label", "--x"]])
def test_a_channel_and_label_are_names(release: Channel, words: list[str]) -> None:
    release.publish()
    assert upload(release, *words, code=2)["error"]["kind"] == "UsageError"
