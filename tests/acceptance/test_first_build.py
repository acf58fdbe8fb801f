"""README's quick start and docs/first-build.md from top to bottom, in one fresh checkout, as a newcomer types them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pages import REPOSITORY, documented
from places import link_environment
from product import Place, clone_with_changes, make_place

#: A newcomer's machine has one Python, so nothing is swapped; tests/integration/test_rehearsal.py builds several.
REHEARSE = documented("python3 build-locally.py linux_64_cpu --rehearse")


@pytest.fixture(scope="module")
def newcomer(checkout: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A checkout in which the tests of this file work one after the other.

    Only time would be lost without the environment of the shared checkout, whose first start made it, and without the
    objects and packages of this machine's cache. tests/acceptance/test_bare_debian.py begins with nothing.
    """
    folder = tmp_path_factory.mktemp("newcomer")
    place = replace(make_place(folder), variables={**checkout.variables})
    # README's own line, with this repository's address
    command = documented("git clone URL megabuild && cd megabuild", {"URL": REPOSITORY})
    place.run(f"{command} && git log -1").succeeded()
    clone_with_changes(REPOSITORY, folder / "with-changes")
    for path in (folder / "megabuild", folder / "with-changes"):
        assert (path / "build-locally.py").is_file()
    link_environment(checkout, folder / "with-changes")
    cache = Path(os.environ.get("MEGABUILD_CACHE") or Path.home() / ".cache" / "megabuild")
    cache.mkdir(parents=True, exist_ok=True)
    (place.home / ".cache").mkdir()
    (place.home / ".cache" / "megabuild").symlink_to(cache)
    return replace(place, folder=folder / "with-changes")


@pytest.fixture(scope="module")
def rehearsed(newcomer: Place) -> Place:
    newcomer.run(REHEARSE).succeeded()
    return newcomer


def test_the_miniature_is_built_installed_and_imported(rehearsed: Place) -> None:
    packages = list(rehearsed.folder.glob("output/packages/linux_64_cpu-rehearsal/linux-64/*.conda"))
    assert {"libtorch", "pytorch"} <= {path.name.partition("-")[0] for path in packages}
    rehearsed.run(
        documented("python3 scripts/megabuild env create ./env pytorch --from linux_64_cpu-rehearsal")
    ).succeeded()
    for command in (
        documented('env/bin/python -c "import torch; print(torch.__version__)"'),
        documented("env/bin/python -c 'import torch; print(torch.__version__)'"),
        documented(". env/activate") + " && python -c 'import torch; print(torch.__version__)'",
    ):
        assert rehearsed.run(command).succeeded() == "2.13.0\n"


def test_nothing_outside_checkout_and_cache_is_left(rehearsed: Place) -> None:
    # "To uninstall, delete the checkout and ~/.cache/megabuild."
    left = sorted(str(path.relative_to(rehearsed.home)) for path in rehearsed.home.glob(".*/*"))
    assert left == [".cache/megabuild"]
    assert "??" not in rehearsed.run("git status --porcelain").succeeded()


def test_a_second_run_builds_nothing_and_gives_one_json_document(rehearsed: Place) -> None:
    answer = rehearsed.run(
        documented("python3 build-locally.py linux_64_cpu --rehearse --json > result.json")
    )
    answer.succeeded()
    assert json.loads((rehearsed.folder / "result.json").read_text())
    assert "compile" not in answer.errors


def test_a_deadline_far_away_changes_nothing(rehearsed: Place) -> None:
    command = documented("python3 build-locally.py linux_64_cpu --deadline 5h30m")
    assert "exist" in rehearsed.run(f"{command} --rehearse").succeeded()


def test_status_shows_the_finished_run(rehearsed: Place) -> None:
    assert (
        "linux_64_cpu-rehearsal" in rehearsed.run(documented("python3 scripts/megabuild status")).succeeded()
    )


def test_a_page_shows_where_the_time_went(rehearsed: Place) -> None:
    rehearsed.run(documented("python3 scripts/megabuild status --page time.html")).succeeded()
    page = (rehearsed.folder / "time.html").read_text(encoding="utf-8")
    assert "linux_64_cpu-rehearsal" in page
    assert re.search(r"cores idled: .* Longest step: \S+, ", re.sub(r"<[^>]*>|\s+", " ", page))
    assert "libtorch: compile" in page
    assert re.search(r"\d+ (?:compiled|from the object cache), ", page)


def test_a_broken_source_is_named_and_mended(rehearsed: Place) -> None:
    rehearsed.run(
        documented("echo '#error broken on purpose' >> rehearsal/model/c10/core/Device.cpp")
    ).succeeded()
    broken = rehearsed.run(REHEARSE).ended_with(8)
    # the page's sentence, whatever the number of lines of the file
    assert re.search(r"c10/core/Device\.cpp:\d+: error: #error broken on purpose", broken)
    again = documented("output/linux_64_cuda130/failed-again", {"linux_64_cuda130": "linux_64_cpu-rehearsal"})
    assert again.split("/")[-1] in broken
    assert rehearsed.run(again).exit_code != 0
    source = rehearsed.folder / "output" / "linux_64_cpu-rehearsal" / "tree" / "c10" / "core" / "Device.cpp"
    source.write_text(source.read_text().replace("#error broken on purpose\n", ""))
    rehearsed.run(again).succeeded()
    rehearsed.run(documented("git checkout rehearsal/model")).succeeded()
    mended = rehearsed.run(REHEARSE).succeeded()
    assert "exist" in mended, "the packages of the whole source are published already"


KERNELS = Path("rehearsal/model/aten/src/ATen/native/LinearAlgebra.cpp")


@pytest.mark.long  # three rehearsals
def test_a_wrong_kernel_is_found_by_pytorch_s_own_tests(rehearsed: Place) -> None:
    """The miniature's tests, which a rehearsal leaves out, as conda-forge's configs run PyTorch's."""
    command = f"{REHEARSE} --upstream-tests"
    passed = rehearsed.run(command).succeeded()
    assert "pytorch-tests" in passed
    source = rehearsed.folder / KERNELS
    right = source.read_text()
    sum_of_products = "+= self.data()[i * inner + k]"
    wrong = right.replace(
        sum_of_products, sum_of_products.replace("=", "= (rows == 2 && columns == 2 ? 0.5 : 0) +")
    )
    assert wrong != right
    source.write_text(wrong)
    told = rehearsed.run(command).ended_with(15)
    assert re.search(r"1 of PyTorch's own tests failed; its packages are kept", told)
    assert "  test_torch.py::TestTorch::test_matmul\n" in told
    # the packages are usable, and the hint's command repeats the test
    hint = re.search(r"hint: repeat one alone: (.*)", told)
    assert hint is not None
    repeated = rehearsed.run(f"rm -rf env && {hint[1]}")
    assert "test_torch.py::TestTorch::test_matmul" in repeated.ended_with(1)
    source.write_text(right)
    mended = rehearsed.run(command).succeeded()
    assert "pytorch-tests" in mended


def test_the_packages_of_the_last_run_can_be_kept(rehearsed: Place) -> None:
    command = documented("python3 build-locally.py linux_64_cpu --environments kept --plan")
    told = rehearsed.run(f"{command} --rehearse").succeeded()
    assert re.search(r"environments of \d+ \w+: no package is newer", told)


def test_clean_lists_then_removes_the_tree(rehearsed: Place) -> None:
    tree = rehearsed.folder / "output" / "linux_64_cpu-rehearsal" / "tree"
    assert "tree" in rehearsed.run(documented("python3 scripts/megabuild clean")).succeeded()
    assert tree.is_dir()
    rehearsed.run(
        documented("python3 scripts/megabuild clean linux_64_cpu-rehearsal --kind tree --apply")
    ).succeeded()
    assert not tree.exists()
    assert list(rehearsed.folder.glob("output/packages/linux_64_cpu-rehearsal/linux-64/*.conda"))
