"""`megabuild sizes` for requirements: what an installation would take, from the wheels' directories."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_site import serving
from calling import call
from wheel_files import make_wheel

from command_line.run_command import Invocation
from gpu_tools.sizes import uninstalled
from gpu_tools.sizes.uninstalled import parse_requirements
from groundwork.errors import ProviderError, UsageError
from groundwork.network import resolver
from groundwork.network.client import NO_PARTS, NetworkError
from groundwork.network.index import Configured, File
from groundwork.network.wheel_contents import BROKEN

TAG = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of pip's indexes."""
    folder = tmp_path / "index"
    folder.mkdir()
    torch = {"torch/lib/libtorch_cuda.so": b"c" * 5000, "torch/x.py": b"x" * 900}
    requires = ["nvidia-cublas==13.*; platform_system == 'Linux'", "colorama; sys_platform == 'win32'"]
    make_wheel(folder, f"torch-2.15.0-{TAG}.whl", torch, requires=requires)
    cublas = "nvidia_cublas-13.1-py3-none-manylinux_2_28_x86_64.whl"
    make_wheel(folder, cublas, {"nvidia/lib/libx.so": b"n" * 70_000})
    make_wheel(folder, "vision-1.0-py3-none-any.whl", {"vision/x.py": b"v" * 300}, requires=["torch>=2"])
    monkeypatch.setattr(uninstalled, "configured", lambda: Configured(links=(str(folder),)))
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    return folder


def installed(folder: Path, *names: str) -> int:
    """Return the bytes of the unpacked wheels whose names begin so."""
    wheels = [path for path in folder.iterdir() if path.name.startswith(names)]
    return sum(info.file_size for path in wheels for info in zipfile.ZipFile(path).infolist())


def test_each_requirement_counts_with_what_it_needs_and_all_count_once(
    index: Path, invocation: Invocation
) -> None:
    done = call(invocation, "sizes", "torch==2.15.0", "vision", "--python", "3.12", "--json")
    torch, vision, together = json.loads(done.stdout)["subjects"]
    assert torch["installed"] == installed(index, "torch", "nvidia")
    assert torch["download"] == sum(path.stat().st_size for path in index.glob("*x86_64.whl"))
    required = {package["name"]: package["required_by"] for package in vision["packages"]}
    assert required == {"nvidia-cublas": ["torch"], "torch": ["vision"], "vision": []}
    assert together["installed"] == vision["installed"] == installed(index, "")
    lines = call(invocation, "sizes", "vision", "--python", "3.12", "--all").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines[lines.index("") + 2 :]]
    assert names == ["nvidia-cublas", "torch", "vision"], "the largest first"


@pytest.mark.parametrize(
    "words", [("vision", "--python", "3"), ("vision", "."), ("nosuch-thing", "--python", "3.12")]
)
def test_a_wrong_request_is_a_sentence(words: tuple[str, ...], index: Path, invocation: Invocation) -> None:
    done = call(invocation, "sizes", *words)
    assert (done.exit_code in (2, 5), done.stderr.splitlines()[-1].startswith("hint: ")) == (True, True)


def test_a_server_without_ranges_is_said_and_nothing_is_downloaded(
    index: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "".join(f'<a href="{path.name}">{path.name}</a>' for path in index.iterdir())
    with serving({"/": page.encode()}, folder=index) as site:
        site.ranges = False
        monkeypatch.setattr(uninstalled, "configured", lambda: Configured(links=(f"{site.url}/",)))
        shown = call(invocation, "sizes", "torch", "--python", "3.12").stdout
    assert "torch-2.15.0" in shown
    assert shown.count("whole files") == 2


@pytest.mark.parametrize(
    "address", ["file:///folder/six-1.0-py3-none-any.whl", "https://example.org/six.zip"]
)
def test_a_requirement_with_an_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not addresses"):
        parse_requirements(["jax", f"six @ {address}"])


@pytest.mark.parametrize("python", ["3.10", "3.14"])
def test_wheels_are_chosen_for_the_python_that_is_asked_for(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[Sequence[str], str]] = []

    def resolve(requirements: Sequence[str], target: resolver.Target, *_: object, **__: object) -> list[File]:
        chosen.append((requirements, target.version))
        return []

    monkeypatch.setattr(uninstalled, "configured", Configured)
    monkeypatch.setattr(resolver, "resolve", resolve)
    sizes = uninstalled.measure_requirements(["a", "b"], python, print)
    assert chosen == [(["a"], python), (["b"], python), (["a", "b"], python)]
    assert [measured.subject for measured in sizes] == ["a", "b", "all together"]


def test_a_broken_wheel_of_an_index_is_named(index: Path, invocation: Invocation) -> None:
    (wheel,) = index.glob("vision-*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-10])
    done = call(invocation, "sizes", "vision", "--python", "3.12")
    assert done.exit_code == 5
    assert "error: wheels for Python 3.12 cannot be resolved: " in done.stderr
    assert wheel.name in done.stderr


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda whole: whole[:-10], "File is not a zip file"),
        (lambda whole: b"", "File is not a zip file"),
        (lambda whole: whole.replace(b"METADATA", b"METADAT."), "not exactly one METADATA of at most"),
    ],
    ids=["cut", "empty", "no metadata"],
)
def test_a_wheel_that_breaks_after_it_was_chosen_is_named(
    damage: Callable[[bytes], bytes],
    reason: str,
    index: Path,
    invocation: Invocation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or an index that has its metadata next to the wheel, which uv then does not read."""
    (wheel,) = index.glob("vision-*.whl")
    resolve = resolver.resolve

    def chosen(*words: Any, **options: Any) -> Any:
        files = resolve(*words, **options)
        wheel.write_bytes(damage(wheel.read_bytes()))
        return files

    monkeypatch.setattr(resolver, "resolve", chosen)
    done = call(invocation, "sizes", "vision", "--python", "3.12")
    assert done.exit_code == 5
    assert f"error: {wheel.name}: broken wheel: {reason}" in done.stderr
    assert done.stderr.splitlines()[-1] == "hint: check the file on pip's index"


@pytest.mark.parametrize("error", [error("x") for error in BROKEN] + [OSError("x")], ids=repr)
def test_a_broken_wheel_is_named_whatever_breaks_in_it(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise error

    monkeypatch.setattr(uninstalled, "_read_content", read)
    file = cast(Any, SimpleNamespace(name="a.whl"))
    with pytest.raises(ProviderError, match=r"a\.whl: broken wheel: x"):
        uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=[])


@pytest.mark.parametrize("status", [*sorted(NO_PARTS), 404, 500, 0])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_only_a_server_without_parts_leaves_a_wheel_unmeasured(
    status: int, has_metadata: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise NetworkError("x", status=status)

    monkeypatch.setattr(uninstalled, "_read_content", read)
    monkeypatch.setattr(uninstalled, "metadata_beside", lambda *_: b"Name: a\nDescription: \xff")
    file = cast(Any, SimpleNamespace(name="a.whl", metadata=has_metadata))
    remarks: list[str] = []
    if status not in NO_PARTS:
        with pytest.raises(NetworkError):
            uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=remarks)
        return
    found = uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=remarks)
    assert (found.download, found.metadata.startswith("Name: a")) == (None, has_metadata)
    assert remarks == ["a.whl: not measured: its server sends whole files only"]
