"""`megabuild upload`: the order of packages, and an upload to a server."""

from __future__ import annotations

import http.server
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from calling import call
from click.testing import Result
from tiny import make_package, publish

from command_line.run_command import Invocation
from groundwork.errors import BuildError, ConfigError, IntegrityError, UpstreamTestError, UsageError
from megabuild import upload as uploading
from megabuild.store import published
from megabuild.upload import Artifact, Variant

CONFIG = "linux_64_cuda130"
FLAVOUR = "cuda130_mkl"


@dataclass
class Channel:
    """The published packages of a config."""

    output: Path
    packages: list[Path] = field(default_factory=list)

    def publish(self) -> None:
        publish(self.output / "packages" / CONFIG, self.packages)

    def add(self, name: str, build: str, *depends: str) -> None:
        folder = self.output / "out" / "linux-64"
        content = {f"share/{name}": name}
        self.packages.append(make_package(folder, name, "2.13.0", build, content, depends=depends))


@pytest.fixture
def release(tmp_path: Path) -> Channel:
    """A valid release, built in another order than the upload's."""
    channel = Channel(tmp_path)
    channel.add("pytorch-gpu", f"{FLAVOUR}_h4_300", f"pytorch ==2.13.0 {FLAVOUR}_*_300")
    for python in ("310", "312"):
        channel.add("pytorch", f"{FLAVOUR}_py{python}_h3_300", f"libtorch ==2.13.0 {FLAVOUR}_h2_300")
    channel.add("libtorch", f"{FLAVOUR}_h2_300", f"libtorch-cuda-linalg ==2.13.0 {FLAVOUR}_*", "libgcc >=14")
    for flavour in ("magma", "nomagma"):
        channel.add("libtorch-cuda-linalg", f"{FLAVOUR}_{flavour}_h1_300")
    channel.publish()
    return channel


def upload(channel: Channel, *words: str) -> Result:
    invocation = Invocation(log_folder=channel.output / "logs")
    return call(invocation, "upload", CONFIG, "-o", str(channel.output), *words)


@pytest.fixture
def anaconda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server instead of anaconda.org, which refuses a file it has; return its requests, the token and leftovers."""
    asked: list[str] = []
    has: set[str] = set()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            asked.extend(f"left in /tmp: {path.name}" for path in (tmp_path / "tmp").iterdir())
            name = self.path.rpartition("/")[2]
            there = "/stage/" in self.path and name in has
            if "/commit/" in self.path:
                has.add(name)
            self.send_response(500 if "refused" in self.path else 409 if there else 200)
            self.end_headers()
            told = {"post_url": f"http://127.0.0.1:{server.server_port}/s3", "form_data": {}, "dist_id": "d"}
            self.wfile.write(json.dumps({"package_types": ["conda"], **told}).encode())

        do_GET = do_POST = do_PATCH = do_PUT = answer

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("ANACONDA_SERVER_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("ANACONDA_API_KEY", "s3cr3t-token")
    yield asked
    server.shutdown()
    server.server_close()


def test_a_package_is_uploaded_after_its_dependencies(release: Channel, anaconda: list[str]) -> None:
    shown = upload(release)
    assert (shown.exit_code, anaconda) == (0, [])
    for nowhere in ((), ("--user", "me", "--label", "")):
        assert upload(release, "--apply", *nowhere).exit_code == 2
    assert anaconda == []
    done = upload(release, "--user", "me", "--apply")
    assert done.exit_code == 0, done.output
    staged = [line.split("/")[3] for line in anaconda if line.startswith("POST /stage/me/")]
    order = ["libtorch-cuda-linalg"] * 2 + ["libtorch"] + ["pytorch"] * 2 + ["pytorch-gpu"]
    assert staged == order == re.findall(r"(?m)^(\S+)-2\.13\.0-\S+\.conda ", shown.stdout)
    assert all("token s3cr3t-token" in line for line in anaconda if "/s3" not in line)


def test_packages_whose_tests_failed_are_uploaded_on_request_only(
    release: Channel, anaconda: list[str]
) -> None:
    failed = f"pytorch-tests-2.13.0-{FLAVOUR}_py312_h5_300.conda"
    (pytorch,) = (
        path.name for path in release.packages if path.name.startswith(f"pytorch-2.13.0-{FLAVOUR}_py312")
    )
    published.await_tests(release.output / "packages" / CONFIG, {pytorch: failed})
    listed = upload(release)
    assert listed.exit_code == 0
    assert f"! PyTorch's own tests failed or never ran: {failed.removesuffix('.conda')}" in listed.stdout
    refused = upload(release, "--user", "me", "--apply")
    assert (refused.exit_code, anaconda) == (UpstreamTestError.exit_code, [])
    assert "--despite-tests" in refused.output
    assert upload(release, "--user", "me", "--apply", "--despite-tests").exit_code == 0
    assert anaconda
    release.add("pytorch-tests", f"{FLAVOUR}_py312_h5_300", f"pytorch ==2.13.0 {FLAVOUR}_py312_*_300")
    publish(release.output / "packages" / CONFIG, release.packages[-1:])
    assert "own tests" not in upload(release).stdout


@pytest.mark.parametrize("passed", [(), ("310",), ("312",), ("310", "312")], ids=" ".join)
def test_the_tests_of_each_python_must_have_passed(release: Channel, passed: tuple[str, ...]) -> None:
    """Their packages are published if they pass, each of them alone."""
    names = {python: f"pytorch-tests-2.13.0-{FLAVOUR}_py{python}_h5_300.conda" for python in ("310", "312")}
    awaited: dict[str, str] = {}
    for path in release.packages:
        for python, name in names.items():
            if path.name.startswith(f"pytorch-2.13.0-{FLAVOUR}_py{python}"):
                awaited[path.name] = name
    published.await_tests(release.output / "packages" / CONFIG, awaited)
    release.packages.clear()
    for python in passed:
        build = f"{FLAVOUR}_py{python}_h5_300"
        release.add("pytorch-tests", build, f"pytorch ==2.13.0 {FLAVOUR}_py{python}_*_300")
    release.publish()
    found = uploading.find_release(release.output, CONFIG)
    assert sorted(found.missing_tests.failed) == [names[python] for python in names if python not in passed]


def test_packages_that_were_never_tested_are_uploaded_on_request_only(
    release: Channel, anaconda: list[str]
) -> None:
    path = release.output / "packages" / CONFIG / published.RECORDS
    records = json.loads(path.read_text())
    untested = release.packages[-1].name
    records[untested]["is_tested"] = False
    path.write_text(json.dumps(records))
    listed = upload(release)
    assert listed.exit_code == 0
    assert f"! never tested: {untested.removesuffix('.conda')}\n" in listed.stdout
    refused = upload(release, "--user", "me", "--apply")
    assert (refused.exit_code, anaconda) == (UpstreamTestError.exit_code, [])
    assert "build again on a machine that can test them, or add --despite-tests" in refused.output
    assert upload(release, "--user", "me", "--apply", "--despite-tests").exit_code == 0
    assert anaconda


def test_a_repeated_upload_adds_what_the_channel_lacks(release: Channel, anaconda: list[str]) -> None:
    records = release.output / "packages" / CONFIG / published.RECORDS
    everything = records.read_text()
    first = release.packages[-1].name
    records.write_text(json.dumps({first: json.loads(everything)[first]}))
    assert upload(release, "--user", "me", "--apply").exit_code == 0
    records.write_text(everything)
    done = upload(release, "--user", "me", "--apply")
    assert done.exit_code == 0, done.output
    assert re.findall(r"(?m)^(.*): already in the channel, not replaced$", done.stdout) == [first]
    commits = [line for line in anaconda if line.startswith("POST /commit/")]
    assert len(commits) == len({*commits}) == len(release.packages)
    assert not [line for line in anaconda if line.startswith("left")], (
        "the engine's copies are in the scratch folder"
    )


def test_a_server_that_refuses_is_an_error_without_the_token(release: Channel, anaconda: list[str]) -> None:
    done = upload(release, "--user", "refused", "--apply")
    assert done.exit_code == BuildError.exit_code
    assert re.match(r"error: libtorch-cuda-linalg-2\S+\.conda: upload failed: ", done.stderr)
    assert "s3cr3t" not in done.output
    assert not [line for line in anaconda if "/libtorch/" in line], "its dependency was refused"


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("anaconda.example", 2, "ANACONDA_SERVER_URL: not an address: anaconda.example"),
        ("http://bob:s3cr3ts3cr3t@127.0.0.1:1/t/tk-s3cr3t/api", 8, "upload failed: "),
    ],
)
def test_the_servers_address_is_checked_and_its_credentials_are_not_shown(
    address: str, code: int, words: str, release: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANACONDA_SERVER_URL", address)
    monkeypatch.setenv("ANACONDA_API_KEY", "0123456789")
    done = upload(release, "--user", "me", "--apply")
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr
    assert "s3cr3t" not in done.output + done.stderr


def test_the_newest_of_several_builds_is_uploaded(release: Channel) -> None:
    release.packages.clear()
    release.add("libtorch", f"{FLAVOUR}_h9_300")
    release.publish()
    shown = upload(release).stdout
    assert f"libtorch-2.13.0-{FLAVOUR}_h2_300.conda: not uploaded, a later build exists" in shown
    assert re.findall(r"(?m)^libtorch-2\S+_(\S+)\.conda  ", shown) == ["300"]
    assert f"libtorch-2.13.0-{FLAVOUR}_h9_300.conda  " in shown


@pytest.mark.parametrize("written", ["name", "requirement"])
def test_each_python_of_another_feedstock_is_uploaded(release: Channel, written: str) -> None:
    """conda's usual build strings begin with the Python, and other ones differ in their hashes only."""
    release.packages.clear()
    for minor in ("11", "12", "13"):
        build = f"py3{minor}h12345{minor}_0" if written == "name" else f"h12345{minor}_0"
        release.add("mypkg", build, f"python_abi 3.{minor}.* *_cp3{minor}")
    release.publish()
    shown = upload(release)
    assert [path.name in shown.stdout for path in release.packages] == [True] * 3
    assert "9 packages, " in shown.stdout


def test_an_upload_that_is_killed_has_failed(release: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "_UPLOAD", "import os; os.kill(os.getpid(), 9)")
    done = upload(release, "--user", "me", "--apply")
    assert done.exit_code == BuildError.exit_code
    assert "upload failed: exit code 137" in done.stderr


@pytest.mark.parametrize("named", [True, False])
def test_only_the_package_itself_may_be_in_the_channel_already(
    release: Channel, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    name = "os.path.basename(sys.argv[3])" if named else "'another.conda'"
    monkeypatch.setattr(uploading, "_UPLOAD", f"import os, sys; sys.exit({name} + ' already exists')")
    done = upload(release, "--user", "me", "--apply")
    assert done.exit_code == (0 if named else BuildError.exit_code)


@pytest.mark.parametrize("position", [0, 4, -1])
def test_a_damaged_package_stops_the_upload_before_the_first(
    release: Channel, anaconda: list[str], position: int
) -> None:
    package = uploading.find_release(release.output, CONFIG).artifacts[position].path
    content = bytearray(package.read_bytes())
    with zipfile.ZipFile(package) as archive:  # its own metadata stay readable: they are read for the order
        (part,) = (info for info in archive.infolist() if info.filename.startswith("pkg-"))
    content[part.header_offset + 30 + len(part.filename)] ^= 0xFF
    package.write_bytes(content)
    done = upload(release, "--user", "me", "--apply")
    assert (done.exit_code, str(package) in done.stderr, anaconda) == (IntegrityError.exit_code, True, [])


def test_an_upload_without_channel_or_build_is_refused(release: Channel) -> None:
    assert upload(release, "--apply").exit_code == UsageError.exit_code
    for config, code in ((f"{CONFIG}-rehearsal", UsageError.exit_code), ("../../etc", ConfigError.exit_code)):
        invocation = Invocation(log_folder=release.output / "logs")
        assert call(invocation, "upload", config, "-o", str(release.output)).exit_code == code


@pytest.mark.parametrize("written", ["{}/", "./{}", "{}/linux-64/..", "linked"])
def test_a_rehearsal_is_refused_however_its_folder_is_written(release: Channel, written: str) -> None:
    packages = release.output / "packages"
    rehearsal = (packages / CONFIG).rename(packages / f"{CONFIG}-rehearsal")
    (packages / "linked").symlink_to(rehearsal.name)
    invocation = Invocation(log_folder=release.output / "logs")
    done = call(invocation, "upload", written.format(rehearsal.name), "-o", str(release.output))
    assert done.exit_code == UsageError.exit_code, done.stdout
    assert "scaled model" in done.stderr


def test_the_newest_build_of_a_variant_is_uploaded_after_all_that_its_package_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Python's package may require more than another's."""
    needs: dict[str, tuple[str, ...]] = {"lib-1-0.conda": ("base",), "base-1-0.conda": ()}
    needs |= {
        "torch-1-py312_h2_0.conda": ("lib",),
        "torch-1-py312_h1_0.conda": ("lib",),
        "torch-1-py313_h1_0.conda": (),
    }
    record = published.PublishedPackage(path="", size=1, sha256="", fingerprint="")
    records = {name: replace(record, path=name, modified=number) for number, name in enumerate(needs)}
    untested, replaced = "base-1-0.conda", "torch-1-py312_h2_0.conda"
    for name in (untested, replaced):
        records[name] = replace(records[name], is_tested=False)
    records[replaced] = replace(records[replaced], awaits="tests-1-py312_h2_0.conda")

    def read(path: Path, size: int) -> Artifact:
        build = path.name.split("-")[2].partition("_")[0]
        variant = Variant(name=path.name.partition("-")[0], build=build, python=())
        return Artifact(variant=variant, path=path, size=size, depends=needs[path.name])

    monkeypatch.setattr(published, "_read_records", lambda _: records)
    monkeypatch.setattr(uploading, "_read", read)
    release = uploading.find_release(tmp_path, "x")
    assert [artifact.path.name for artifact in release.artifacts] == [
        "base-1-0.conda", "lib-1-0.conda", "torch-1-py312_h1_0.conda", "torch-1-py313_h1_0.conda",
    ]  # fmt: skip
    assert [artifact.path.name for artifact in release.replaced] == [replaced]
    assert release.missing_tests == published.MissingTests(untested=(untested,))
