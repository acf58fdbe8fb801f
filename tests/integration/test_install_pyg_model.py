"""install-pyg on an environment with a model of PyTorch: an index with good and bad wheels, and the rest compiled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch_model
from import_path import packages_path
from small_files import program
from tiny import wait_for
from wheel_files import make_page, make_wheel

from groundwork.errors import BusyError
from groundwork.wheel_file import why_broken

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
VERSION = "9.9"  # not the matrix's, which knows the hashes of upstream's archives
END = "\n--- standard output ---\n"
NAMES = ("torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv")


@dataclass
class Place:
    """An environment, an index, archives of sources."""

    folder: Path
    repository: Path
    links: list[str] = field(default_factory=list)

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def site(self) -> Path:
        return self.venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def sdists(self) -> Path:
        return self.folder / "sdists"

    def offer(self, name: str, *, local: str = "pt213cu130", cuda: bool = True) -> Path:
        work = self.folder / "libraries" / f"{name}-{len(self.links)}"
        files = torch_model.libraries(name, work, self.site / "torch", ("9.0",), cuda=cuda)
        file_name = f"{name}-{VERSION}+{local}-{TAG}-{TAG}-linux_{os.uname().machine}.whl"
        wheel = make_wheel(self.folder / "index" / "torch-2.13.0+cu130", file_name, files)
        self.links.append(f"torch-2.13.0%2Bcu130/{file_name.replace('+', '%2B')}")
        make_page(self.folder / "index", "2.13.0", "cu130", self.links)
        return wheel

    def start(self, *words: str, **changes: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORCE_")}
        environment |= {
            "PYTHONPATH": packages_path(self.repository),
            "MEGABUILD_CACHE": str(self.folder / "cache"),
            "CUDA_HOME": str(self.folder / "cuda"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "MAX_JOBS": "2",
            **changes,
        }
        command = [sys.executable, "-c", "from command_line.install_pyg import main; main()"]
        command += ["--python", str(self.venv), "--pyg-index", str(self.folder / "index")]
        command += ["--pyg-sources", str(self.sdists), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def install(self, *words: str, **changes: str) -> tuple[int, dict[str, Any], str]:
        """Run it; returns exit code, the JSON document's rows by name, and what was said: errors, END, output."""
        process = self.start(*words, **changes)
        out, errors = process.communicate()
        rows: dict[str, Any] = {}
        if "--json" in words:
            document = json.loads(out)
            rows = {row["name"]: row for row in document["extensions"]}
        return process.returncode, rows, f"{errors}{END}{out}"

    def pip_install(self, wheel: Path) -> None:
        command = f"{self.venv}/bin/python -m pip install --quiet --no-deps --no-index {wheel}"
        subprocess.run(command.split(), check=True)

    def remove(self, name: str) -> None:
        """Uninstall it, by hand."""
        for path in self.venv.glob(f"lib/python*/site-packages/{name}*"):
            shutil.rmtree(path, ignore_errors=True)  # its folder may have several names

    def libraries(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.site / name).glob("*.so"))


@pytest.fixture(scope="module")
def plain_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the model of PyTorch, to copy: to make one takes seconds."""
    path = tmp_path_factory.mktemp("plain") / "venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    (site,) = path.glob("lib/python*/site-packages")
    torch_model.make_torch(site)
    return path


@pytest.fixture
def place(tmp_path: Path, repository: Path, plain_venv: Path) -> Place:
    place = Place(tmp_path, repository)
    shutil.copytree(plain_venv, place.venv, symlinks=True)
    torch_model.make_nvcc(tmp_path / "cuda")
    place.sdists.mkdir()
    (tmp_path / "index").mkdir()
    return place


def asked(*names: str) -> list[str]:
    return [f"{name}=={VERSION}" for name in names]


def test_one_wheel_fits_and_the_rest_is_compiled(place: Place) -> None:
    place.offer("torch_scatter")
    place.offer("torch_sparse", local="pt213cu126")
    corrupt = place.offer("torch_cluster")
    corrupt.write_bytes(corrupt.read_bytes()[:-100])
    place.offer("torch_spline_conv", cuda=False)
    for name in NAMES:
        torch_model.make_sdist(name, VERSION, place.sdists)

    code, rows, said = place.install("--json", "--arch-list", "9.0", *asked(*NAMES))
    assert code == 0, said
    assert {name: row["how"] for name, row in rows.items()} == {
        "torch_scatter": "prebuilt",
        "torch_sparse": "source",
        "torch_cluster": "source",
        "torch_spline_conv": "source",
    }
    notes = {name: " ".join(row["notes"]) for name, row in rows.items()}
    assert notes["torch_scatter"] == ""
    assert notes["torch_sparse"].endswith(" torch 2.13 cu126")
    assert "is damaged" in notes["torch_cluster"]
    assert "no device code" in notes["torch_spline_conv"]
    for name in NAMES:
        assert place.libraries(name) == [f"_{stem}_cuda.so" for stem in torch_model.stems(name)]

    # again: everything is there, is looked into, and stays
    code, rows, said = place.install("--json", "--arch-list", "9.0", *asked(*NAMES))
    assert code == 0, said
    assert {row["how"] for row in rows.values()} == {"there"}


def test_one_that_fails_does_not_stop_the_others_and_says_why_in_english(place: Place) -> None:
    """The compiler speaks German unless it is told to speak English, as gcc and ld do with their translations."""
    torch_model.make_sdist("torch_scatter", VERSION, place.sdists)
    place.offer("torch_spline_conv")
    compiler = program(
        place.folder / "cc",
        'case "$*" in *csrc*) ;; *) exec gcc "$@";; esac\n'
        'case "$LC_ALL" in C*) echo "x.h:1:2: error: not there";; *) echo "x.h:1:2: Fehler: fehlt";; esac >&2\nexit 1',
    )
    changes = {"CC": str(compiler), "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}
    words = ["--arch-list", "9.0", *asked("torch_scatter", "torch_spline_conv")]
    code, _, said = place.install(*words, **changes)
    assert code == 8, said
    table = said.partition(END)[2].strip().splitlines()
    assert [line.split()[0] for line in table[:3]] == ["extension", "torch_scatter", "torch_spline_conv"]
    assert ("failed" in table[1], "verified" in table[2]) == (True, True)
    assert "x.h:1: error: not there" in said
    assert not (place.site / "torch_scatter").exists()
    assert place.libraries("torch_spline_conv")


@pytest.mark.long  # ten seconds
def test_a_cpu_build_beside_a_cuda_torch_is_found_and_replaced(place: Place) -> None:
    """pip says that all is well, and the first operation on a GPU fails: what this program is there to end."""
    wheel = place.offer("torch_spline_conv", cuda=False)
    place.pip_install(wheel)
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    code, rows, said = place.install(
        "--json", "--pyg", "source", *asked("torch_spline_conv"), "--arch-list", "9.0"
    )
    assert code == 0, said
    assert rows["torch_spline_conv"]["notes"][0].startswith(f"{VERSION}+pt213cu130 ")
    assert place.libraries("torch_spline_conv")[0] == "_basis_cuda.so"


@pytest.mark.long  # ten seconds
def test_what_was_there_is_tried_again_beside_what_was_installed(place: Place) -> None:
    """torch_sparse imports torch_scatter: one that is there may fail with another torch_scatter than it had."""
    wheel = place.offer("torch_sparse")
    place.pip_install(wheel)
    with (place.site / "torch_sparse" / "__init__.py").open("a") as file:
        file.write(
            "import importlib.util\nassert importlib.util.find_spec('torch_scatter') is None, 'too new'\n"
        )
    code, rows, said = place.install("--json", "--plan", *asked("torch_sparse"))
    assert (code, rows["torch_sparse"]["how"]) == (0, "there"), said
    place.offer("torch_scatter")
    for path in place.site.glob("pip*"):
        shutil.rmtree(path)  # an environment needs none of its own
    code, rows, said = place.install("--json", *asked("torch_scatter", "torch_sparse"))
    assert code == 0, said
    assert rows["torch_sparse"]["how"] == "prebuilt"
    assert "AssertionError: too new" in str(rows["torch_sparse"]["notes"])


@pytest.mark.long  # half a minute
def test_the_second_environment_gets_what_the_first_compiled(place: Place, plain_venv: Path) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    words = ["--json", "--arch-list", "sm_90", *asked("torch_spline_conv")]

    def planned(*more: str) -> dict[str, Any]:
        code, rows, said = place.install("--plan", *words, *more)
        assert code == 0, said
        return dict(rows["torch_spline_conv"])

    assert (planned()["how"], planned()["archs"], planned()["cpu_seconds"] > 0) == ("source", ["9.0"], True)
    assert not place.libraries("torch_spline_conv")
    assert not (place.folder / "cache").exists()

    code, rows, said = place.install(*words)
    assert code == 0, said
    row = rows["torch_spline_conv"]
    assert (row["how"], row["version"]) == ("source", VERSION)
    assert why_broken(Path(row["wheel"])) == ""

    second = Place(place.folder / "second", place.repository)
    shutil.copytree(plain_venv, second.venv, symlinks=True)
    for folder in ("index", "sdists"):
        shutil.copytree(place.folder / folder, second.folder / folder)
    shared = {"MEGABUILD_CACHE": str(place.folder / "cache"), "CUDA_HOME": "/nowhere", "CXX": ""}
    code, rows, said = second.install(*words, **shared)
    assert code == 0, said
    assert rows["torch_spline_conv"]["how"] == "kept"
    assert second.libraries("torch_spline_conv") == place.libraries("torch_spline_conv")
    assert "with 2 jobs" not in said

    # what makes it another wheel: architectures, and the sources
    place.remove("torch_spline_conv")
    assert planned()["how"] == "kept"
    assert planned("--arch-list", "9.0;12.0")["how"] == "source"
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists / "other", broken=True)
    assert planned("--pyg-sources", str(place.sdists / "other"))["how"] == "source"


@pytest.mark.long  # half a minute
def test_a_kept_wheel_that_fails_is_compiled_again_but_not_for_what_the_place_cannot_do(place: Place) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    words = ["--json", "--arch-list", "9.0", *asked("torch_spline_conv")]
    site = place.site
    (place.venv / "lib/python3.1").symlink_to(site.parent.name)  # as in conda-forge's environments
    assert place.install(*words)[0] == 0
    (kept,) = (place.folder / "cache/pyg-compiled").glob("*/*.whl")
    place.remove("torch_spline_conv")
    make_wheel(
        kept.parent, kept.name, {"torch_spline_conv/__init__.py": b"import a_module_that_nobody_has\n"}
    )
    code, rows, said = place.install(*words)
    assert (code, rows["torch_spline_conv"]["how"]) == (0, "source"), said
    assert all(text in rows["torch_spline_conv"]["notes"][-1] for text in (kept.name, "removed"))
    before = kept.stat()
    place.remove("torch_spline_conv")
    code, rows, said = place.install(*words)
    assert (code, rows["torch_spline_conv"]["how"]) == (0, "kept"), said
    place.remove("torch_spline_conv")
    pip = site / "pip/__main__.py"
    pip.write_text(
        "import sys\nif 'install' in sys.argv:\n    sys.exit('ERROR: [Errno 28] No space left on device')\n"
    )
    code, rows, said = place.install(*words)
    assert code == 12, said
    assert str(site) in rows["torch_spline_conv"]["remedy"]
    assert "with 2 jobs" not in said
    assert kept.stat() == before


def test_a_plan_says_what_the_run_would_say(place: Place) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    words = ["--json", "--arch-list", "9.0", "--pyg", "source"]
    for changes, code, said in (
        ({"CUDA_HOME": "/nowhere"}, 4, "no bin/nvcc"),
        ({"CXX": "true"}, 4, "writes no code"),
    ):
        for more in (["--plan"], []):
            result, rows, shown = place.install(*words, *more, *asked("torch_spline_conv"), **changes)
            assert (result, said in rows["torch_spline_conv"]["error"]) == (code, True), shown
    code, rows, shown = place.install("--json", "--pyg", "source", *asked("torch_spline_conv"))
    assert code != 0, shown
    assert "--arch-list" in rows["torch_spline_conv"]["remedy"]


def left(place: Place) -> list[Path]:
    folders = (place.folder / "tmp", place.folder / "cache" / "install-pyg")
    return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]


def test_a_setup_py_that_fails_is_no_matter_of_the_network(place: Place) -> None:
    name = "torch_spline_conv"
    archive = torch_model.make_sdist(name, VERSION, place.sdists)
    source = place.sdists / f"{name}-{VERSION}"
    (source / "setup.py").write_text("raise RuntimeError('this needs a full moon')\n")
    subprocess.run(["tar", "-czf", archive, "-C", place.sdists, source.name], check=True)
    (place.folder / "tmp").mkdir()
    words = ["--pyg", "source", "--arch-list", "9.0", *asked(name)]
    code, _, said = place.install(*words, TMPDIR=str(place.folder / "tmp"))
    assert code == 8, said
    assert "RuntimeError: this needs a full moon" in " ".join(said.split())
    assert "network" not in said
    assert "compile 1/" not in said
    assert left(place) == []


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGKILL)),
    ],
)
def test_a_run_that_is_stopped_leaves_no_compiler_and_no_files(number: signal.Signals, place: Place) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    compiler, note, temporary = (place.folder / name for name in ("slow-cc", "compiling", "tmp"))
    slow = f"mktemp; touch here; echo $$ > {note}; sleep 100"
    program(compiler, f'case "$*" in *csrc*) {slow};; esac\nexec gcc "$@"')
    temporary.mkdir()
    words = ["--pyg", "source", "--arch-list", "9.0", *asked("torch_spline_conv")]
    process = place.start(*words, CC=str(compiler), TMPDIR=str(temporary))
    assert wait_for(lambda: note.exists() or process.poll() is not None, 120)
    code, _, said = place.install(*words)
    assert code == BusyError.exit_code, said
    process.send_signal(number)
    out, said = process.communicate()
    if number != signal.SIGKILL:
        assert process.returncode == 130, out + said
        assert "Traceback" not in said
        assert left(place) == []
    assert wait_for(lambda: not Path(f"/proc/{note.read_text().strip()}/cwd").is_dir(), 30)


@pytest.mark.long  # many environments
def test_a_kept_wheel_outlives_the_settings_and_the_faults_of_pip(place: Place) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    words = ["--json", "--arch-list", "9.0", *asked("torch_spline_conv")]
    code, _, said = place.install(*words)
    assert code == 0, said
    (kept,) = (place.folder / "cache/pyg-compiled").glob("*/*.whl")
    before, elsewhere = kept.stat(), place.folder / "elsewhere"
    settings = dict.fromkeys(("target", "prefix", "root"), str(elsewhere))
    settings |= {"user": "1", "dry-run": "1", "require-hashes": "1", "no-binary": ":all:"}
    variables = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings.items()}
    config = "".join(f"{name} = {value}\n" for name, value in settings.items())

    for changes, text in ((variables, ""), ({}, f"[install]\n{config}")):
        place.remove("torch_spline_conv")
        (place.venv / "pip.conf").write_text(text)
        code, rows, said = place.install(*words, **changes)
        assert (code, rows["torch_spline_conv"]["how"]) == (0, "kept"), said
        assert "without effect here: dry-run, no-binary, prefix," in said
        assert place.libraries("torch_spline_conv")
    assert not elsewhere.exists()

    place.remove("torch_spline_conv")
    (place.site / "pip/__main__.py").write_text("")  # reports success, and installs nothing
    code, rows, said = place.install(*words)
    assert code == 5, said
    assert rows["torch_spline_conv"]["error"].startswith("pip reported success")
    assert "with 2 jobs" not in said
    assert kept.stat() == before


def test_a_plan_and_a_run_need_the_headers_of_python(place: Place) -> None:
    torch_model.make_sdist("torch_spline_conv", VERSION, place.sdists)
    (place.site / "sitecustomize.py").write_text(
        "import sysconfig\nfind = sysconfig.get_path\n"
        "sysconfig.get_path = lambda name, *more: '/nowhere' if 'include' in name else find(name, *more)\n"
    )
    words = ["--json", "--arch-list", "9.0", "--pyg", "source", *asked("torch_spline_conv")]
    for more in (["--plan"], []):
        code, rows, said = place.install(*words, *more)
        assert code == 4, said
        assert "Python.h: No such file" in rows["torch_spline_conv"]["error"]
        assert "compile 1/" not in said
