"""What a build leaves in the end, whatever became of it: hashes and a zip of logs."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line.conclusion import conclude
from command_line.run_command import Invocation
from groundwork.errors import BuildError, Interrupted, UsageError
from groundwork.result import Result
from megabuild.plan import published

RUN = "linux_64_cpu"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output folder with a published package, a run's log, and what else may lie there."""
    output = tmp_path / "out"
    package = output / "packages" / RUN / "linux-64" / "libtorch-2.13.0-cpu_h1_0.conda"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"package")
    record = published.PublishedPackage(
        path=f"linux-64/{package.name}", size=7, fingerprint="f", modified=package.stat().st_mtime_ns,
        sha256="bc4a71180870f7945155fbb02f4b0a2e3faa2a62d6d31b7039013055ed19869a",
    )  # fmt: skip
    (output / "packages" / RUN / published.RECORDS).write_text(json.dumps({package.name: vars(record)}))
    logs = output / RUN / "logs"
    logs.mkdir(parents=True)
    (logs / f"{RUN}-2.log").write_text("compiled\n")
    (logs / "latest.log").symlink_to(f"{RUN}-2.log")
    (logs / f"{RUN}-1.log").write_text("of yesterday\n")
    os.utime(logs / f"{RUN}-1.log", (1, 1))
    (output / RUN / "run.json").write_text("{}")
    return output


def run(output: Path, action: Callable[[], Result]) -> Result:
    return conclude(action, output, Invocation(log_folder=output / "logs", runs=[RUN]))


def well() -> Result:
    return Result(format="run", document={"packages": []}, lines=["done"])


def failing(error: BaseException) -> Callable[[], Result]:
    def action() -> Result:
        raise error

    return action


def members(output: Path) -> set[str]:
    (archive,) = output.glob("logs-*.zip")
    return {name for name in zipfile.ZipFile(archive).namelist() if not name.endswith("/")}


def test_a_build_ends_with_hashes_and_its_own_logs(output: Path) -> None:
    result = run(output, well)
    assert result.document["sums"] == str(output / "SHA256SUMS")
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=output, check=True)
    assert "libtorch-2.13.0-cpu_h1_0.conda" in (output / "SHA256SUMS").read_text()
    assert members(output) == {f"{RUN}/{RUN}-2.log", f"{RUN}/run.json"}
    assert str(result.document["log_archive"]).endswith(".zip")
    assert not list(output.glob(".logs-*"))


def test_a_damaged_package_has_no_hash(output: Path) -> None:
    next(output.glob("packages/*/linux-64/*.conda")).write_bytes(b"rotten!")
    run(output, well)
    assert (output / "SHA256SUMS").read_text() == ""


def test_where_everything_was_there_no_logs_are_packed(output: Path) -> None:
    os.utime(output / RUN / "logs" / f"{RUN}-2.log", (1, 1))
    assert run(output, well).document["log_archive"] is None
    assert not list(output.glob("logs-*.zip"))


@pytest.mark.parametrize(
    "error", [BuildError("no"), Interrupted("stop"), KeyboardInterrupt(), ZeroDivisionError()]
)
def test_a_build_that_fails_leaves_the_same(output: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        run(output, failing(error))
    assert f"{RUN}/{RUN}-2.log" in members(output)


def test_after_a_wrong_command_line_nothing_is_left(output: Path) -> None:
    with pytest.raises(UsageError):
        run(output, failing(UsageError("no such option")))
    assert not (output / "SHA256SUMS").exists()


def test_a_disk_without_room_costs_these_and_nothing_else(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.make_archive", full)
    result = run(output, well)
    assert result.exit_code == 0
    assert any("No space left" in line for line in result.lines)


def test_a_link_among_the_logs_is_not_followed(output: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (output / RUN / "logs" / "x.log").symlink_to(tmp_path / "secret")
    run(output, well)
    assert f"{RUN}/x.log" not in members(output)
