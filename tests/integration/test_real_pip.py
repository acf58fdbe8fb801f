"""pip's configuration, which is heard by what resolves and downloads wheels."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from audit_site import serving
from wheel_files import make_wheel, simple_index

from groundwork import files
from groundwork.errors import ProviderError
from groundwork.network import index
from groundwork.network.index import Configured
from megabuild.providers.local import interpreters
from megabuild.providers.pypi import download, lock
from megabuild.providers.pypi.lock import Wheel


def configured(environ: dict[str, str]) -> Configured:
    return index._read.__wrapped__(tuple(environ.items()))


def test_pip_is_asked_for_its_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pip")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://user:s3cret@example.org/simple\n")
    found = configured({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), "PATH": ""})
    assert found.indexes[0] == "https://user:s3cret@example.org/simple"
    nothing = {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path), "PATH": ""}
    (default,) = configured(nothing).indexes
    assert re.fullmatch(r"https://\S+/simple", default)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert configured(nothing).indexes == ()


def test_a_pip_without_an_answer_is_not_one_without_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SECONDS", 0.001)
    with pytest.raises(ProviderError, match="pip config list"):
        configured({})


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
