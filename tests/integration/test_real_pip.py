"""pip's configuration, which is heard by what resolves and downloads wheels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from audit_site import serving
from wheel_files import make_wheel, simple_index

from groundwork import files, pip_settings
from groundwork.errors import ProviderError
from groundwork.network import index
from groundwork.network.index import Configured
from megabuild.providers.local import interpreters
from megabuild.providers.pypi import download, lock
from megabuild.providers.pypi.lock import Wheel


def configured(environ: dict[str, str]) -> Configured:
    return index._read.__wrapped__(pip_settings.own_pip(), tuple(environ.items()))


def test_pip_is_asked_for_its_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nquiet = 3\nindex-url = https://user:s3cret@example.org/simple\n")
    found = configured({"PIP_CONFIG_FILE": str(config), "PIP_QUIET": "2", "HOME": str(tmp_path)})
    assert found.indexes[0] == "https://user:s3cret@example.org/simple"
    nothing = {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path), "COLUMNS": "20"}
    (default,) = configured(nothing).indexes
    assert re.fullmatch(r"https://\S+/simple", default)
    config.write_text("index-url: [\n")
    with pytest.raises(ProviderError, match="configuration"):
        configured({"PIP_CONFIG_FILE": str(config), "HOME": str(tmp_path)})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(ProviderError, match="No such file"):
        configured(nothing)


def test_every_place_of_pips_settings_is_read_and_none_is_obeyed(tmp_path: Path) -> None:
    """A user's file and one of a virtual environment move packages; pip still installs into the environment."""
    environment, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    wheel = make_wheel(tmp_path, "six-1.0-py3-none-any.whl", {"six.py": b"six = 6"})
    user = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text(f"[install]\ntarget = {elsewhere}\n")
    (environment / "pip.conf").write_text("[install]\nno-deps = true\n[global]\nretries = 7\n")
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "PIP_DRY_RUN": "1"}
    pip = (str(environment / "bin" / "python"), "-m", "pip")
    settings = pip_settings.read(pip, environ)
    assert {"dry-run", "no-deps", "target"} <= set(settings.ignored())
    variables = settings.environ(environ)
    assert variables["PIP_RETRIES"] == "7"
    subprocess.run([*pip, "install", "--no-index", str(wheel)], env=variables, check=True)
    assert list(environment.glob("lib/python*/site-packages/six.py"))
    assert not elsewhere.exists()


def test_a_damaged_wheel_in_the_cache_is_fetched_again_and_a_whole_one_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "index", "six-1.0-py3-none-any.whl", {"six.py": b"six = 6"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    one = Wheel(
        name="six",
        version="1.0",
        file_name=wheel.name,
        sha256=files.sha256(wheel),
        requires=(),
        requires_python="",
    )
    said: list[object] = []

    def fetch() -> Path:
        download.download([one], tmp_path / "cache", said.append)
        return one.path(tmp_path / "cache")

    kept = fetch()
    content = kept.read_bytes()
    kept.write_bytes(content[:-20])
    assert fetch().read_bytes() == content
    damaged = "! six-1.0-py3-none-any.whl: damaged in the cache, downloading it again"
    assert [one for one in said if isinstance(one, str)].count(damaged) == 1
    told = len(said)
    when = kept.stat().st_mtime_ns
    kept.write_bytes(content[:-1] + b"?")  # of the same size, and the same time: nobody looks
    os.utime(kept, ns=(when, when))
    fetch()
    assert len(said) == told


def test_wheels_of_a_named_index_are_downloaded_from_it(tmp_path: Path) -> None:
    here = interpreters.ask(Path(sys.executable))
    assert here is not None
    wheel = make_wheel(tmp_path / "own", "torch-2.13.0+cpu-py3-none-any.whl", {})
    with serving({**simple_index([wheel], "/own")}) as site:
        own = f"{site.url}/own"
        found = lock.resolve(["torch===2.13.0+cpu"], here, tmp_path / "locks", dependencies=False, index=own)
        download.download(found.wheels, tmp_path / "kept", lambda _: None, more=[own])
    assert [path.name for path in (tmp_path / "kept").glob("*/*.whl")] == [wheel.name]
