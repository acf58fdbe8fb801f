"""What docs/migrations.md promises: a rebuild costs what changed, the plan says so before, and no config waits."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from pages import documented
from product import Place

pytestmark = pytest.mark.long  # rehearsals, the first with an empty cache
REHEARSE = documented("python3 build-locally.py linux_64_cpu --rehearse")
#: The model's sources that read a header of the environment in these tests.
READERS = ("c10/core/Device.cpp", "c10/util/Exception.cpp")


def write_wheel(folder: Path, name: str, version: str, *, header: str = "") -> None:
    """Put a wheel with one module, and maybe the header ``model_limits.h``, into a folder; it replaces other versions."""
    folder.mkdir(exist_ok=True)
    for former in folder.glob(f"{name}-*.whl"):
        former.unlink()
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"__version__ = '{version}'\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if header:
        files[f"{name}-{version}.data/data/include/model_limits.h"] = header
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            wheel.writestr(path, text)


@dataclass(frozen=True)
class Migrating:
    """A rehearsed checkout, whose environment has wheels of the test's own."""

    place: Place
    wheels: Path
    cache: Path

    def command(self, options: str = "") -> str:
        """Run the rehearsal's command with options; return its text. New wheels are noticed."""
        shutil.rmtree(self.cache / "wheels" / "locks", ignore_errors=True)
        command = f"{REHEARSE} {options}"
        answer = self.place.run(command, PIP_FIND_LINKS=self.wheels, MEGABUILD_CACHE=self.cache)
        return " ".join(answer.succeeded().split())

    @property
    def compiled(self) -> list[str]:
        """The sources of the last run's objects, without those of the packages' tests."""
        found: list[str] = []
        for line in self.log.splitlines():
            built = re.search(r" Building \w+ object \S+\.dir/(\S+)\.o$", line)
            if built is not None and " test:" not in line:
                found.append(built[1])
        return sorted(found)

    @property
    def log(self) -> str:
        return (self.place.folder / "output/linux_64_cpu-rehearsal/logs/latest.log").read_text()

    @property
    def packages(self) -> dict[str, int]:
        """The dates of the published packages."""
        paths = self.place.folder.glob("output/packages/linux_64_cpu-rehearsal/*/*.conda")
        return {path.name: path.stat().st_mtime_ns for path in paths}


def raise_build_number(checkout: Place) -> None:
    recipe = checkout.folder / "recipe" / "recipe.yaml"
    text = recipe.read_text()
    raised = text.replace('provider == "conda-forge" else 0 }}', 'provider == "conda-forge" else 7 }}')
    assert raised != text
    recipe.write_text(raised)


@pytest.fixture
def migrating(own_checkout: Place, tmp_path: Path) -> Migrating:
    for name in READERS:
        source = own_checkout.folder / "rehearsal" / "model" / name
        source.write_text(f"#include <model_limits.h>\n{source.read_text()}")
    found = Migrating(place=own_checkout, wheels=tmp_path / "wheels", cache=tmp_path / "cache")
    write_wheel(found.wheels, "six", "98.0", header="#define MODEL_LIMIT 1\n")
    write_wheel(found.wheels, "idna", "3.98")  # requests needs idna below 4
    found.command()
    assert len(found.compiled) > 20
    return found


def test_a_rebuild_costs_what_changed_and_the_plan_says_so(migrating: Migrating) -> None:
    # a raised build number: nothing is staged or compiled
    raise_build_number(migrating.place)
    assert "the finished libtorch is reused" in migrating.command("--plan")
    migrating.command()
    assert "phase configure" not in migrating.log
    assert "phase compile" not in migrating.log
    assert migrating.compiled == []

    # a package that no object reads: the tree and the packages stay
    packages = migrating.packages
    write_wheel(migrating.wheels, "idna", "3.99")
    planned = migrating.command("--plan")
    assert "no object depends on the change of idna 3.98 -> 3.99" in planned
    assert "nothing to build" in planned
    migrating.command()
    assert migrating.packages == packages

    # a header: the plan names the package and counts the objects, and these are compiled
    write_wheel(migrating.wheels, "six", "99.0", header="#define MODEL_LIMIT 2\n")
    planned = migrating.command("--plan")
    assert "six 98.0 -> 99.0" in planned
    assert re.search(r"at most 2 of \d+ objects are compiled again: 2 of libtorch", planned)
    migrating.command()
    assert len(migrating.compiled) == 2
    assert all(any(name.endswith(path) for name in READERS) for path in migrating.compiled)


def test_in_a_rebuild_configs_of_one_compiler_do_not_wait(own_checkout: Place, tmp_path: Path) -> None:
    configs = ("linux_64_cpu", "linux_64_cpu_generic")
    command = f"python3 build-locally.py {' '.join(configs)} --rehearse --pyg none -p 3.11"
    cache = tmp_path / "cache"
    assert (
        "one config at a time: all share objects"
        in own_checkout.run(command, MEGABUILD_CACHE=cache).succeeded()
    )
    raise_build_number(own_checkout)
    text = own_checkout.run(command, MEGABUILD_CACHE=cache).succeeded()
    assert "side by side" in text
    starts = [text.index(f"{name}: started") for name in configs]
    first_end = re.search(r"linux_64_cpu\w*: \S+ after ", text)
    assert first_end is not None
    assert max(starts) < first_end.start()
    for name in configs:
        log = (own_checkout.folder / f"output/{name}-rehearsal/logs/latest.log").read_text()
        assert "phase compile" not in log
