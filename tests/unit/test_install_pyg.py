"""install-pyg: which environment, which versions, how many jobs, and what is shown."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from small_files import program, write
from wheel_files import make_wheel

from command_line.run_command import Invocation
from groundwork import files, pip_output, program_words
from groundwork.errors import (
    BuildError,
    IntegrityError,
    OutOfMemoryError,
    OutOfSpaceError,
    PreflightError,
    ProviderError,
    UnknownError,
    UsageError,
)
from groundwork.jobs import Jobs
from groundwork.resources import ResourceFacts, Verdict
from megabuild.configs.config import load
from pyg_extensions.find_wheel import Choice, WheelRequirements
from pyg_extensions.install import compile_wheel, installer, toolchain, user_environment
from pyg_extensions.install.compile_wheel import Builder
from pyg_extensions.install.install_report import environment_lines, install_result
from pyg_extensions.install.installation import Installation, InstallOptions, Mode, Origin, parse_requests
from pyg_extensions.install.toolchain import check_cuda, check_python_headers, cuda_home
from pyg_extensions.install.user_environment import (
    UserEnvironment,
    check_installed,
    find_import_fault,
    interpreter,
    look,
    run_pip,
)
from pyg_extensions.pyg_index import PygIndex
from pyg_extensions.table import ExtensionRelease, find

ask_python = Path(user_environment.__file__).with_name("ask_python.py")


def environment(**changes: Any) -> UserEnvironment:
    values: dict[str, Any] = {
        "interpreter": Path("/e/bin/python"),
        "prefix": Path("/e"),
        "base_prefix": Path("/usr"),
        "include": (Path("/e/include"),),
        "site": Path("/e/lib/python3.12/site-packages"),
        "python": "3.12",
        "platform": "linux-64",
        "glibc": "2.36",
        "torch_version": "2.13.0+cu130",
        "cuda_version": "13.0",
        "torch_archs": ("9.0", "12.0+PTX"),
        "devices": (),
        "distributions": {},
    }
    return UserEnvironment(**{**values, **changes})


def ended(extension: str, **values: Any) -> Installation:
    release = ExtensionRelease(name=extension, version="1")
    return Installation(extension=find(extension), release=release, seconds=3.2, **values)


def fake_python(folder: Path, answer: str) -> Path:
    return program(folder / "bin" / "python", answer)


# ---- the environment ---------------------------------------------------------------------------------------------
def test_a_python_says_what_is_installed_for_it() -> None:
    done = subprocess.run([sys.executable, "-I", ask_python], check=True, capture_output=True)
    assert json.loads(done.stdout)["distributions"]["pytest"] == pytest.__version__


class Unusable:
    """Raises an error whenever an attribute is asked for."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, _: str) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("parts", "archs", "devices", "problem"),
    [
        ({"_C": Unusable(AttributeError())}, [], ["9.0", "12.0"], ""),  # PyTorch for CPUs
        ({"_C": SimpleNamespace(_cuda_getArchFlags=lambda: None)}, [], ["9.0", "12.0"], ""),
        (
            {"_C": SimpleNamespace(_cuda_getArchFlags=lambda: "sm_90 sm_120")},
            ["sm_90", "sm_120"],
            ["9.0", "12.0"],
            "",
        ),
        ({"cuda": Unusable(RuntimeError("driver too old"))}, ["sm_75"], [], "RuntimeError: driver too old"),
        ({"version": Unusable(SystemExit("no libtorch"))}, None, None, "SystemExit: no libtorch"),
    ],
)
def test_a_python_says_as_much_of_its_torch_as_works(
    parts: dict[str, Any], archs: list[str] | None, devices: list[str] | None, problem: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    gpus = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_capability=lambda number: (9 + 3 * number, 0),
    )
    works: dict[str, Any] = {
        "__version__": "2.13.0", "version": SimpleNamespace(cuda="13.0"), "cuda": gpus,
        "_C": SimpleNamespace(_cuda_getArchFlags=lambda: "sm_75"),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", cast(Any, SimpleNamespace(**works | parts)))
    runpy.run_path(str(ask_python))
    facts = json.loads(capsys.readouterr().out)
    if archs is None:
        assert (facts["torch"], facts["torch_problem"]) == (None, problem)
    else:
        expected = {"version": "2.13.0", "cuda": "13.0", "hip": None, "archs": archs, "devices": devices}
        assert facts["torch"] == expected
    assert facts.keys() == FACTS.keys(), "all that look() reads"
    assert (facts["prefix"], facts["base_prefix"]) == (sys.prefix, sys.base_prefix)
    assert facts["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert facts["include"]


class Distribution:
    """An installed distribution; without a name, its metadata is damaged."""

    def __init__(self, folder: str, name: str, version: str) -> None:
        self._path = Path("/e/site", folder)
        self._name = name
        self.version = version

    @property
    def metadata(self) -> dict[str, str]:
        if not self._name:
            raise ValueError("damaged")
        return {"Name": self._name}


@pytest.mark.parametrize(
    ("libc", "glibc"), [(("glibc", "2.36"), "2.36"), (("", ""), ""), (("musl", "1.2"), "")]
)
@pytest.mark.parametrize("is_venv", [True, False])
def test_a_python_says_what_is_installed_in_it_and_whose_it_is(
    libc: tuple[str, str], glibc: str, is_venv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Python imports the first of two distributions; only a system's own Python belongs to the system."""
    found = [
        Distribution("~orch_scatter-1.dist-info", "torch_scatter", "1"),  # of a pip that was interrupted
        Distribution("damaged.dist-info", "", "1"),
        Distribution("torch_scatter-2.dist-info", "Torch.Scatter", "2"),
        Distribution("torch_scatter-3.dist-info", "torch-scatter", "3"),
    ]
    write(tmp_path / "EXTERNALLY-MANAGED")
    where = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name: str(tmp_path) if name == "stdlib" else where(name)
    )
    monkeypatch.setattr(sys, "base_prefix", "/usr" if is_venv else sys.prefix)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    monkeypatch.setitem(sys.modules, "torch", None)
    runpy.run_path(str(ask_python))
    facts = json.loads(capsys.readouterr().out)
    assert facts["distributions"] == {"torch_scatter": "2"}
    assert (facts["glibc"], facts["managed"]) == (glibc, not is_venv)


@pytest.mark.parametrize(("extension", "namespace"), [("torch_scatter", "torch_scatter"), ("pyg_lib", "pyg")])
@pytest.mark.parametrize(
    ("wanted", "compiled", "fault"),
    [
        ("13.0", 13000, ""), ("13.0", 13010, ""), (None, -1, ""), (None, 0, ""),
        ("13.0", 12090, "it was compiled for CUDA 12.9, PyTorch for CUDA 13.0"),
        ("13.0", -1, "it was compiled without CUDA, PyTorch for CUDA 13.0"),
        (None, 13000, "it was compiled with CUDA, PyTorch without"),
    ],
)  # fmt: skip
def test_an_extension_works_with_the_cuda_of_its_pytorch_only(
    extension: str, namespace: str, wanted: str | None, compiled: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    reports = SimpleNamespace(cuda_version=lambda: compiled)
    torch = SimpleNamespace(version=SimpleNamespace(cuda=wanted), ops=SimpleNamespace(**{namespace: reports}))
    for name, module in {"torch": torch, extension: SimpleNamespace()}.items():
        monkeypatch.setitem(sys.modules, name, cast(Any, module))
    monkeypatch.setattr(sys, "argv", ["-c", extension])
    with pytest.raises(SystemExit, match=f"^{fault}$") if fault else nullcontext():
        exec(user_environment._CHECK, {})


def test_an_attempt_that_fails_leaves_its_time_and_no_origin() -> None:
    item = ended("torch_scatter", origin=Origin.PREBUILT, wheel=Path("a.whl"), offered="b.whl")
    said: list[str] = []
    with item.attempt(said.append):
        raise ProviderError("no answer")
    assert (item.origin, item.wheel, item.offered) == (None, None, "")
    assert said == ["torch_scatter failed: no answer"]
    assert item.error is not None
    assert item.seconds > 3.2, "with that of the attempts before"


@pytest.mark.parametrize(
    "answer", ["exit 1", "echo", "echo hello", "kill -SEGV $$", "echo 'no torch' >&2; exit 3"]
)
def test_a_python_that_says_nothing_of_itself_is_refused(answer: str, tmp_path: Path) -> None:
    python = fake_python(tmp_path, answer)
    with pytest.raises(
        PreflightError, match=rf"^{python}: it does not run, or `import torch` ends it"
    ) as told:
        look(python)
    assert ("no torch" in answer) == told.value.message.endswith(": no torch")


def test_an_environment_is_named_or_the_active_one(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "venv", "exit 0")
    conda = fake_python(tmp_path / "conda", "exit 0")
    venv, other = str(tmp_path / "venv"), str(tmp_path / "conda")
    assert interpreter(None, {"VIRTUAL_ENV": venv, "CONDA_PREFIX": other}) == python
    assert interpreter(None, {"CONDA_PREFIX": other}) == conda
    assert interpreter(None, {"PATH": str(python.parent)}) == python
    for named in (venv, str(python)):
        assert interpreter(named, {"CONDA_PREFIX": other}) == python
    for wrong in (tmp_path, tmp_path / "nothing", tmp_path / "bin" / "nothing"):
        with pytest.raises(UsageError):
            interpreter(str(wrong), {})
    with pytest.raises(UsageError, match="no environment"):
        interpreter(None, {"PATH": str(tmp_path)})


TORCH = {
    "version": "2.13.0+cu130", "cuda": "13.0", "hip": None, "devices": ["9.0", "9.0"],
    "archs": ["sm_90", "sm_120", "compute_120", "sm_100a"],
}  # fmt: skip
FACTS: dict[str, Any] = {
    "prefix": "/e", "base_prefix": "/usr", "include": ["/e/include"], "site": "/e/lib",
    "python": "3.14", "free_threaded": True,
    "platform": "linux-x86_64", "glibc": "2.36", "managed": False, "distributions": {}, "torch": TORCH,
    "torch_problem": "",
}  # fmt: skip


def test_an_environment_s_own_python_describes_it(tmp_path: Path) -> None:
    python = fake_python(tmp_path, f"echo '{json.dumps(FACTS)}'")
    assert look(python) == environment(
        interpreter=python, site=Path("/e/lib"), python="3.14t", torch_archs=("9.0", "12.0+PTX", "10.0a"),
        devices=("9.0",),
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": None, "torch_problem": "x"},
        {"torch": {**TORCH, "hip": "6.4"}},
    ],
)  # fmt: skip
def test_an_environment_for_which_nothing_can_be_installed_is_refused(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(PreflightError):
        look(fake_python(tmp_path, f"echo '{json.dumps({**FACTS, **changes})}'"))


def test_a_folder_of_packages_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, _: str) -> None:
        raise PreflightError(str(folder))

    monkeypatch.setattr(user_environment, "writable", refuse)
    settings = SimpleNamespace(is_on=lambda _: False)
    environment = SimpleNamespace(
        pip_settings=lambda: settings,
        managed=False,
        prefix=tmp_path,
        base_prefix=Path("/"),
        site=tmp_path / "site",
    )
    with pytest.raises(PreflightError, match=r"/site$"):
        user_environment.UserEnvironment.check_writable(cast(Any, environment))


def test_archs_are_asked_for_or_those_of_the_gpus_or_torchs_own() -> None:
    assert environment(devices=("8.9",)).archs(("9.0",)) == ("9.0",)
    assert environment(devices=("8.9",)).archs(()) == ("8.9",)
    assert environment().archs(()) == ("9.0", "12.0+PTX")
    assert environment(cuda_version=None).archs(("9.0",)) == ()


@pytest.mark.parametrize("asked", [(), ("9.0", "12.0")], ids=str)
def test_wheels_that_were_compiled_for_other_gpus_are_kept_apart(
    asked: tuple[str, ...], tmp_path: Path
) -> None:
    """Without --arch-list, each machine compiles for its GPUs; machines may share a cache."""
    folders: list[Path] = []
    for devices in (("9.0",), ("12.0",)):
        request = ended("torch_scatter")
        options = SimpleNamespace(archs=asked, mode=Mode.AUTO, cache=tmp_path, sources=None)
        choosing = SimpleNamespace(_options=options, _environment=environment(devices=devices))
        choosing._kept_folder = partial(installer._Installer._kept_folder, cast(Any, choosing))

        def find_kept(one: Installation, here: SimpleNamespace = choosing) -> Path:
            folders.append(here._kept_folder(one))
            return folders[-1]

        choosing._find_kept = find_kept
        installer._Installer._choose(cast(Any, choosing), request)
        assert (request.origin, request.archs) == (Origin.KEPT, asked or devices)
    assert len({*folders}) == (1 if asked else 2)


@pytest.mark.parametrize(
    ("facts", "asked", "needed"),
    [
        ({}, (), ("9.0", "12.0")),  # no GPU here: the image may run on any GPU that PyTorch has code for
        ({"devices": ("8.9",)}, (), ("8.9",)),
        ({"devices": ("8.9",)}, ("12.0+PTX",), ("12.0+PTX",)),
        ({"cuda_version": None}, (), ()),
    ],
)
def test_a_wheel_of_the_index_must_run_on_the_gpus_or_wherever_pytorch_does(
    facts: dict[str, Any], asked: tuple[str, ...], needed: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[WheelRequirements] = []

    def find_no_wheel(wanted: WheelRequirements, *_: object, **__: object) -> Choice:
        seen.append(wanted)
        return Choice(wheel=None, reason="none")

    monkeypatch.setattr(installer, "find_wheel", find_no_wheel)
    options = InstallOptions(
        environment=environment(**facts), mode=Mode.AUTO, index=PygIndex(), sources=None, cache=tmp_path,
        archs=asked, logs=tmp_path, jobs=1, report=print, progress=print,
    )  # fmt: skip
    steps = installer._Installer(options, tmp_path, only_plan=False)
    assert not steps._find_prebuilt(ended("torch_scatter"))
    assert [(wanted.archs, wanted.exact_archs) for wanted in seen] == [(needed, False)]


@pytest.mark.parametrize(
    ("origin", "archs", "is_exact"),
    [
        (None, ("8.9",), False),
        (Origin.PREBUILT, ("8.9",), False),
        (Origin.KEPT, ("9.0", "12.0"), True),
        (Origin.SOURCE, ("9.0", "12.0"), True),
    ],
)
def test_an_extension_compiled_here_must_have_code_for_each_requested_gpu(
    origin: Origin | None, archs: tuple[str, ...], is_exact: bool
) -> None:
    here = environment(devices=("8.9",))
    steps = SimpleNamespace(_options=SimpleNamespace(archs=()), _environment=here)
    request = ended("torch_scatter", archs=("9.0", "12.0"), origin=origin)
    assert installer._Installer._requirements(cast(Any, steps), request) == WheelRequirements(
        extension=request.extension, target=here, archs=archs, exact_archs=is_exact, beside=here.prefix
    )


def test_an_extension_without_a_verdict_is_said_to_be_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import that follows decides."""

    def refuse(*_: object) -> str:
        raise UsageError("/e: no torch")

    monkeypatch.setattr(installer, "find_fault", refuse)
    request = ended("pyg_lib")
    steps = SimpleNamespace(_requirements=lambda _: None)
    assert installer._Installer._fault(cast(Any, steps), Path("/e"), request) == ""
    assert request.notes == ["not verified: /e: no torch"]


def test_an_extension_is_compiled_for_the_gpus_that_it_supports() -> None:
    request = ended("pyg_lib")
    options = SimpleNamespace(archs=("5.0", "9.0"), mode=Mode.AUTO)
    steps = SimpleNamespace(_options=options, _environment=environment(), _find_kept=lambda _: Path("a.whl"))
    installer._Installer._choose(cast(Any, steps), request)
    assert request.archs == ("9.0",)


def test_a_wheel_is_kept_under_all_that_it_was_compiled_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the user's own sources and variables, too."""
    request = ended("torch_scatter")
    options = SimpleNamespace(cache=tmp_path, sources=None)
    choosing = cast(Any, SimpleNamespace(_options=options, _environment=environment()))

    def folder() -> Path:
        return installer._Installer._kept_folder(choosing, request)

    for name in ("CXX", "CFLAGS"):
        monkeypatch.delenv(name, raising=False)
    folders = [folder()]
    options.sources = tmp_path
    assert folder() == folders[0], "no sources of this extension"
    for name, value in {"COLUMNS": "77", "PATH": "/elsewhere", "CFLAGS": ""}.items():
        monkeypatch.setenv(name, value)
        assert folder() == folders[0], "it compiles the same"
    (tmp_path / request.release.archive).write_text("sources")
    folders.append(folder())
    monkeypatch.setenv("CXX", "clang++")
    folders.append(folder())
    request.archs = ("9.0",)
    folders.append(folder())
    choosing._environment = environment(torch_version="2.12.0")
    folders.append(folder())
    request.release = ExtensionRelease(name=request.release.name, version="9.9")
    folders.append(folder())
    assert len({*folders}) == len(folders)
    name = f"{request.release.name}-9.9-"
    assert folders[-1].parent == tmp_path / "pyg-compiled"
    assert folders[-1].name.startswith(name)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", OutOfSpaceError),
        ("OSError: [Errno 122] Disk quota exceeded", OutOfSpaceError),
        ("ERROR: Could not install packages: [Errno 13] Permission denied: '/e'", PreflightError),
        ("ERROR: No matching distribution found for ninja", ProviderError),
    ],
)
def test_a_place_that_is_full_or_closed_is_told_from_an_index(
    said: str, kind: type[Exception], tmp_path: Path
) -> None:
    python = fake_python(tmp_path, f'case "$*" in *"config list") exit 0;; esac\necho "{said}" >&2; exit 1')
    user = environment(interpreter=python, distributions={"pip": "25"})
    with pytest.raises(kind):
        run_pip(user, "install", "x", what="pip does not install x", links=None, temporary=tmp_path)


@pytest.mark.parametrize("private", [False, True])
def test_pip_gets_archives_and_the_users_settings_but_no_cache_of_wheels(
    private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's limits of versions are for the environment; it may have to wait for an index longer than usual."""
    variables = "$TMPDIR $PIP_RETRIES $PIP_DEFAULT_TIMEOUT $PIP_CONSTRAINT"
    script = f'case "$*" in *"config list") exit 0;; esac\necho "$@" "{variables}"; exit 1'
    python = fake_python(tmp_path, script)
    for name, value in {"RETRIES": "7", "CONSTRAINT": "/own/limits", "TARGET": "/elsewhere"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
    monkeypatch.setattr(pip_output, "explain", lambda text: text.strip())
    user = environment(interpreter=python, distributions={"pip": "25"})
    with pytest.raises(ProviderError) as told:
        run_pip(
            user, "install", "x", what="pip does not install x", links=tmp_path, temporary=tmp_path / "t",
            private=private,
        )  # fmt: skip
    said = told.value.message.removeprefix("pip does not install x: ")
    words = ["-I -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir x --find-links"]
    words += [str(tmp_path), f"{tmp_path}/t 7 10", "/own/limits"]
    assert said == " ".join(words[:-1] if private else words)


@pytest.mark.parametrize("start", [installer.plan, installer.install])
def test_a_full_disk_ends_a_plan_and_a_run_at_once(
    start: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_python(tmp_path, "exit 0")
    user = environment(interpreter=python, site=tmp_path, distributions={"pip": "25"})
    options = InstallOptions(
        environment=user, mode=Mode.AUTO, index=PygIndex(str(tmp_path)), sources=None, cache=tmp_path / "cache",
        archs=(), logs=tmp_path, jobs=1, report=lambda _: None, progress=lambda *_: None,
    )  # fmt: skip
    monkeypatch.setattr(installer, "is_full", lambda folder: folder == tmp_path)
    with pytest.raises(OutOfSpaceError, match="the disk is full"):
        start([], options)


@pytest.mark.parametrize("start", [installer.plan, installer.install])
@pytest.mark.parametrize("closed", ["environment", "cache"])
def test_a_place_that_cannot_be_written_ends_a_plan_and_a_run_at_once(
    closed: str, start: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PreflightError(closed)

    if closed == "cache":
        monkeypatch.setattr(UserEnvironment, "check_writable", lambda _: None)
        monkeypatch.setattr(files, "writable", refuse)
        monkeypatch.setattr(files, "check_creatable", refuse)
    else:
        monkeypatch.setattr(UserEnvironment, "check_writable", refuse)
    options = InstallOptions(
        environment=environment(site=tmp_path), mode=Mode.AUTO, index=PygIndex(str(tmp_path)), sources=None,
        cache=tmp_path / "cache", archs=(), logs=tmp_path, jobs=1, report=lambda _: None, progress=lambda *_: None,
    )  # fmt: skip
    with pytest.raises(PreflightError, match=f"^{closed}$"):
        start([], options)


@pytest.mark.parametrize("is_closed", [True, False])
def test_logs_are_in_the_cache_if_their_usual_folder_cannot_be_written(
    is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writable(*_: object) -> None:
        if is_closed:
            raise PreflightError("closed")

    monkeypatch.setattr(files, "writable", writable)
    folder = compile_wheel.log_folder(tmp_path / "usual", tmp_path / "cache")
    assert folder.parent == tmp_path / ("cache/logs" if is_closed else "usual")


def test_an_import_that_takes_too_long_is_no_fault_of_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_extensions.install.user_environment._SECONDS", 0.2)
    with pytest.raises(PreflightError, match="torch_scatter"):
        find_import_fault(
            find("torch_scatter"), environment(interpreter=fake_python(tmp_path / "slow", "exec sleep 9"))
        )
    killed = fake_python(tmp_path / "killed", "kill -9 $$")
    with pytest.raises(BuildError):
        find_import_fault(find("torch_scatter"), environment(interpreter=killed))


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "ILL", "TERM"])
def test_an_import_that_a_signal_ends_is_a_fault_of_the_extension(name: str, tmp_path: Path) -> None:
    python = fake_python(tmp_path, f"kill -{name} $$")
    fault = find_import_fault(find("torch_scatter"), environment(interpreter=python))
    assert fault.startswith("`import torch_scatter` fails: ")
    assert f"SIG{name}" in fault


def test_a_build_has_names_and_an_object_cache_that_other_environments_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CCACHE_DIR", raising=False)
    monkeypatch.setenv("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", "1")
    ignored = {"MAKEFLAGS", "MAX_JOBS", "CMAKE_GENERATOR", "FORCE_ONLY_CUDA"}
    for name in (*ignored, "FORCE_CUDA", "PYTHONPATH", "CPU_COUNT", "CMAKE_BUILD_PARALLEL_LEVEL"):
        monkeypatch.setenv(name, "7")
    (tmp_path / "one").mkdir()
    made = builder(environment(cuda_version=None), tmp_path).environ(tmp_path / "one", ())
    assert os.readlink(made["BUILD_ENV_LINK"]) == "/e", "headers lie under the work folder's own name for it"
    if "CMAKE_CUDA_COMPILER_LAUNCHER" in made:  # a cached nvcc needs the list of headers
        assert "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES" not in made
    assert made["CCACHE_BASEDIR"] == str(Path(made["BUILD_ENV_LINK"]).parent)
    assert (made["CCACHE_DIR"], made["TMPDIR"]) == (str(tmp_path / "ccache"), str(tmp_path))
    assert made.keys().isdisjoint(ignored)
    assert (made["FORCE_CUDA"], made["PYTHONPATH"]) == ("0", f"{tmp_path}/tools")
    assert (made["CPU_COUNT"], made["CMAKE_BUILD_PARALLEL_LEVEL"]) == ("1", "1")
    monkeypatch.setenv("CCACHE_DIR", "/own/objects")
    (tmp_path / "two").mkdir()
    made = builder(environment(cuda_version=None), tmp_path).environ(tmp_path / "two", ())
    assert made["CCACHE_DIR"] == "/own/objects"


@pytest.mark.parametrize("own", [{}, {"CXX": "clang++"}, {"CC": "clang"}], ids=str)
def test_a_build_for_cuda_has_the_toolkit_its_archs_and_a_compiler_that_nvcc_accepts(
    own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = program(tmp_path / "cuda/bin/nvcc", "exit 0").parents[1]
    libraries = [write(home / f"lib/lib{name}.so.13") for name in ("cublas", "cudart")]
    monkeypatch.setattr(compile_wheel, "read_newest_gcc", lambda folder: 13 * (folder == home / "include"))
    monkeypatch.setattr(compile_wheel, "find_gcc_suffix", lambda newest, *_, **__: f"-{newest}")
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    for name, value in {"CUDA_PATH": str(home), "LIBRARY_PATH": "/own/lib", **own}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "one").mkdir()
    made = builder(environment(), tmp_path).environ(tmp_path / "one", ("9.0", "12.0+PTX"))
    assert [made[name] for name in ("FORCE_CUDA", "FORCE_ONLY_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST")] == [
        "1", "1", str(home), "9.0;12.0+PTX",
    ]  # fmt: skip
    assert made["PATH"].startswith(f"{home}/bin:")
    assert f":{tmp_path}/tools/bin:/e/bin:" in made["PATH"]
    links, _, others = made["LIBRARY_PATH"].partition(os.pathsep)
    assert {path.name: path.resolve() for path in Path(links).iterdir()} == {
        library.name.removesuffix(".13"): library for library in libraries
    }
    assert others == "/own/lib"
    compilers = {name: made[name] for name in ("CC", "CXX") if name in made}
    assert compilers == (own or {"CC": "gcc-13", "CXX": "g++-13"})


@pytest.mark.parametrize("fails", ["check_cpp", "check_python_headers", "check_cuda", ""])
@pytest.mark.parametrize("cuda", ["13.0", None])
def test_each_compiler_and_header_of_a_build_is_tried(
    fails: str, cuda: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trying(name: str) -> Callable[..., None]:
        def check(*_: object) -> None:
            if name == fails:
                raise PreflightError(name)

        return check

    for name in ("check_cpp", "check_python_headers", "check_cuda"):
        monkeypatch.setattr(compile_wheel, name, trying(name))
    is_refused = fails != "" and (cuda is not None or fails != "check_cuda")
    with pytest.raises(PreflightError, match=fails) if is_refused else nullcontext():
        builder(environment(cuda_version=cuda), tmp_path).check({"CUDA_HOME": "/cuda"}, ("9.0",))


@pytest.mark.parametrize(
    "found", ["CUDA_HOME", "CUDA_PATH", "site", "prefix", "PATH", "usual-13.0", "usual", ""]
)
def test_the_cuda_toolkit_is_named_or_in_the_environment_or_a_usual_place(found: str, tmp_path: Path) -> None:
    homes = {
        "CUDA_HOME": "named", "CUDA_PATH": "path", "site": "site/nvidia/cu13", "prefix": "prefix", "PATH": "of-path",
        "usual-13.0": "usual-13.0", "usual": "usual",
    }  # fmt: skip
    after = [*homes][[*homes].index(found) :] if found else []
    for place in after:
        program(tmp_path / homes[place] / "bin/nvcc", "exit 0")
    environ = {"PATH": f"{tmp_path}/of-path/bin"}
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if name in after:
            environ[name] = str(tmp_path / homes[name])
    user = environment(site=tmp_path / "site", prefix=tmp_path / "prefix")
    if found:
        assert cuda_home(user, environ, tmp_path / "usual") == tmp_path / homes[found]
    else:
        with pytest.raises(PreflightError, match="nvcc not found"):
            cuda_home(user, environ, tmp_path / "usual")


def test_a_cuda_toolkit_that_is_named_and_has_no_nvcc_is_a_mistake(tmp_path: Path) -> None:
    program(tmp_path / "usual/bin/nvcc", "exit 0")
    with pytest.raises(PreflightError, match=f"^CUDA_PATH={tmp_path}: no bin/nvcc") as told:
        cuda_home(environment(), {"CUDA_PATH": str(tmp_path)}, tmp_path / "usual")
    assert told.value.remedy == "correct or unset CUDA_PATH"


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_slimmed_environment_gets_its_toolkit_back_by_a_command_that_works_here(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_installed:
        monkeypatch.setattr(program_words, "is_checkout", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".megabuild-slim").mkdir()
    with pytest.raises(PreflightError) as told:
        cuda_home(environment(prefix=tmp_path), {"PATH": "/nowhere"}, tmp_path / "usual")
    *program, slim, prefix, undo = told.value.remedy.partition("headers: ")[2].partition(";")[0].split()
    assert (slim, prefix, undo) == ("slim", str(tmp_path), "--undo")
    assert program == ["megabuild"] if is_installed else Path(program[-1]).is_file()


@pytest.mark.parametrize(
    ("script", "home"),
    [("echo '#$ TOP=/real/cuda' >&2", "/real/cuda"), ("echo no plan", ""), ("exit 1", "")],
)  # fmt: skip
def test_an_nvcc_that_is_a_script_says_where_its_toolkit_is(script: str, home: str, tmp_path: Path) -> None:
    nvcc = program(tmp_path / "usr/bin/nvcc", f'[ "$1" = --dryrun ] || exit 1; {script}')
    assert toolchain._home_of(str(nvcc)) == Path(home or tmp_path / "usr")
    link = tmp_path / "nvcc"
    link.symlink_to(nvcc)
    assert toolchain._home_of(str(link)) == Path(home or tmp_path / "usr")
    write(tmp_path / "usr/include/cuda_runtime.h")
    assert toolchain._home_of(str(nvcc)) == tmp_path / "usr"


@pytest.mark.parametrize("base", ["/usr", "/opt"])
def test_missing_headers_of_python_are_named_with_what_installs_them(base: str, tmp_path: Path) -> None:
    script = (
        'for out; do :; done; case "$*" in *-I/e/include*-I/e/more*) printf \'\\177ELF\' >"$out"; exit;; esac'
    )
    said = 'echo "trial.cpp:1:10: fatal error: Python.h: No such file or directory" >&2; exit 1'
    cxx = program(tmp_path / "c++", f"{script}; {said}")
    environ = {"CXX": str(cxx), "CFLAGS": "-I/e/include", "PATH": os.environ["PATH"]}
    user = environment(base_prefix=Path(base), python="3.77", include=())
    with pytest.raises(PreflightError, match=r"3\.77 of /e has no headers: Python\.h: No such file") as told:
        check_python_headers(user, environ, tmp_path)
    assert ("python3.77-dev" in told.value.remedy) == (base == "/usr")
    assert ("CPPFLAGS" in told.value.remedy) == (base == "/opt")
    check_python_headers(user, {**environ, "CPPFLAGS": "-I/e/more"}, tmp_path)
    check_python_headers(environment(include=(Path("/e/own"), Path("/e/more"))), environ, tmp_path)


@pytest.mark.parametrize(
    ("origin", "fault", "is_kept"),
    [(Origin.KEPT, "", True), (Origin.KEPT, "does not fit", False), (Origin.PREBUILT, "does not fit", True)],
)
def test_only_a_wheel_compiled_here_is_deleted_if_it_is_faulty(
    origin: Origin, fault: str, is_kept: bool, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "kept", "pyg_lib-0.7.0-py3-none-any.whl", {"pyg_lib/a.so": b""})
    steps = SimpleNamespace(_fault=lambda *_: fault)
    request = ended("pyg_lib", origin=origin, wheel=wheel)
    installer._Installer._discard_if_damaged(cast(Any, steps), request)
    assert wheel.exists() is is_kept
    wheel.parent.mkdir(exist_ok=True)
    wheel.write_bytes(b"PK half")
    steps._fault = lambda *_: ""
    installer._Installer._discard_if_damaged(cast(Any, steps), request)
    assert wheel.exists() is (origin is not Origin.KEPT)


@pytest.mark.parametrize(
    ("imported", "problem", "is_replaced"), [(True, "x", False), (False, "", False), (False, "x", True)]
)
def test_an_installed_extension_is_replaced_if_another_one_that_it_imports_was(
    imported: bool, problem: str, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer, "find_import_fault", lambda *_: problem)
    noted: list[str] = []
    installed: list[Path] = []
    steps = SimpleNamespace(
        _environment=None, _note_fault_of_installed=lambda _, text: noted.append(text),
        _choose=lambda request: setattr(request, "wheel", Path("a.whl")),
        _install=lambda _, wheel: installed.append(wheel),
    )  # fmt: skip
    installer._Installer.finish(
        cast(Any, steps), ended("pyg_lib", origin=Origin.INSTALLED, imported=imported)
    )
    expected = (["x"], [Path("a.whl")]) if is_replaced else ([], [])
    assert (noted, installed) == expected


@pytest.mark.parametrize(
    ("answer", "variable", "expected"),
    [
        ("echo", "", "include_file_ctime"),
        ("echo time_macros, locale", "", "time_macros,locale,include_file_ctime"),
        ("echo include_file_ctime, locale", "", "locale,include_file_ctime"),
        ("exit 1", "locale", "locale,include_file_ctime"),
    ],
)
def test_the_object_cache_ignores_the_ctime_of_headers_besides_what_the_user_chose(
    answer: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another installation of a package changes its headers' ctime, since they are hard links."""
    asked = f'[ "$*" = "--get-config sloppiness" ] || exit 1; {answer}'
    folder = program(tmp_path / "bin/ccache", asked).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CCACHE_SLOPPINESS", variable)
    (tmp_path / "one").mkdir()
    made = builder(environment(cuda_version=None), tmp_path).environ(tmp_path / "one", ())
    assert made["CCACHE_SLOPPINESS"] == expected
    launcher = shutil.which("ccache", path=made["PATH"])
    assert launcher == f"{tmp_path}/one/launcher/ccache", "PyTorch finds it before the compilers"
    launchers = {made[f"CMAKE_{language}_COMPILER_LAUNCHER"] for language in ("C", "CXX", "CUDA")}
    assert (launchers, made["CCACHE_COMPILERCHECK"]) == ({launcher}, "content")


def builder(user: UserEnvironment, folder: Path) -> Builder:
    return Builder(environment=user, jobs=1, folder=folder, objects=folder / "ccache")


@pytest.mark.parametrize(
    ("script", "content", "result"),
    [
        ("", "x/_C.so", Path), ("", "x/__init__.py", BuildError), ("exit 1", "x/_C.so", BuildError),
        ("cp $2/*.whl $2/y-1-py3-none-any.whl", "x/_C.so", BuildError),
        ("echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1", "x/_C.so", BuildError),
        ("echo 'virtual memory exhausted: Cannot allocate memory'; exit 1", "x/_C.so", OutOfMemoryError),
        ("echo 'ld: final link failed: No space left on device'; exit 1", "x/_C.so", OutOfSpaceError),
        ("echo 'memory exhausted? no'; kill -XFSZ $$", "x/_C.so", OutOfSpaceError),
        # words of a source line
        ("echo \"a.h:2:61: error: 'bad_alloc' is no member of 'std'\n 2 | throw std::bad_alloc();\"; exit 1", "x/_C.so",
         BuildError),
    ],
)  # fmt: skip
def test_a_compile_ends_with_its_wheel_or_its_cause(
    script: str, content: str, result: type, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "x-1-py3-none-any.whl", {content: b""})
    python = fake_python(tmp_path, f"echo one; printf two; mkdir $2; cp {wheel} $2\n{script}")
    (tmp_path / "source").mkdir()
    lines: list[str] = []
    with pytest.raises(result) if result is not Path else nullcontext():
        made = builder(environment(interpreter=python), tmp_path).build(
            tmp_path / "source", tmp_path / "log", os.environ, lines.append
        )
        assert (made, lines) == (tmp_path / "wheels" / wheel.name, ["one"])


def test_a_failed_compile_is_judged_by_memory_disks_and_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the user's object cache may be another one."""
    seen: list[ResourceFacts] = []
    ticks: list[int] = []
    own = write(tmp_path / "own/objects/a").parent

    def judge(facts: ResourceFacts, _: object) -> Verdict:
        seen.append(facts)
        return Verdict.ORDINARY

    watch = SimpleNamespace(tick=lambda: ticks.append(1), short=lambda: bool(ticks))
    monkeypatch.setattr(compile_wheel, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(compile_wheel, "MemoryWatch", lambda: watch)
    monkeypatch.setattr(compile_wheel, "judge", judge)
    monkeypatch.setattr(compile_wheel, "is_full", lambda folder: folder == own)
    (tmp_path / "source").mkdir()
    python = fake_python(tmp_path, "echo 'FAILED: [code=137] a.o'; echo c++ -c a.cpp; exit 3")
    environ = {**os.environ, "CCACHE_DIR": str(own)}
    with pytest.raises(BuildError):
        builder(environment(interpreter=python), tmp_path).build(
            tmp_path / "source", tmp_path / "log", environ, lambda _: None
        )
    assert seen == [ResourceFacts(memory_short=True, full_disk=own, exit_codes=(3, 137))]


@pytest.mark.parametrize(
    ("asked", "printed", "is_right"),
    [
        ("", "0.7.0", True),
        ("0.8.0", "0.8.0", True),
        ("0.8", "0.8.0+pt213cu130", True),
        ("0.8.0", "0.7.0", False),
        ("0.8.0", "0.8.0.dev20260101", False),
        ("0.8.0", "no version", True),
    ],
)
def test_a_checkout_of_another_version_than_the_requested_is_refused(
    asked: str, printed: str, is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes: list[tuple[str, ...]] = []

    def unpack(*_: object, indexes: Callable[[], object], **__: object) -> Path:
        indexes()
        return tmp_path

    monkeypatch.setattr(installer, "configured", lambda pip=(): indexes.append(pip))
    monkeypatch.setattr(installer, "unpack_sources", unpack)
    monkeypatch.setattr(Builder, "check", lambda *_: None)
    monkeypatch.setattr(Builder, "prepare", lambda *_, **__: None)
    python = fake_python(tmp_path, f"echo a warning >&2; echo {printed}")
    user = environment(interpreter=python, prefix=tmp_path, cuda_version=None)
    options = InstallOptions(
        environment=user, mode=Mode.SOURCE, index=PygIndex(), sources=tmp_path, cache=tmp_path, archs=(),
        logs=tmp_path, jobs=1, report=print, progress=print,
    )  # fmt: skip
    steps = installer._Installer(options, tmp_path, only_plan=False)
    request = ended("pyg_lib", asked=asked)
    with nullcontext() if is_right else pytest.raises(ProviderError, match=re.escape(printed)):
        steps._get_ready(request)
    assert (request.name in steps._ready) is is_right
    assert indexes == [user.pip], "those of the environment's pip"


def test_a_wheel_is_kept_under_the_sources_that_were_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compile takes minutes, in which users edit their checkout."""
    setup = write(tmp_path / "pyg-lib/setup.py")

    def unpack(*_: object, **__: object) -> Path:
        setup.write_text("# edited since")
        return tmp_path

    monkeypatch.setattr(installer, "unpack_sources", unpack)
    monkeypatch.setattr(Builder, "check", lambda *_: None)
    monkeypatch.setattr(Builder, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(Builder, "check_setup", lambda *_: "")
    options = InstallOptions(
        environment=environment(prefix=tmp_path, cuda_version=None), mode=Mode.SOURCE, index=PygIndex(),
        sources=tmp_path, cache=tmp_path, archs=(), logs=tmp_path, jobs=1, report=print, progress=print,
    )  # fmt: skip
    steps = installer._Installer(options, tmp_path, only_plan=False)
    request = ended("pyg_lib")
    before = steps._kept_folder(request)
    steps._get_ready(request)
    assert steps._ready[request.name].kept == before
    assert steps._kept_folder(request) != before


@pytest.mark.parametrize(("asked", "is_found"), [("", True), ("0.7", True), ("0.8.0", False)])
def test_a_kept_wheel_of_another_version_than_the_requested_is_not_taken(
    asked: str, is_found: bool, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "pyg_lib-0.7.0-cp310-abi3-linux_x86_64.whl", {"pyg_lib/a.so": b""})
    (tmp_path / "half.whl").touch()
    steps = SimpleNamespace(_kept_folder=lambda _: tmp_path)
    found = installer._Installer._find_kept(cast(Any, steps), ended("pyg_lib", asked=asked))
    assert found == (wheel if is_found else None)


def test_a_setup_that_fails_ends_before_the_compile(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'echo "error: no $1"; exit 1')
    with pytest.raises(BuildError, match=r"no setup\.py"):
        builder(environment(interpreter=python), tmp_path).check_setup(tmp_path, tmp_path / "log", os.environ)


@pytest.mark.parametrize(
    ("programs", "has", "extension", "missing"),
    [
        ({}, {}, "torch_scatter", ["ninja", "setuptools"]),
        ({"ninja": "1.12.1"}, {"setuptools": "65", "wheel": "0.40"}, "torch_scatter", ["ninja"]),
        ({"ninja": "1.13.0.git"}, {"setuptools": "70.1"}, "torch_scatter", []),
        ({"ninja": "1.13.0", "cmake": "3.18.4"}, {"setuptools": "80"}, "pyg_lib", []),
        ({"ninja": "1.13.0", "cmake": "3.16.3"}, {"setuptools": "69"}, "pyg_lib", ["setuptools", "cmake"]),
    ],
)
def test_build_tools_that_are_missing_or_too_old_are_installed_aside(
    programs: dict[str, str], has: dict[str, str], extension: str, missing: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    python = fake_python(
        tmp_path, f'case "$*" in *"config list") exit 0;; esac\necho "$@" > {tmp_path}/asked'
    )
    for name, version in programs.items():
        (python.parent / name).write_text(f"#!/bin/sh\necho {name} version {version}\n")
        (python.parent / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(python.parent))
    user = environment(interpreter=python, distributions={"pip": "25", **has})
    builder(user, tmp_path).prepare(find(extension), partial(run_pip, user, links=None, temporary=tmp_path))
    asked = (tmp_path / "asked").read_text().split() if missing else []
    assert [re.split(r"[<>=]", word)[0] for word in asked if re.search(r"\w[<>]=", word)] == missing
    assert (f"{tmp_path}/tools" in asked) == bool(missing)


def test_the_environments_build_tools_need_no_path_and_others_only_pips_word_in_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_python(tmp_path, "")
    program(python.parent / "ninja", "echo 1.13.0")
    monkeypatch.delenv("PATH")
    asked: list[tuple[tuple[str, ...], object]] = []

    def pip(*words: str, what: str, private: bool = False) -> None:
        asked.append((words, private))

    for only_try, has in ((False, {"setuptools": "80"}), (False, {}), (True, {})):
        user = environment(interpreter=python, distributions=has)
        builder(user, tmp_path).prepare(find("torch_scatter"), pip, only_try=only_try)
    tools = (
        "--target",
        f"{tmp_path}/tools",
        "--upgrade",
        "--no-deps",
        "--no-compile",
        "setuptools>=70.1,<82",
    )
    assert asked == [(("install", *tools), True), (("install", "--dry-run", *tools), True)]


def test_an_interrupted_compile_ends_with_its_compiler(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        raise KeyboardInterrupt

    python = fake_python(tmp_path, "echo one; sleep 60")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        builder(environment(interpreter=python), tmp_path).build(tmp_path, tmp_path / "log", os.environ, stop)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("mode", "archs", "cuda", "error"),
    [
        (Mode.PREBUILT, ("9.0",), "13.0", ProviderError), (Mode.SOURCE, (), "13.0", UsageError),
        (Mode.SOURCE, ("9.0",), "13.0", PreflightError), (Mode.SOURCE, (), None, PreflightError),
    ],
)  # fmt: skip
def test_a_compile_needs_leave_archs_and_compilers(
    mode: Mode,
    archs: tuple[str, ...],
    cuda: str | None,
    error: type,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    python = fake_python(tmp_path / "env", "exit 0")
    has = {"pip": "25"}
    user = environment(
        site=tmp_path, interpreter=python, torch_archs=(), cuda_version=cuda, distributions=has
    )
    options = InstallOptions(
        environment=user, mode=mode, index=PygIndex(str(tmp_path)), sources=None, cache=tmp_path, archs=archs,
        logs=tmp_path, jobs=1, report=lambda _: None, progress=lambda *_: None,
    )  # fmt: skip
    request = ended("torch_scatter")
    installer.plan([request], options)
    assert type(request.error) is error


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("printf '\\177ELF' > $out", ""),
        ("echo \"f.h:1: fatal error: no\" >&2; echo end >&2; exit 1", "fatal error: no"),
        ("exit 3", "exit status 3"), ("", "no code"), ("echo text > $out", "no code"),
    ],
)  # fmt: skip
def test_a_compiler_is_tried_on_a_kernel_for_each_arch(script: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "$@" > asked; for out; do :; done\n{script}\n')
    nvcc.chmod(0o755)
    (tmp_path / "trial.o").write_bytes(b"\x7fELF of an earlier trial")
    with pytest.raises(PreflightError, match=problem) if problem else nullcontext():
        check_cuda(environment(), tmp_path, ("9.0", "12.0+PTX"), {"CC": "gcc-13"}, tmp_path)
    asked = (tmp_path / "asked").read_text()
    codes = [word.rpartition("code=")[2] for word in asked.split() if "code=" in word]
    assert codes == ["sm_90", "sm_120", "compute_120"]
    assert f"-I{tmp_path}/include -ccbin gcc-13 " in asked
    assert "CUDART_VERSION / 1000 != 13" in (tmp_path / "trial.cu").read_text()


# ---- the command line ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("torch_scater",), "torch_scater: unknown extension"),
        (("torch_scatter==new",), "'new': not a version"),
        (("torch-scatter>=2.1",), "torch-scatter>=2.1: unsupported version, only == works"),
        (("torch_scatter~=2.1",), "torch_scatter~=2.1: unsupported version, only == works"),
        (("--arch-list", "Hopper"), "'Hopper' is not a CUDA architecture"),
        (("--python", "/nowhere/python"), "/nowhere/python: not a Python, nor a folder with one"),
    ],
)
def test_a_mistake_gets_a_sentence(invocation: Invocation, arguments: tuple[str, ...], message: str) -> None:
    done = call(invocation, "install-pyg", *arguments)
    assert done.exit_code == UsageError.exit_code
    assert done.stderr.startswith(f"error: {message}\nhint: ")


def test_native_architectures_need_a_gpu(tmp_path: Path, invocation: Invocation) -> None:
    facts = {**FACTS, "torch": {**TORCH, "devices": []}}
    python = fake_python(tmp_path, f"echo '{json.dumps(facts)}'")
    done = call(invocation, "install-pyg", "--python", str(python), "--arch-list", "native")
    assert done.exit_code == UnknownError.exit_code


@pytest.mark.parametrize(("words", "called"), [(("--plan",), "plan"), ((), "install")])
def test_a_plan_installs_nothing(
    words: tuple[str, ...],
    called: str,
    tmp_path: Path,
    invocation: Invocation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []
    for name in ("plan", "install"):
        monkeypatch.setattr(
            installer, name, lambda requests, _, name=name: asked.append((name, requests[0].extension.name))
        )
    python = fake_python(tmp_path, f"echo '{json.dumps(FACTS)}'")
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    call(invocation, "install-pyg", "scatter", "--python", str(python), *words)
    assert asked == [(called, "torch_scatter")]


def test_versions_come_from_the_matrix_and_order_from_need(repository: Path) -> None:
    variant = load(repository, "linux_64_cpu").variant
    requests = parse_requests(("torch_sparse", "scatter==2.1.1"), variant)
    assert [(request.extension.name, request.asked, request.release.version) for request in requests] == [
        ("torch_scatter", "2.1.1", "2.1.1"),
        ("torch_sparse", "", "0.6.18"),
    ]
    assert requests[0].release.sha256 == ""  # the matrix knows the hash of another version
    assert requests[1].release.sha256.startswith("2f14c510")
    assert parse_requests((), variant)[0].extension.name == "pyg_lib"


@pytest.mark.parametrize(
    "word", ["torch_scatter==2.1.2", "scatter==2.1.2.0", "torch_scatter==2.1.2+pt213cu130"]
)
def test_a_version_is_the_matrixs_however_it_is_written(word: str, repository: Path) -> None:
    (request,) = parse_requests((word,), load(repository, "linux_64_cpu").variant)
    assert request.release.sha256.startswith("69b3aa43")
    assert request.accepts("2.1.2+pt214cpu")
    assert not request.accepts("2.1.1+pt213cu130")
    assert not request.accepts("unknown")


# ---- what is shown -------------------------------------------------------------------------------------------------
def test_results_are_a_table_and_a_document() -> None:
    wheel = "torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl"
    items = [
        ended("torch_scatter", origin=Origin.PREBUILT, offered=wheel),
        ended("torch_sparse", origin=Origin.SOURCE, archs=("9.0",), notes=["no wheel: " + "word " * 30]),
        ended("torch_spline_conv", origin=Origin.INSTALLED, installed="1.2.2"),
        ended("torch_cluster", origin=Origin.KEPT, wheel=Path("/kept") / wheel, archs=("9.0",)),
        ended("pyg_lib", error=BuildError("it does not compile: x.cpp:1: error", "mend it")),
    ]
    for only_plan in (True, False):
        result = install_result(environment(), ("9.0",), items, only_plan=only_plan)
        assert result.exit_code == BuildError.exit_code
        assert max(len(line) for line in result.lines if "  " in line.strip()) <= 80  # tables
        rows: Any = result.to_json()["extensions"]
        assert [(row["how"], row["version"]) for row in rows] == [
            ("prebuilt", "2.1.2+pt213cu130"), ("source", "1"), ("there", "1.2.2"), ("kept", "2.1.2+pt213cu130"),
            (None, None),
        ]  # fmt: skip
        assert [row["cpu_seconds"] is not None for row in rows] == [False, only_plan, False, False, False]
        assert [row["exit_code"] for row in rows] == [0, 0, 0, 0, 8]
        assert [row["wheel"] for row in rows] == [wheel, None, None, f"/kept/{wheel}", None]
        assert [row["archs"] for row in rows] == [[], ["9.0"], [], [], []]
        assert result.to_json()["ok"] is False
        (cell,) = [line for line in result.lines if line.startswith("pyg_lib ")]
        assert cell.endswith("failed")
        assert not [line for line in result.lines if "for 9.0" in line]
        shown = result.lines[result.lines.index("  pyg_lib: it does not compile: x.cpp:1: error") :]
        assert shown == ["  pyg_lib: it does not compile: x.cpp:1: error", "  pyg_lib: mend it"]


def test_a_plan_names_architectures_that_differ_from_the_environments() -> None:
    items = [ended("torch_sparse", origin=Origin.SOURCE, archs=("9.0",))]
    shown = install_result(environment(), ("5.0", "9.0"), items, only_plan=True).lines
    assert shown[-1] == "  torch_sparse: for 9.0"


def test_settings_without_effect_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in filter(lambda name: name.startswith("PIP_"), tuple(os.environ)):
        monkeypatch.delenv(name)
    python = fake_python(tmp_path, "echo \"install.target='/t'\"")
    user = environment(interpreter=python, distributions={"pip": "25"})
    monkeypatch.setenv("PIP_DRY_RUN", "1")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    *_, variables, settings = environment_lines(user, (), Jobs(count=1, reason="x"))
    assert variables == "! variables without effect here: TORCH_CUDA_ARCH_LIST; use --arch-list"
    assert settings == "! pip's settings without effect here: dry-run, target"


@pytest.mark.parametrize(
    ("fact", "setting", "refused"),
    [
        ("managed", "", "belongs to the system"), ("managed", "break-system-packages='true'", ""),
        ("system", "require-virtualenv='1'", "require-virtualenv"), ("system", "", ""),
        ("virtual", "require-virtualenv='1'", ""),
    ],
)  # fmt: skip
def test_pips_settings_permit_and_forbid_an_environment(
    fact: str, setting: str, refused: str, tmp_path: Path
) -> None:
    python = fake_python(tmp_path, f'echo "global.{setting}"')
    base = Path("/usr") if fact == "virtual" else tmp_path
    user = environment(
        interpreter=python, prefix=tmp_path, base_prefix=base, site=tmp_path,
        distributions={"pip": "25"}, managed=fact == "managed",
    )  # fmt: skip
    if not refused:
        user.check_writable()
        return
    with pytest.raises(PreflightError, match=refused) as raised:
        user.check_writable()
    assert ("PIP_BREAK_SYSTEM_PACKAGES=1" in raised.value.remedy) == (fact == "managed")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"prefix": "/usr"}, "python3 -m venv venv && venv/bin/pip install torch"),
        ({"distributions": {"pip": "25"}}, "-m pip install torch"),
        ({"distributions": {"pip": "25", "torch": "2"}}, "-m pip install --force-reinstall torch"),
        ({}, "uv pip install --python "),
    ],
)
def test_a_missing_torch_is_installed_into_an_environment_of_the_users_own(
    changes: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    facts = {**FACTS, "torch": None, "torch_problem": "No module named 'torch'", **changes}
    with pytest.raises(PreflightError) as raised:
        look(fake_python(tmp_path, f'cat <<"END"\n{json.dumps(facts)}\nEND'))
    assert hint in raised.value.remedy
    assert ("--force-reinstall" in raised.value.remedy) == ("--force-reinstall" in hint)


def test_a_version_that_pip_did_not_install_is_no_fault_of_the_wheel(tmp_path: Path) -> None:
    wheel = Path("torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl")
    for answer, fits in (("echo 2.1.2+pt213cu130", True), ("echo 2.1.1", False), ("exit 1", False)):
        user = environment(interpreter=fake_python(tmp_path, answer))
        with nullcontext() if fits else pytest.raises(ProviderError, match="pip reported success"):
            check_installed(user, wheel)


@pytest.mark.parametrize("lacking", [False, True], ids=["", "without its requirements"])
@pytest.mark.parametrize(
    ("fault", "import_fault"), [("", ""), ("no kernels", ""), ("", "does not import"), ("no kernels", "both")]
)
def test_a_faulty_extension_is_removed_again(
    fault: str, import_fault: str, lacking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its requirements, these are the fault: it stays."""
    calls: list[str] = []

    def pip(command: str, *words: str, **_: object) -> None:
        calls.append(command)
        if lacking and "--constraint" in words:
            raise ProviderError("no network")

    monkeypatch.setattr(installer, "check_installed", lambda *_: None)
    monkeypatch.setattr(installer, "find_import_fault", lambda *_: import_fault)
    install = SimpleNamespace(
        _report=list, _pip=pip, _folder=tmp_path, _fault=lambda *_: fault,
        _environment=SimpleNamespace(torch_version="2.13.0", prefix=tmp_path),
    )  # fmt: skip
    request = SimpleNamespace(name="torch_scatter", extension=None)

    def run() -> None:
        installer._Installer._install(cast(Any, install), cast(Any, request), tmp_path / "a.whl")

    if not (fault or import_fault):
        run()
    elif lacking:
        with pytest.raises(ProviderError, match="no network"):
            run()
    else:
        with pytest.raises(IntegrityError, match=fault or import_fault):
            run()
    removed = bool(fault or import_fault) and not lacking
    assert calls == ["install", "install"] + ["uninstall"] * removed
