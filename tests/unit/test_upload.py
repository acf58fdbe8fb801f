"""`megabuild upload`: the order of what a config built, what conda-forge would refuse, and the commands."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
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
        about: Mapping[str, Any] | None = None,
        licences: Mapping[str, bytes] | None = None,
        subdir: str = "linux-64",
        records: Mapping[str, str] | None = None,
        paths: Sequence[str] | None = None,
    ) -> Path:
        """Write a package; ``records``: files that say which prefix they hold; ``paths``: what paths.json names."""
        files = {f"share/{name}": b"x"} if files is None else files
        index = {"name": name, "version": version, "build": build, "build_number": 0, "subdir": subdir}
        entries = [
            {
                "_path": path,
                "path_type": "hardlink",
                "sha256": hashlib.sha256(files.get(path, b"")).hexdigest(),
                "size_in_bytes": len(files.get(path, b"")),
                **(
                    {"prefix_placeholder": records[path], "file_mode": "text"}
                    if records and path in records
                    else {}
                ),
            }
            for path in (files if paths is None else paths)
        ]
        info = {
            "info/index.json": json.dumps({**index, "depends": list(depends)}).encode(),
            "info/paths.json": json.dumps({"paths": entries, "paths_version": 1}).encode(),
            "info/about.json": json.dumps({"license": "BSD-3-Clause"} if about is None else about).encode(),
            **{f"info/licenses/{key}": text for key, text in (licences or {"LICENSE": b"Take it."}).items()},
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


def rules_of(document: dict[str, Any], *, refused: bool = True) -> list[tuple[str, str]]:
    return [(one["rule"], one["text"]) for one in document["findings"] if one["refused"] == refused]


def test_nobody_is_offered_half_a_release(release: Channel) -> None:
    release.publish()
    document = upload(release, "--check")
    assert rules_of(document) == []
    lines = [shlex.split(line) for line in document["upload"]]
    uploaded = [
        [Path(word).name.rsplit("-", 2)[0] for word in line if word.endswith(".conda")] for line in lines
    ]
    assert uploaded == [["libtorch-cuda-linalg"] * 2, ["libtorch"], ["pytorch"] * 2, ["pytorch-gpu"]]
    start = ["anaconda", "upload", "--user", "YOUR_CHANNEL", "--label", "cfep03", "--skip-existing"]
    assert all(line[:7] == start for line in lines)
    assert all(Path(word).is_file() for line in lines for word in line[7:])
    copied = "anaconda copy --from-label cfep03 --to-label main --to-owner conda-forge YOUR_CHANNEL/libtorch/2.13.0"
    assert document["copy"][1] == copied
    assert document["checked"] is True


def test_a_core_member_uploads_without_copying(release: Channel) -> None:
    release.publish()
    document = upload(release, "--user", "conda-forge")
    assert all("--user conda-forge --label main " in line for line in document["upload"])
    assert document["copy"] == []
    assert document["checked"] is False


def test_a_release_candidate_goes_where_only_who_asks_for_it_gets_it(channel: Channel) -> None:
    channel.add("pytorch", f"{FLAVOUR}_py312_h3_300", version="2.14.0.rc10")
    channel.publish()
    assert "--to-label pytorch_rc" in upload(channel)["copy"][0]
    assert "--label pytorch_rc" in upload(channel, "--user", "conda-forge")["upload"][0]
    refused = upload(channel, "--user", "conda-forge", "--label", "main", code=VerdictError.exit_code)
    assert [rule for rule, _ in rules_of(refused)] == ["label"]
    assert refused["upload"] == refused["copy"] == []


def test_a_release_does_not_go_among_candidates(release: Channel) -> None:
    release.publish()
    assert [rule for rule, _ in rules_of(upload(release, "--label", "pytorch_rc", code=14))] == ["label"]


def test_of_several_builds_the_newest_is_taken_and_what_no_longer_fits_is_refused(release: Channel) -> None:
    release.publish()
    release.packages.clear()
    release.add("libtorch", f"{FLAVOUR}_h9_300")
    release.publish()
    document = upload(release, code=VerdictError.exit_code)
    assert document["left_out"] == [f"libtorch-2.13.0-{FLAVOUR}_h2_300.conda"]
    needs = f"needs libtorch ==2.13.0 {FLAVOUR}_h2_300, which is not uploaded with it"
    assert rules_of(document) == [("whole", needs), ("whole", needs)]


def test_what_was_made_with_another_channel_is_refused(release: Channel) -> None:
    release.publish(made_with=str(release.output))
    (rule, text), *others = rules_of(upload(release, code=VerdictError.exit_code))
    assert (rule, others) == ("channels", [])
    assert f"was made with {release.output}, and" in text


def test_an_output_of_another_feedstock_is_told_and_a_new_one_too(release: Channel) -> None:
    release.add("surprise", "h_0")
    release.publish()
    document = upload(release)
    assert rules_of(document) == []
    registered = (
        "is taken where it is registered as an output of your feedstock (conda-forge/feedstock-outputs)"
    )
    assert ("output", registered) in rules_of(document, refused=False)
    assert len(rules_of(document, refused=False)) == 3


@pytest.mark.parametrize(
    ("rule", "text", "changes"),
    [
        ("licence", "names no licence", {"about": {}}),
        ("licence", "holds no licence file", {"licences": {"LICENSE": b""}}),
        (
            "contents",
            "does not hold what its paths.json says: share/gone",
            {"paths": ["share/a", "share/gone"]},
        ),
        (
            "case",
            "holds paths that differ in case only: share/a",
            {"files": {"share/A": b"", "share/a": b""}},
        ),
        (
            "prefix",
            "names folders of the build: share/a",
            {"files": {"share/a": b"-I/b/_h_env_placehold_placehold"}},
        ),
        ("prefix", "names folders of the build: share/a", {"files": {"share/a": b"/x/build_env/bin/c++"}}),
        (
            "name",
            "is linux-aarch64/pytorch-2.13.0-b_py312_0.conda by its own metadata",
            {"subdir": "linux-aarch64"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_is_wrong_in_a_package_is_refused(
    channel: Channel, rule: str, text: str, changes: dict[str, Any]
) -> None:
    channel.add("pytorch", "b_py312_0", **{"files": {"share/a": b"x"}, **changes})
    channel.publish()
    assert rules_of(upload(channel, "--check", code=VerdictError.exit_code)) == [(rule, text)]


def test_a_prefix_that_is_recorded_or_in_a_binary_is_not_refused(channel: Channel) -> None:
    prefix = "/b/host_env_placehold_placehold"
    files = {"bin/tool": f"#!{prefix}/bin/python".encode(), "lib/a.so": b"\0" * (1 << 20) + prefix.encode()}
    channel.add("pytorch", "b_py312_0", files, records={"bin/tool": prefix})
    channel.publish()
    document = upload(channel, "--check")
    assert rules_of(document, refused=False) == [("prefix", "binaries name folders of the build: lib/a.so")]


def test_a_path_of_two_packages_is_refused(channel: Channel) -> None:
    channel.add("pytorch", "b_py312_0", {"lib/a.so": b"x"})
    channel.add("libtorch", "b_0", {"lib/a.so": b"x"})
    channel.publish()
    assert rules_of(upload(channel, "--check", code=14)) == [("clobber", "both install lib/a.so")]


def test_an_archive_with_something_more_in_it_is_refused(channel: Channel) -> None:
    path = channel.add("pytorch", "b_py312_0")
    with zipfile.ZipFile(path, "a") as outer:
        outer.writestr("more", "x")
    channel.publish()
    ((rule, text),) = rules_of(upload(channel, "--check", code=VerdictError.exit_code))
    assert rule == "archive"
    assert "more" in text


def test_a_damaged_package_is_an_error_that_names_it(release: Channel) -> None:
    release.publish()
    package = release.folder / "linux-64" / f"libtorch-2.13.0-{FLAVOUR}_h2_300.conda"
    package.write_bytes(package.read_bytes()[:-40])
    error = upload(release, "--check", code=6)["error"]
    assert error["message"].startswith(f"{package} cannot be read")


def test_a_rehearsal_and_what_was_never_built_are_nothing_to_upload(tmp_path: Path) -> None:
    invocation = Invocation(log_folder=tmp_path / "logs")
    rehearsed = call(invocation, "upload", f"{CONFIG}-rehearsal", "-o", str(tmp_path))
    assert (rehearsed.exit_code, "scaled model" in rehearsed.stderr) == (UsageError.exit_code, True)
    never = call(invocation, "upload", "../../etc", "-o", str(tmp_path))
    assert (never.exit_code, "nothing is published" in never.stderr) == (ConfigError.exit_code, True)


def test_logs_are_listed_and_packed_without_secrets(
    release: Channel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release.publish()
    logs = tmp_path / CONFIG / "logs"
    logs.mkdir(parents=True)
    (logs / f"{CONFIG}-1.log").write_text("began\nwith s3cr3t-token\n")
    (logs / "latest.log").symlink_to(f"{CONFIG}-1.log")
    monkeypatch.setenv("ANACONDA_API_TOKEN", "s3cr3t-token")
    document = upload(release, "--logs", str(tmp_path / "logs.zip"))
    assert document["logs"] == [str(logs / f"{CONFIG}-1.log")]
    assert "s3cr3t" not in json.dumps(document)
    with zipfile.ZipFile(tmp_path / "logs.zip") as archive:
        assert archive.namelist() == [f"{CONFIG}-1.log"]
        assert archive.read(f"{CONFIG}-1.log").decode() == "began\nwith ***\n"
    assert upload(release, "--logs", str(tmp_path / "logs.zip"), code=2)["error"]["message"].endswith(
        "exists"
    )
    (logs / f"{CONFIG}-1.log").unlink()
    assert "no logs" in upload(release, "--logs", str(tmp_path / "other.zip"), code=2)["error"]["message"]
    assert not (tmp_path / "other.zip").exists()


def test_people_are_told_the_same(release: Channel) -> None:
    release.publish()
    result = call(
        Invocation(log_folder=release.output), "upload", CONFIG, "-o", str(release.output), "--check"
    )
    assert result.exit_code == 0
    said = result.stdout
    assert "6 packages" in said
    assert said.index("--label cfep03") < said.index("--to-label main")
    assert "must be registered as an output of pytorch-cpu" in " ".join(said.split())
    assert "sha256 " in said
