"""conda-forge's pins and migrations: selectors, lines, and where the files come from."""

from __future__ import annotations

import re
import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_channel import add, index
from audit_site import config, heard, request, services, serving
from small_files import write

from pin_audit.facts import GlobalPin, Migration, SourceOutcome
from pin_audit.services import Services
from pin_audit.sources import pinning as pinning_source

PINS = """\
# a comment
c_stdlib_version:        # [unix]
  - 2.17                 # [linux]
  - 2.28                 # [linux and x86_64 and os.environ.get("CF_CUDA_ENABLED", "False") == "True"]
  - 11.0                 # [osx]
cuda_compiler_version:
  - None
  - 13.0                 # [linux and x86_64 and os.environ.get('CF_CUDA_ENABLED') == "True"]
zip_keys:
  -
    - c_stdlib_version        # [linux]
    - cuda_compiler_version   # [linux]
pin_run_as_build:
  libfoo:
    max_pin: x.x
libfoo:
  # why it is so old
  - '1.10'
flow: [a, b]
other_pin: [ '3.10' ]
python:
  - 3.12.* *_cpython
  - 3.13.* *_cp313       # [not osx]
no_list: 3
"""
MIGRATION = """\
migrator_ts: 1755016036
__migrator:
  operation: key_add
  paused: true
  exclude:
    # built by hand
    - pytorch-cpu
libfoo:
- 2.0   # [linux]
python:
- 3.14.* *_cp314
"""
CONFIGS = (config("linux-64", python="3.12.*"), config("osx-arm64"))
NAMES = ("libfoo", "c-stdlib-version", "cuda_compiler_version", "other-pin")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "http://127.0.0.1:9")


def ask(given: Services, pinning: Path | None = None, names: tuple[str, ...] = NAMES) -> SourceOutcome:
    return heard(pinning_source.read, request(given, configs=CONFIGS, names=names, pinning=pinning))


def values(outcome: SourceOutcome) -> list[tuple[str, str, str, int | None]]:
    return [(one.name, one.value, ", ".join(one.holds.platforms), one.where.line) for one in outcome.facts]


EXPECTED = [
    ("c_stdlib_version", "2.17", "linux-64", 2),  # without CUDA
    ("c_stdlib_version", "2.28", "linux-64", 2),  # for CUDA 13.0
    ("c_stdlib_version", "11.0", "osx-arm64", 2),
    ("cuda_compiler_version", "None, 13.0", "linux-64", 6),
    ("cuda_compiler_version", "None", "osx-arm64", 6),
    ("libfoo", "1.10", "", 16),
    ("other_pin", "3.10", "", 20),
    ("python", "3.12.* *_cpython, 3.13.* *_cp313", "linux-64", 21),
    ("python", "3.12.* *_cpython", "osx-arm64", 21),
]
MIGRATING = [("libfoo", "2.0", "linux-64", 8), ("python", "3.14.* *_cp314", "", 10)]


def lay_out(folder: Path, config_file: str, migrations: str) -> Path:
    for path, text in ((config_file, PINS), (f"{migrations}/foo20.yaml", MIGRATION)):
        write(folder / path, text)
    return folder


@pytest.mark.parametrize(
    ("config_file", "migrations"),
    [
        ("conda_build_config.yaml", "migrations"),
        ("conda-forge-pinning.conda_build_config.yaml", "conda-forge-migrations"),
    ],
)
def test_a_folder_is_read_in_every_usual_form(tmp_path: Path, config_file: str, migrations: str) -> None:
    folder = lay_out(tmp_path / "pinning", config_file, migrations)
    outcome = ask(services(tmp_path / "cache", offline=True), folder)
    assert sorted(values(outcome)) == sorted(EXPECTED + MIGRATING)
    assert not outcome.trouble
    assert str(tmp_path) not in repr(outcome.facts)
    found = {(one.name, type(one)): one for one in outcome.facts[::-1]}
    pin, migration = found["c_stdlib_version", GlobalPin], found["libfoo", Migration]
    assert isinstance(pin, GlobalPin)
    assert isinstance(migration, Migration)
    assert (pin.values, pin.holds.cuda, pin.where.file) == (("2.17",), ("None",), "conda_build_config.yaml")
    assert [one.holds.cuda for one in outcome.facts if one.value == "11.0"] == [()], "macOS has no CUDA"
    assert (migration.migration, migration.paused) == ("foo20", True)
    assert migration.where.file == "migrations/foo20.yaml"


def test_a_migration_to_a_cuda_version_brings_what_is_zipped_with_it(tmp_path: Path) -> None:
    """As conda-forge's cuda130 and its pins of August 2026 do for gcc."""
    folder = lay_out(tmp_path / "pinning", "conda_build_config.yaml", "migrations")
    text = (
        "__migrator: {kind: version}\ncuda_compiler_version:\n- 13.1\nc_stdlib_version:\n- 2.34  # [linux]\n"
    )
    (folder / "migrations" / "cuda131.yaml").write_text(text)
    found = [one for one in ask(services(tmp_path), folder).facts if isinstance(one, Migration)]
    (moved,) = [one for one in found if one.name == "c_stdlib_version"]
    assert (moved.values, moved.holds.cuda, moved.holds.platforms) == (("2.34",), ("13.1",), ("linux-64",))


def test_a_value_of_several_cuda_versions_holds_for_each(tmp_path: Path) -> None:
    """As conda-forge's gcc, which two of its CUDA versions share."""
    text = (
        "cuda_compiler_version: [None, 12.9, 13.0]\nc_stdlib_version: [2.17, 2.28, 2.28]\n"
        "zip_keys:\n  -\n    - c_stdlib_version\n    - cuda_compiler_version\n"
    )
    (tmp_path / "pins.yaml").write_text(text)
    facts = ask(services(tmp_path / "cache"), tmp_path / "pins.yaml").facts
    found = {fact.value: fact.holds.cuda for fact in facts if fact.name == "c_stdlib_version"}
    assert found == {"2.17": ("None",), "2.28": ("12.9", "13.0")}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<html>Log in</html>", "no lists of values"),
        ("a: [1, 2", "conda_build_config.yaml: cannot be parsed"),
        ("- " * 100_000, "no lists of values"),
        ("a:\n- 1\nb: [*c]\n", "cannot be parsed"),
    ],
    ids=["html", "open", "deep", "alias"],
)
def test_a_file_that_makes_no_sense_is_told_and_the_migrations_stand(
    tmp_path: Path, text: str, told: str
) -> None:
    folder = lay_out(tmp_path / "pinning", "conda_build_config.yaml", "migrations")
    (folder / "conda_build_config.yaml").write_text(text)
    outcome = ask(services(tmp_path / "cache"), folder)
    assert sorted(values(outcome)) == sorted(MIGRATING)
    assert told in outcome.trouble


def test_a_selector_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "pins.yaml").write_text(f"a:\n  - 1  # [open({str(tmp_path / 'made')!r}, 'w')]\n")
    ask(services(tmp_path / "cache"), tmp_path / "pins.yaml")
    assert not (tmp_path / "made").exists()


@pytest.fixture
def channels(tmp_path: Path) -> Path:
    """Return a folder with a channel that has conda-forge-pinning."""
    files = {"conda_build_config.yaml": PINS, "share/conda-forge/migrations/foo20.yaml": MIGRATION}
    root, name = tmp_path / "channels", "conda-forge-pinning"
    add(root / "conda-forge", "noarch", name, "2026.01.01", {"conda_build_config.yaml": "old: [1]"})
    add(root / "conda-forge", "noarch", name, "2026.11.20", files, extra={"sha": "a" * 40})
    index(root / "conda-forge")
    return root


def test_the_newest_package_of_the_channel_is_read(
    channels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({}, folder=channels) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        outcome = ask(services(tmp_path / "cache"))
    assert sorted(values(outcome)) == sorted(EXPECTED + MIGRATING)
    assert not outcome.trouble
    origin = outcome.facts[0].where
    assert origin.file == "conda-forge-pinning-2026.11.20-h0_0.tar.bz2/conda_build_config.yaml"
    assert origin.url.endswith(f"/blob/{'a' * 40}/recipe/conda_build_config.yaml#L{origin.line}")
    offline = ask(services(tmp_path / "cache", offline=True))
    assert offline.facts == outcome.facts


@pytest.mark.parametrize("fault", ["hash", "garbage"])
def test_a_package_that_is_not_what_the_channel_says_is_refused(
    channels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    package = channels / "conda-forge" / "noarch" / "conda-forge-pinning-2026.11.20-h0_0.tar.bz2"
    if fault == "hash":
        shutil.copy(package.with_name("conda-forge-pinning-2026.01.01-h0_0.tar.bz2"), package)
    else:
        package.write_bytes(b"garbage")
        said, digest = package.with_name("repodata.json"), sha256(b"garbage").hexdigest()
        said.write_text(re.sub('"sha256": ?"[0-9a-f]{64}"', f'"sha256":"{digest}"', said.read_text()))
        for file in package.parent.glob("*.zst"):
            file.unlink()
    with serving({}, folder=channels) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        outcome = ask(services(tmp_path / "cache"))
    assert not outcome.facts
    assert package.name in outcome.trouble
    assert ("sha256" in outcome.trouble) == (fault == "hash")


def test_a_package_without_pins_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = tmp_path / "channels/conda-forge"
    add(channel, "noarch", "conda-forge-pinning", "2026.11.20", {"share/notes": "x"})
    index(channel)
    with serving({}, folder=channel.parent) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        outcome = ask(services(tmp_path / "cache"))
    assert not outcome.facts
    assert re.fullmatch(r"conda-forge-pinning-2026\.11\.20-\S+: no conda_build_config\.yaml", outcome.trouble)


def test_a_channel_without_the_pins_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning_source, "newest", lambda *_: [])
    outcome = ask(services(tmp_path))
    assert outcome.facts == ()
    assert "has no conda-forge-pinning" in outcome.trouble


@pytest.mark.parametrize(
    ("name", "key"), [("a-b", "a_b"), ("ruamel.yaml", "ruamel_yaml"), ("Jinja2", "jinja2")]
)
def test_pins_of_a_package_have_its_name_with_underscores(name: str, key: str) -> None:
    asked = SimpleNamespace(names=(name,), configs=[SimpleNamespace(variant={"blas_impl": ("mkl",)})])
    assert pinning_source._wanted_keys(cast(Any, asked)) == {key, "blas_impl"}


def test_of_several_files_with_pins_the_outermost_counts() -> None:
    members = {f"{folder}conda_build_config.yaml": folder.encode() for folder in ("a/b/", "a/", "z/y/")}
    members["a/migrations/m.yaml"] = b"m"
    found = pinning_source._classified(members, "x")
    assert (found.config, found.migrations) == ("a/", {"m.yaml": "m"})


@pytest.mark.parametrize(("commit", "url"), [("c" * 40, "/blob/" + "c" * 40), ("", "/blob/main")])
def test_only_the_page_of_a_commit_has_the_line_of_a_pin(commit: str, url: str) -> None:
    where = pinning_source._Files(config="", migrations={}, commit=commit).place("conda_build_config.yaml")
    (fact,) = pinning_source._facts("zlib:\n  - 1\n", ["linux-64"], where, set())
    page = f"{pinning_source._REPOSITORY}{url}/recipe/conda_build_config.yaml"
    assert (fact.where.url, fact.where.line) == (f"{page}#L1" if commit else page, 1)
