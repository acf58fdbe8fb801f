"""Another feedstock, built with this machine's compiler and PyPI alone; all configs in sequence with one zip of logs."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from pages import REPOSITORY, documented
from product import Place

#: A C library in a staging output, and a program that links to it.
STAND_IN = REPOSITORY / "tests" / "data" / "greet-feedstock"
ON_HOST = " --provider local --engine host"


@pytest.fixture
def feedstock(tmp_path: Path) -> Path:
    """A feedstock with two configs, of which the second cannot be compiled."""
    folder = tmp_path / "greet-feedstock"
    shutil.copytree(STAND_IN, folder)
    config = folder / ".ci_support" / "linux_64_.yaml"
    second = folder / ".ci_support" / "linux_64_broken.yaml"
    second.write_text(config.read_text() + "greeting:\n- broken\n")
    commands = [
        "git init -q",
        "git add -A",
        "git -c user.name=N -c user.email=n@example.org commit -qm first",
    ]
    subprocess.run(" && ".join(commands), shell=True, cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def place(checkout: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The shared checkout; objects and packed compilers are in a cache of these tests' own."""
    cache = tmp_path_factory.mktemp("cache")
    return replace(checkout, variables={**checkout.variables, "MEGABUILD_CACHE": str(cache)})


def test_configs_are_listed_planned_and_built(place: Place, feedstock: Path) -> None:
    listing = documented(
        "python3 build-locally.py --root ../psutil-feedstock", {"../psutil-feedstock": feedstock}
    )
    listed = place.run(listing)
    listed.succeeded()
    assert "linux_64_" in listed.output
    one: dict[str, str | Path] = {
        "../psutil-feedstock": feedstock,
        "linux_64_python3.12.____cpython": "linux_64_",
    }
    plan = documented(
        "python3 build-locally.py --root ../psutil-feedstock linux_64_python3.12.____cpython --plan", one
    )
    assert "libgreet-1.2.3-" in place.run(plan).text
    build = documented(
        "python3 build-locally.py --root ../psutil-feedstock linux_64_python3.12.____cpython --provider local",
        one,
    )
    place.run(f"{build} --engine host").succeeded()
    channel = feedstock / "output" / "packages" / "linux_64_" / "linux-64"
    assert {path.name.partition("-")[0] for path in channel.glob("*.conda")} == {"libgreet", "greet"}
    again = documented(
        "python3 build-locally.py --root ../zstd-feedstock linux_64_", {"../zstd-feedstock": feedstock}
    )
    assert "exist" in place.run(again + ON_HOST).succeeded()


def test_all_configs_in_sequence_end_with_one_zip_of_all_logs(place: Place, feedstock: Path) -> None:
    (feedstock / "recipe" / "src" / "main.c").write_text("#error broken on purpose\n")
    many = documented(
        "python3 build-locally.py --root ../psutil-feedstock 'linux_64_python3.1[123].____cp*'",
        {"../psutil-feedstock": feedstock, "linux_64_python3.1[123].____cp*": "linux_64_*"},
    )
    assert "libgreet" in place.run(many + ON_HOST + " --plan").text
    everything = f"CPU_COUNT=2 scripts/build-all.sh --root {feedstock}{ON_HOST}"
    failed = place.run(everything).ended_with(8)
    assert "broken on purpose" in failed
    archives = list((feedstock / "output").rglob("*.zip"))
    assert len(archives) == 1, archives
    assert archives[0].name in failed, "the last lines name the archive"
    with zipfile.ZipFile(archives[0]) as archive:
        names = archive.namelist()
        logs = [name for name in names if name.endswith(".log")]
        text = "".join(archive.read(name).decode(errors="replace") for name in logs)
    assert any("linux_64_broken" in name for name in names)
    assert any("linux_64_/" in name or "linux_64_-" in name for name in names), names
    assert "broken on purpose" in text
    # after the mend, the same command builds the missing packages and skips the others
    shutil.copy(STAND_IN / "recipe" / "src" / "main.c", feedstock / "recipe" / "src" / "main.c")
    place.run(everything).succeeded()
    assert "exist" in place.run(everything).succeeded()


#: A recipe of one package, not a list of outputs.
ONE_PACKAGE = """\
schema_version: 1
context:
  version: 1.10
package:
  name: dialect
  version: ${{ version }}
build:
  number: 0
  string: ${{ dialect }}_0
  skip:
    - win
    - version == "1.1"
    - if: linux
      then: dialect == "cockney"
  script:
    - mkdir -p $PREFIX/share
    - echo ${{ dialect }} > $PREFIX/share/dialect
tests:
  - package_contents:
      files: [share/dialect]
"""


def test_what_a_recipe_of_one_package_skips_is_neither_planned_nor_built(
    place: Place, feedstock: Path
) -> None:
    (feedstock / "recipe" / "recipe.yaml").write_text(ONE_PACKAGE)
    some = feedstock / ".ci_support" / "linux_64_.yaml"
    none = feedstock / ".ci_support" / "linux_64_broken.yaml"
    config = some.read_text()
    some.write_text(config + "dialect:\n- cockney\n- scots\n")
    none.write_text(config + "dialect:\n- cockney\n")
    command = f"python3 build-locally.py --root {feedstock}"
    plan = place.run(f"{command} linux_64_{ON_HOST} --plan").succeeded()
    assert "dialect-1.10-scots_0" in plan
    assert "cockney_0" not in plan
    place.run(f"{command} linux_64_{ON_HOST}").succeeded()
    channel = feedstock / "output" / "packages" / "linux_64_" / "linux-64"
    assert [path.name for path in channel.glob("*.conda")] == ["dialect-1.10-scots_0.conda"]
    nothing = "nothing to build: the recipe skips all packages for this config"
    assert nothing in place.run(f"{command} linux_64_broken{ON_HOST}").succeeded()


def test_the_audit_reads_any_feedstock(place: Place, feedstock: Path) -> None:
    for command in (
        documented(
            "python3 scripts/megabuild audit --root ../fmt-feedstock", {"../fmt-feedstock": feedstock}
        ),
        documented("python3 scripts/megabuild audit --root FEEDSTOCK", {"FEEDSTOCK": feedstock}),
    ):
        answer = place.run(f"{command} --json")
        answer.succeeded()
        assert json.loads(answer.output)
