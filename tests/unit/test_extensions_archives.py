"""Sources of extensions: archives from a package index, the right one or an error and nothing; copies of checkouts."""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from audit_site import serving
from small_files import program, write

from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.index import Configured
from pyg_extensions import fetch_sources
from pyg_extensions.fetch_sources import download, unpack_sources
from pyg_extensions.table import ExtensionRelease, find

CONTENT = b"an archive"
RELEASE = ExtensionRelease(name="torch_scatter", version="2.1.2", sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A simple index with one project."""
    project = tmp_path / "index" / "torch-scatter"
    project.mkdir(parents=True)
    (project / RELEASE.archive).write_bytes(CONTENT)
    links = ["torch_scatter-2.1.1.tar.gz", RELEASE.archive, "torch_scatter-2.1.2-cp312-cp312-win_amd64.whl"]
    (project / "index.html").write_text("".join(f'<a href="{link}">{link}</a>' for link in links))
    return tmp_path / "index"


def where(index: Path) -> Callable[[], Configured]:
    return lambda: Configured(indexes=(index.as_uri(),))


def test_a_damaged_archive_is_downloaded_again_and_another_file_refused(index: Path, tmp_path: Path) -> None:
    folder = download([RELEASE], tmp_path / "cache", where(index))
    (folder / RELEASE.archive).write_bytes(b"half an arch")
    assert (download([RELEASE], tmp_path / "cache", where(index)) / RELEASE.archive).read_bytes() == CONTENT
    (index / "torch-scatter" / RELEASE.archive).write_bytes(b"something else")
    with pytest.raises(IntegrityError, match=r"torch_scatter-2\.1\.2\.tar\.gz: sha256 is"):
        download([RELEASE], tmp_path / "empty", where(index))
    assert not list((tmp_path / "empty").rglob("torch_scatter*"))


@pytest.mark.parametrize("has_hashes", [True, False])
def test_an_archive_comes_from_the_index_with_the_matrixs_hash(
    has_hashes: bool, index: Path, tmp_path: Path
) -> None:
    """A company's index may have a changed archive under the same name."""
    other = shutil.copytree(index, tmp_path / "other")
    (other / "torch-scatter" / RELEASE.archive).write_bytes(b"something else")
    for folder in (other, index) if has_hashes else (other,):
        page = folder / "torch-scatter" / "index.html"
        digest = hashlib.sha256((folder / "torch-scatter" / RELEASE.archive).read_bytes()).hexdigest()
        page.write_text(
            page.read_text().replace(f'"{RELEASE.archive}"', f'"{RELEASE.archive}#sha256={digest}"')
        )
    both = Configured(indexes=(other.as_uri(), index.as_uri()))
    assert (download([RELEASE], tmp_path / "cache", lambda: both) / RELEASE.archive).read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["missing", "changed"])
def test_an_archive_that_an_index_lists_but_does_not_have_comes_from_the_next_one(
    fault: str, index: Path, tmp_path: Path
) -> None:
    """No index lists a hash."""
    other = shutil.copytree(index, tmp_path / "other")
    archive = other / "torch-scatter" / RELEASE.archive
    archive.unlink()
    if fault == "changed":
        archive.write_bytes(b"something else")
    both = Configured(indexes=(other.as_uri(), index.as_uri()))
    assert (download([RELEASE], tmp_path / "cache", lambda: both) / RELEASE.archive).read_bytes() == CONTENT
    alone = Configured(indexes=(other.as_uri(),))
    with pytest.raises((ProviderError, IntegrityError), match=re.escape(RELEASE.archive)):
        download([RELEASE], tmp_path / "empty", lambda: alone)


def test_sources_that_no_index_has_can_be_passed_in_a_folder(index: Path, tmp_path: Path) -> None:
    (index / "torch-scatter" / "index.html").write_text("")
    with pytest.raises(
        ProviderError, match=r"^torch_scatter 2\.1\.2: no sources: torch-scatter: not found"
    ) as told:
        unpack_sources(
            find("torch_scatter"),
            RELEASE,
            tmp_path,
            folder=None,
            cache=tmp_path / "cache",
            indexes=where(index),
        )
    assert told.value.remedy.endswith("or pass a folder with the archive: --pyg-sources DIR")


def test_an_archive_without_a_setup_script_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / RELEASE.archive, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("torch_scatter-2.1.2/csrc/a.cpp"))
    with pytest.raises(IntegrityError, match=rf"{RELEASE.archive}: no setup\.py"):
        unpack_sources(
            find("torch_scatter"),
            replace(RELEASE, sha256=""),
            tmp_path / "work",
            folder=tmp_path,
            cache=tmp_path,
        )


@pytest.mark.parametrize("name", ["pytorch_scatter", "torch_scatter"])
def test_an_archive_in_the_folder_comes_before_a_checkout_and_only_with_its_hash(
    name: str, tmp_path: Path
) -> None:
    """Sources are named by the archive then, so a checkout must not be compiled in its place."""
    scatter = find("torch_scatter")
    write(tmp_path / name / "setup.py", "of the checkout")
    packed = tmp_path / RELEASE.archive
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(write(tmp_path / "setup.py", "of the archive"), "torch_scatter-2.1.2/setup.py")
        archive.add(write(tmp_path / "a.cpp"), "torch_scatter-2.1.2/a.cpp")
    released = replace(RELEASE, sha256=hashlib.sha256(packed.read_bytes()).hexdigest())
    assert fetch_sources.source_identity(scatter, released, tmp_path) == released.sha256

    def unpacked(release: ExtensionRelease, work: str) -> str:
        made = unpack_sources(scatter, release, tmp_path / work, folder=tmp_path, cache=tmp_path / "cache")
        return (made / "setup.py").read_text()

    assert unpacked(released, "one") == "of the archive"
    with pytest.raises(IntegrityError, match=r"2\.1\.2\.tar\.gz: sha256 is"):
        unpacked(RELEASE, "two")
    packed.unlink()
    assert unpacked(released, "three") == "of the checkout"


def test_an_archive_that_goes_on_and_on_is_cut_short(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sources, "_LARGEST", len(CONTENT) - 1)
    page = (index / "torch-scatter" / "index.html").read_bytes()
    with serving({"/torch-scatter/": page}, folder=index) as site:
        served = Configured(indexes=(f"{site.url}/",))
        with pytest.raises(ProviderError):
            download([RELEASE], tmp_path / "cache", lambda: served)
        monkeypatch.setattr(fetch_sources, "_LARGEST", len(CONTENT))
        assert download([RELEASE], tmp_path / "cache", lambda: served)


def test_the_files_of_an_earlier_build_in_a_checkout_are_not_copied(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("setup.py", "build/lib/pkg/removed.py", "dist/a-1.whl", "csrc/build/a.cpp"):
        write(checkout / name, name)
    copy = fetch_sources._copy_checkout(checkout, tmp_path / "copy")
    found = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file())
    assert found == ["csrc/build/a.cpp", "setup.py"]


def test_all_files_of_a_read_only_checkout_are_copied_and_can_be_written(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("setup.py", "csrc/a.cpp"):
        write(checkout / name, name).chmod(0o444)
    (checkout / "link").symlink_to("setup.py")
    (checkout / "dangling").symlink_to("csrc/removed.cpp")
    for folder in (checkout / "csrc", checkout):
        folder.chmod(0o555)
    copy = fetch_sources._copy_checkout(checkout, tmp_path / "copy")
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*")} == {
        "setup.py", "csrc", "csrc/a.cpp", "link", "dangling",
    }  # fmt: skip
    assert all(path.lstat().st_mode & 0o200 for path in (copy, *copy.rglob("*")))
    assert (checkout / "setup.py").stat().st_mode & 0o777 == 0o444
    for folder in (checkout, checkout / "csrc"):
        folder.chmod(0o755)


@pytest.mark.parametrize("only_try", [True, False])
def test_an_extension_without_archives_is_cloned_with_its_submodules_or_only_asked_for(
    only_try: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = f'echo "$GIT_TERMINAL_PROMPT $*" >"{tmp_path}/asked"'
    program(tmp_path / "bin/git", asked)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    extension, target = find("pyg_lib"), tmp_path / "checkout"
    fetch_sources._clone(extension, "0.6.0", target, "x", only_try=only_try)
    words = (tmp_path / "asked").read_text().split()
    ask = ["ls-remote", "--exit-code", extension.git, "refs/tags/0.6.0"]
    clone = [
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--branch",
        "0.6.0",
        "--recurse-submodules",
        "--shallow-submodules",
    ]
    assert words[0] == "0"
    assert (
        words[-len(ask) :] == ask
        if only_try
        else words[-len(clone) - 2 :] == [*clone, extension.git, str(target)]
    )


def test_a_machine_without_git_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match=r"^x: git is not installed$") as told:
        fetch_sources._clone(find("pyg_lib"), "0.6.0", tmp_path / "checkout", "x", only_try=False)
    assert told.value.remedy.startswith("install git, or put a checkout with its submodules into DIR/pyg-lib")
