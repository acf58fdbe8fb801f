"""What a build leaves in the end, whatever became of it: manifest, zip of logs, a word to whoever wants it."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line.conclusion import concluded
from command_line.run_command import Invocation
from groundwork.errors import BuildError, Interrupted, ProviderError, UsageError
from groundwork.redact import Mask
from groundwork.result import Result
from megabuild.plan import published
from megabuild.run.manifest import leave

RUN = "linux_64_cpu"
WRITE = "env | grep ^MEGABUILD_ | sort > told; cat > document"


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output folder with a published package, a run's log, and what else may lie there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "hunter22")
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
    (logs / f"{RUN}-2.log").write_text("compiled with hunter22\n")
    (logs / "latest.log").symlink_to(f"{RUN}-2.log")
    (logs / f"{RUN}-1.log").write_text("of yesterday\n")
    os.utime(logs / f"{RUN}-1.log", (1, 1))
    (output / RUN / "run.json").write_text("{}")
    return output


def conclude(output: Path, action: Callable[[], Result], command: str | None = WRITE) -> Result:
    invocation = Invocation(
        log_folder=output / "logs", plans={RUN: {"config": RUN, "index": "https://u:hunter22@x"}}
    )
    return concluded(action, [RUN, "another"], output, invocation, command)


def well() -> Result:
    rows = [{"status": "built"}]
    return Result(format="run", document={"packages": rows}, lines=["done"])


def failing(error: BaseException) -> Callable[[], Result]:
    def action() -> Result:
        raise error

    return action


def told() -> dict[str, str]:
    return dict(line.split("=", 1) for line in Path("told").read_text().splitlines())


def test_a_build_ends_with_hashes_and_its_own_logs_without_secrets(output: Path) -> None:
    result = conclude(output, well)
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["format"] == "megabuild/manifest"
    (artifact,) = manifest["artifacts"]
    assert (artifact["config"], artifact["name"], artifact["build_string"]) == (RUN, "libtorch", "cpu_h1_0")
    assert (output / artifact["path"]).read_bytes() == b"package"
    assert (artifact["size"], artifact["sha256"][:8]) == (7, "bc4a7118")
    with zipfile.ZipFile(output / manifest["log_archive"]) as archive:
        assert sorted(archive.namelist()) == [f"{RUN}/{RUN}-2.log", f"{RUN}/plan.json", f"{RUN}/run.json"]
        assert archive.read(f"{RUN}/{RUN}-2.log") == b"compiled with ***\n"
        assert b"hunter22" not in archive.read(f"{RUN}/plan.json")
    assert result.document["manifest"] == str(output / "manifest.json")
    assert result.document["log_archive"] == str(output / manifest["log_archive"])
    assert any("manifest.json" in line for line in result.lines)


def test_a_damaged_artifact_is_not_in_the_manifest(output: Path) -> None:
    next(output.glob("packages/*/linux-64/*.conda")).write_bytes(b"rotten!")
    conclude(output, well)
    assert json.loads((output / "manifest.json").read_text())["artifacts"] == []


def test_where_everything_was_there_no_logs_are_packed(output: Path) -> None:
    result = conclude(output, lambda: Result(format="run", document={"packages": [{"status": "skipped"}]}))
    assert not list(output.glob("logs-*.zip"))
    assert (output / "manifest.json").is_file()
    assert result.document["log_archive"] is None


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BuildError("x.cpp:2: error: no (hunter22)\nmore"), "failed", "8"),
        (Interrupted("interrupted by SIGTERM"), "interrupted", "130"),
        (KeyboardInterrupt("SIGTERM"), "interrupted", "130"),
        (ZeroDivisionError("by zero"), "failed", "70"),
    ],
)
def test_a_failure_leaves_the_same_and_is_told(
    output: Path, error: BaseException, status: str, code: str
) -> None:
    with pytest.raises(type(error)):
        conclude(output, failing(error))
    assert list(output.glob("logs-*.zip"))
    assert (output / "manifest.json").is_file()
    assert (told()["MEGABUILD_STATUS"], told()["MEGABUILD_EXIT_CODE"]) == (status, code)
    assert told()["MEGABUILD_CONFIGS"] == f"{RUN} another"
    assert "\n" not in told()["MEGABUILD_SUMMARY"]
    document = json.loads(Path("document").read_text())
    assert document["error"]["exit_code"] == int(code)
    assert document["manifest"] == told()["MEGABUILD_MANIFEST"]
    assert document["log_archive"] == told()["MEGABUILD_LOGS"]
    assert "hunter22" not in Path("told").read_text().replace("MY_TOKEN", "") + Path("document").read_text()


def test_a_command_line_that_is_wrong_leaves_nothing_and_tells_nobody(output: Path) -> None:
    with pytest.raises(UsageError):
        conclude(output, failing(UsageError("no such option")))
    assert not (output / "manifest.json").exists()
    assert not Path("told").exists()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo no such user >&2; exit 3", "exit code 3: no such user"),
        ("/nowhere/notify", "exit code 127"),
    ],
)
def test_a_notification_that_fails_is_a_warning(
    output: Path, capsys: pytest.CaptureFixture[str], command: str, why: str
) -> None:
    assert conclude(output, well, command).exit_code == 0
    assert why in capsys.readouterr().err


def test_a_summary_of_several_names_those_that_failed_and_why(output: Path) -> None:
    configs = [
        {"config": "one", "exit_code": 0, "reason": "", "result": {"packages": [{"status": "built"}]}},
        {"config": "two", "exit_code": 8, "reason": "x.cpp:2: error: no", "result": {}},
        {"config": "three", "exit_code": None, "reason": "", "result": None},
    ]
    conclude(output, lambda: Result(format="runs", document={"configs": configs}, exit_code=8))
    assert told()["MEGABUILD_SUMMARY"] == "1 of 3 configs done; two: x.cpp:2: error: no"
    assert told()["MEGABUILD_STATUS"] == "failed"


def test_what_could_not_even_be_planned_leaves_nothing_but_is_told(output: Path) -> None:
    with pytest.raises(ProviderError):
        concluded(
            failing(ProviderError("no mirror")), [RUN], output, Invocation(log_folder=output / "logs"), WRITE
        )
    assert not (output / "manifest.json").exists()
    assert (told()["MEGABUILD_SUMMARY"], told()["MEGABUILD_MANIFEST"]) == ("no mirror", "")


def test_a_full_disk_costs_the_manifest_and_nothing_else(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("megabuild.run.manifest.log_archive.pack", full)
    assert conclude(output, well).exit_code == 0
    assert "no manifest and no zip of logs" in capsys.readouterr().err
    assert told()["MEGABUILD_STATUS"] == "done"
    assert not list(output.glob("logs-*"))


def test_a_link_among_the_logs_is_not_followed(output: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (output / RUN / "logs" / "x.log").symlink_to(tmp_path / "secret")
    left = leave(output, {RUN: {}}, 0.0, Mask({}), logs=True)
    assert left.logs is not None
    assert f"{RUN}/x.log" not in zipfile.ZipFile(left.logs).namelist()
