"""What becomes of a private environment that is not whole."""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tiny import wait_for

from groundwork import bootstrap, installed, pip_settings
from groundwork.errors import IntegrityError, PreflightError


@pytest.mark.parametrize(
    "content", ["def main(:\n", "raise ValueError('torn')\n", "\0\0", "import nothing_of_that_name"]
)
def test_a_damaged_module_has_the_environment_set_up_anew(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "torn_module.py").write_text(content)
    (tmp_path / bootstrap.STAMP).write_text("the lock's digest")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    with pytest.raises(IntegrityError, match=r"missing from \.venv or damaged"):
        bootstrap.import_whole("torn_module")
    assert not (tmp_path / bootstrap.STAMP).exists()


def test_a_fault_of_ours_is_not_the_environment_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_module.py").write_text("def main(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SyntaxError):
        bootstrap.import_whole("our_module")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A repository on a disk that is read-only."""
    root = tmp_path / "repository"
    root.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "none", root], check=False, capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("only root may mount")
    yield root
    subprocess.run(["umount", "-l", root], check=True)


def test_a_repository_that_is_read_only_has_its_environment_in_the_cache(
    read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    assert bootstrap._home(read_only) == tmp_path / "cache" / "venv"
    assert bootstrap._home(tmp_path) == tmp_path / ".venv"
    monkeypatch.setenv("MEGABUILD_CACHE", "/proc/nowhere")
    with pytest.raises(PreflightError, match="can be written to"):
        bootstrap._home(read_only)


def test_pip_fetches_as_it_is_configured_to_and_installs_where_it_is_told_to(tmp_path: Path) -> None:
    configured = tmp_path / "pip.conf"
    configured.write_text(
        "[global]\nindex-url = https://mirror.example/simple\nproxy = http://proxy.example:3128\n"
        "extra-index-url = https://a.example\n  https://b.example\n"
        "[install]\ntarget = /somewhere\nproxy = http://other.example:3128\n[download]\nproxy = http://no.example\n"
    )
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(configured), "PIP_USER": "1",
        "PIP_TARGET": "/elsewhere", "PIP_DRY_RUN": "1", "PIP_CERT": "/etc/own.pem", "PIP_DEFAULT_TIMEOUT": "99",
    }  # fmt: skip
    made = pip_settings.environment(sys.executable, environ)
    assert {name: value for name, value in made.items() if name.startswith("PIP_")} == {
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "PIP_EXTRA_INDEX_URL": "\nhttps://a.example\nhttps://b.example".strip(),
        "PIP_PROXY": "http://other.example:3128",
        "PIP_CERT": "/etc/own.pem",
        "PIP_DEFAULT_TIMEOUT": "99",
        "PIP_CONFIG_FILE": os.devnull,
    }
    assert made["PATH"] == environ["PATH"]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """An environment with two distributions, one of which has a library."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name, version, files in (
        ("Plain.Name", "1.0", {"plain_name/__init__.py": b"x = 1\n"}),
        (
            "native",
            "2.0",
            {
                "native.py": b"import plain_name\n",
                "native.libs/libz.so.1": bytes(1000),
                "6ec57f__mypyc.py": b"",
            },
        ),
    ):
        record = [f"{name}-{version}.dist-info/RECORD,,"]
        for path, content in files.items():
            (site / path).parent.mkdir(exist_ok=True)
            (site / path).write_bytes(content)
            record.append(f"{path},sha256=x,{len(content)}")
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info" / "RECORD").write_text("\n".join(record))
    (tmp_path / "lock").write_text(
        "plain-name==1.0 \\\n    --hash=sha256:0\nnative==2.0 \\\n    --hash=sha256:0\n"
        "other==3.0 ; sys_platform == 'win32' \\\n    --hash=sha256:0\n"
    )
    return tmp_path / "env"


def _site(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def lacking(environment: Path) -> str:
    return installed.lacking(environment, environment.parent / "lock", environment / bootstrap.SIZES)


def test_a_whole_environment_lacks_nothing(fresh: Path) -> None:
    assert lacking(fresh) == ""
    assert "libz.so.1" in (fresh / bootstrap.SIZES).read_text()


def test_what_pip_put_elsewhere_is_missed(fresh: Path) -> None:
    (fresh.parent / "lock").write_text("native==2.1 \\\n    --hash=sha256:0\n")
    assert "native 2.1 was not installed" in lacking(fresh)


def test_a_file_that_did_not_fit_on_the_disk_is_found(fresh: Path) -> None:
    (_site(fresh) / "plain_name" / "__init__.py").write_bytes(b"")
    assert "has 0 bytes" in lacking(fresh)


def test_a_module_that_cannot_be_imported_is_found(fresh: Path) -> None:
    (_site(fresh) / "native.py").write_text("import plain_nama\n")
    assert "plain_nama" in lacking(fresh)
    assert not (fresh / bootstrap.SIZES).exists()


def test_a_truncated_library_is_seen_at_every_start(fresh: Path) -> None:
    lacking(fresh)
    bootstrap._stamp(fresh, "digest")
    assert bootstrap._is_complete(fresh, "digest")
    os.truncate(_site(fresh) / "native.libs" / "libz.so.1", 600)
    assert not bootstrap._is_complete(fresh, "digest")


def test_an_environment_made_before_sizes_were_noted_still_serves(fresh: Path) -> None:
    bootstrap._stamp(fresh, "digest")
    assert bootstrap._is_complete(fresh, "digest")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_hindrance(
    code: int, fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lockless(descriptor: object, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", lockless)
    bootstrap._stamp(fresh, "digest")
    bootstrap._hold(fresh / "bin" / "python")
    with bootstrap._alone(fresh.parent / "lock"):
        assert "no locks" in capsys.readouterr().err
    former = fresh.rename(fresh.parent / "run-cpython-3.11-old")
    bootstrap._remove_unused(fresh.parent / "run-cpython-3.11-new")
    assert former.is_dir()  # somebody may run in it


def test_what_sets_the_environment_up_ends_with_the_start_that_began_it(repository: Path) -> None:
    program = "import os; from groundwork.create_venv import _call; _call(['sleep', '61'], os.environ)"
    environ = {**os.environ, "PYTHONPATH": str(repository / "scripts")}
    with subprocess.Popen([sys.executable, "-c", program], env=environ) as process:
        own = psutil.Process(process.pid)
        assert wait_for(lambda: any(one.name() == "sleep" for one in own.children(recursive=True)))
        below = own.children(recursive=True)
        process.kill()
    assert wait_for(lambda: not any(one.is_running() and one.status() != "zombie" for one in below), 30)


def test_the_environment_of_running_tests_is_held() -> None:
    stamp = Path(sys.prefix) / bootstrap.STAMP
    if not stamp.exists() or not shutil.which("flock"):
        pytest.skip("not started by scripts/test, or without flock(1)")
    with stamp.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
