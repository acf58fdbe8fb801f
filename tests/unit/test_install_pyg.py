"""install-pyg: which environment, which versions, how many jobs, and what is shown."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from packaging.version import Version

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from groundwork.errors import (
    BuildError,
    OutOfSpaceError,
    PreflightError,
    ProviderError,
    UsageError,
)
from groundwork.jobs import Jobs
from groundwork.machine import Machine
from groundwork.network.index import File
from megabuild.configs.config import load
from pyg_extensions.install import user_environment
from pyg_extensions.install.compile_wheel import Workshop, choose_jobs
from pyg_extensions.install.installation import ExtensionRequest, Installation, Origin, parse_requests
from pyg_extensions.install.pip import Pip, extract_errors
from pyg_extensions.install.report import environment_lines, install_result, plan_result
from pyg_extensions.install.toolchain import check_cpp, cuda_home
from pyg_extensions.install.user_environment import (
    UserEnvironment,
    clean,
    find_import_fault,
    interpreter,
    look,
    parse_arch_flags,
)
from pyg_extensions.table import ExtensionRelease, find

ask_python = Path(user_environment.__file__).with_name("ask_python.py")


def environment(**changes: Any) -> UserEnvironment:
    values: dict[str, Any] = {
        "interpreter": Path("/e/bin/python"),
        "prefix": Path("/e"),
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


def ended(extension: str, how: str = "", version: str = "", **values: Any) -> Installation:
    release = ExtensionRelease(name=extension, version="1")
    request = ExtensionRequest(extension=find(extension), version="", release=release)
    origin = Origin(how=how, named=version)
    return Installation(request=request, origin=origin, seconds=3.2, **values)


def fake_python(folder: Path, answer: str) -> Path:
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# ---- the environment ---------------------------------------------------------------------------------------------
def test_the_active_environment_is_meant_where_none_is_named(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "venv", "exit 0")
    conda = fake_python(tmp_path / "conda", "exit 0")
    assert (
        interpreter(None, {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")})
        == python
    )
    assert interpreter(None, {"CONDA_PREFIX": str(tmp_path / "conda")}) == conda
    assert interpreter(None, {"PATH": str(python.parent)}) == python


def test_an_environment_is_named_by_folder_or_interpreter(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "exit 0")
    assert interpreter(str(tmp_path), {}) == python
    assert interpreter(str(python), {}) == python
    for wrong in (tmp_path / "nothing", tmp_path / "bin" / "nothing"):
        with pytest.raises(UsageError):
            interpreter(str(wrong), {})
    with pytest.raises(UsageError, match="no environment is active"):
        interpreter(None, {"PATH": str(tmp_path)})


def test_an_environment_without_torch_gets_a_sentence() -> None:
    with pytest.raises(PreflightError, match="has no PyTorch"):
        look(Path(sys.executable))  # the tests' own


def test_a_python_that_does_not_run_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="does not run: broken libc"):
        look(fake_python(tmp_path, "echo broken libc >&2; exit 1"))


def test_a_torch_that_does_not_import_is_told_from_none(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')\n")
    with pytest.raises(PreflightError, match=r"`import torch` fails: OSError: libcudart\.so\.13"):
        look(venv / "bin" / "python")


def test_archs_of_torch_as_an_arch_list() -> None:
    assert parse_arch_flags(["sm_75", "sm_90a", "sm_120", "compute_120"]) == ("7.5", "9.0a", "12.0+PTX")
    assert parse_arch_flags(["gfx90a"]) == ()


def test_archs_are_asked_for_or_those_of_the_gpus_or_torchs_own() -> None:
    assert environment(devices=("8.9",)).archs(("9.0",)) == ("9.0",)
    assert environment(devices=("8.9",)).archs(()) == ("8.9",)
    assert environment().archs(()) == ("9.0", "12.0+PTX")
    assert environment(cuda_version=None).archs(("9.0",)) == ()


@pytest.mark.parametrize(("cuda", "jobs"), [(None, 3), ("13.0", 2)])
def test_jobs_fit_into_memory(cuda: str | None, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_JOBS", "CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    machine = Machine(cores=16, memory=16 * 10**9, memory_free=8 * 10**9)
    assert choose_jobs(environment(cuda_version=cuda), machine, None).count == jobs
    assert choose_jobs(environment(cuda_version=cuda), machine, 7).count == 7


def test_nvcc_is_found_in_nvidias_wheels(tmp_path: Path) -> None:
    there = environment(site=tmp_path, prefix=tmp_path / "prefix")
    nvcc = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    assert cuda_home(there, {"PATH": str(tmp_path)}) == tmp_path / "nvidia" / "cu13"


def test_no_nvcc_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="nvcc was not found") as raised:
        cuda_home(environment(site=tmp_path, prefix=tmp_path), {"PATH": str(tmp_path)}, tmp_path / "cuda")
    assert 'uv pip install --python /e/bin/python "cuda-toolkit[nvcc,' in raised.value.remedy
    with_pip = environment(site=tmp_path, prefix=tmp_path, distributions={"pip": "25"})
    with pytest.raises(PreflightError) as raised:
        cuda_home(with_pip, {"PATH": str(tmp_path)}, tmp_path / "cuda")
    assert raised.value.remedy.startswith(
        '/e/bin/python -m pip install "cuda-toolkit[nvcc,cccl,curand,profiler]==13.0.*"'
    )
    (tmp_path / ".megabuild-slim").mkdir()
    with pytest.raises(PreflightError) as raised:
        cuda_home(with_pip, {"PATH": str(tmp_path)}, tmp_path / "cuda")
    assert "--undo" in raised.value.remedy


@pytest.mark.parametrize(
    "reason",
    [
        "connection broken by 'NewConnectionError(...: [Errno 111] Connection refused')': /simple/ninja/",
        "connection broken by 'ProxyError('Cannot connect to proxy.')': /simple/ninja/",
        "The repository located at index.example is not a trusted or secure host and is being ignored.",
        "401 Error, Credentials not correct for https://index.example/simple/ninja/",
        "Could not fetch URL https://index.example/ninja/: There was a problem confirming the ssl certificate",
    ],
)
def test_pips_errors_come_with_the_reason(reason: str) -> None:
    said = f"WARNING: Retrying after {reason}\nERROR: Could not find a version\nERROR: No match\n[notice] new pip\n"
    assert extract_errors(said) == f"{reason}; ERROR: Could not find a version; ERROR: No match"


def test_of_a_program_without_errors_the_last_lines_are_kept() -> None:
    assert extract_errors("WARNING: old\nit stopped\n") == "it stopped"
    assert extract_errors("\n") == "it printed nothing"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            OutOfSpaceError,
        ),
        ("OSError: [Errno 122] Disk quota exceeded", OutOfSpaceError),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/e'",
            PreflightError,
        ),
        ("ERROR: No matching distribution found for ninja", ProviderError),
    ],
)
def test_a_place_that_is_full_or_closed_is_told_from_an_index(
    said: str, kind: type[Exception], tmp_path: Path
) -> None:
    python = fake_python(tmp_path, f'echo "{said}" >&2; exit 1')
    pip = Pip(environment=environment(interpreter=python, distributions={"pip": "25"}))
    with pytest.raises(kind):
        pip.run("install", "x", what="pip does not install x")


def test_a_cache_where_no_program_starts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(*_: object, **__: object) -> None:
        (tmp_path / "tools/bin").mkdir(parents=True)
        (tmp_path / "tools/bin/ninja").touch()  # as on a disk that is mounted noexec

    monkeypatch.setattr(Pip, "run", install)
    monkeypatch.setenv("PATH", "/nowhere")
    there = environment()
    workshop = Workshop(environment=there, jobs=1, folder=tmp_path, objects=tmp_path)
    with pytest.raises(PreflightError, match="cannot be started there: Permission denied"):
        workshop.prepare(find("torch_scatter"), Pip(environment=there))


def test_programs_whose_words_are_read_speak_english() -> None:
    kept = clean({"LANG": "de_DE.UTF-8", "LANGUAGE": "de", "LC_MESSAGES": "fr_FR.UTF-8", "PYTHONPATH": "/x"})
    assert (kept["LC_ALL"], "LANGUAGE" in kept, "PYTHONPATH" in kept) == ("C.UTF-8", False, False)


@pytest.mark.parametrize("compiler", ["true", "echo"])
def test_a_compiler_that_writes_nothing_is_refused(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="writes no code"):
        check_cpp({"CXX": compiler, "PATH": os.environ["PATH"]}, tmp_path)


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONUSERBASE"])
def test_a_torch_of_the_users_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "user"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = base if variable == "PYTHONPATH" else base / "lib" / version / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").touch()
    monkeypatch.setenv(variable, str(base))
    with pytest.raises(PreflightError) as raised:
        look(Path(sys.executable).resolve())
    assert str(site) in raised.value.message
    assert "-m venv" in raised.value.remedy


def test_what_an_interrupted_pip_left_is_no_distribution(tmp_path: Path) -> None:
    for folder, content in (
        ("~orch_scatter-2.0.9", b"Name: torch_scatter\nVersion: 2.0.9\n"),
        ("torch_sparse-0.6.18", b"Name: torch_sparse\nVersion: 0.6.18\n"),
        ("damaged-1", b"Name: damaged\nAuthor: \xff\n"),
    ):
        (tmp_path / f"{folder}.dist-info").mkdir()
        (tmp_path / f"{folder}.dist-info/METADATA").write_bytes(content)
    words = [sys.executable, str(ask_python)]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    distributions = json.loads(done.stdout.splitlines()[-1])["distributions"]
    assert (distributions.get("torch_scatter"), distributions.get("torch_sparse")) == (None, "0.6.18")


def test_an_import_that_takes_too_long_is_no_fault_of_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_extensions.install.user_environment._SECONDS", 0.2)
    with pytest.raises(PreflightError, match="takes more than"):
        find_import_fault(
            find("torch_scatter"), environment(interpreter=fake_python(tmp_path / "slow", "exec sleep 9"))
        )
    killed = fake_python(tmp_path / "killed", "kill -9 $$")
    with pytest.raises(BuildError):
        find_import_fault(find("torch_scatter"), environment(interpreter=killed))


def test_an_interrupted_compile_leaves_no_compiler_behind(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper.py"
    started = tmp_path / "started"
    wrapper.write_text(
        "import pathlib, subprocess, sys\n"
        "compiler = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(started)!r}).write_text(str(compiler.pid))\n"
        "compiler.wait()\n"
    )

    def interrupt(_signal: int, _frame: object) -> None:
        if started.exists() and started.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    workshop = Workshop(
        environment=environment(interpreter=Path(sys.executable)),
        wrapper=wrapper,
        jobs=1,
        folder=tmp_path,
        objects=tmp_path / "ccache",
    )
    (tmp_path / "source").mkdir()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            workshop.build(tmp_path / "source", tmp_path / "log", os.environ)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    compiler = int(started.read_text())
    for _ in range(100):
        if not psutil.pid_exists(compiler) or psutil.Process(compiler).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the compiler goes on")


def test_a_build_has_names_and_an_object_cache_that_other_environments_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CCACHE_DIR", raising=False)
    workshop = Workshop(
        environment=environment(cuda_version=None),
        wrapper=tmp_path,
        jobs=3,
        folder=tmp_path,
        objects=tmp_path / "ccache",
    )
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    made = workshop.environ(tmp_path / "one", ())
    assert os.readlink(made["BUILD_ENV_LINK"]) == "/e", "headers lie under the work folder's own name for it"
    assert made["CCACHE_BASEDIR"] == str(Path(made["BUILD_ENV_LINK"]).parent)
    assert (made["CCACHE_DIR"], made["TMPDIR"]) == (str(tmp_path / "ccache"), str(tmp_path))
    monkeypatch.setenv("CCACHE_DIR", "/mine")
    assert workshop.environ(tmp_path / "two", ())["CCACHE_DIR"] == "/mine"


# ---- the command line ----------------------------------------------------------------------------------------------
def invoke(*arguments: str, invocation: Invocation) -> Result:
    return CliRunner().invoke(megabuild, ["install-pyg", *arguments], obj=invocation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("torch_scater",), "'torch_scater' is not an extension"),
        (("torch_scatter==new",), "'new' is not a version"),
        (("torch-scatter>=2.1",), "'torch-scatter>=2.1': only == can be asked for"),
        (("torch_scatter~=2.1",), "'torch_scatter~=2.1': only == can be asked for"),
        (("--arch-list", "Hopper"), "'Hopper' is not a CUDA architecture"),
        (("--python", "/nowhere/python"), "'/nowhere/python' is not a Python"),
    ],
)
def test_a_mistake_gets_a_sentence(invocation: Invocation, arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments, invocation=invocation)
    assert isinstance(result.exception, UsageError)
    assert result.exception.message == message
    assert result.exception.remedy


def test_versions_come_from_the_matrix_and_order_from_need(repository: Path) -> None:
    variant = load(repository, "linux_64_cpu").variant
    requests = parse_requests(("torch_sparse", "scatter==2.1.1"), variant)
    assert [(request.extension.name, request.version, request.release.version) for request in requests] == [
        ("torch_scatter", "2.1.1", "2.1.1"),
        ("torch_sparse", "", "0.6.18"),
    ]
    assert requests[0].release.sha256 == ""  # the matrix knows the hash of another version
    assert requests[1].release.sha256.startswith("2f14c510")
    assert parse_requests((), variant)[0].extension.name == "pyg_lib"


# ---- what is shown -------------------------------------------------------------------------------------------------
def test_the_table_and_its_reasons_fit_80_columns() -> None:
    steps = [
        ended("torch_spline_conv", version="1.2.2+pt213cu130", how="prebuilt"),
        ended("torch_scatter", version="2.1.2", how="source", notes=["no wheel: " + "word " * 30]),
        ended("torch_sparse", version="1.2.2+pt213cu130", how="there"),
        ended("pyg_lib", error=BuildError("it does not compile: x.cpp:1: error", "mend it")),
    ]
    result = install_result(environment(), steps)
    lines = list(result.lines)
    assert (lines.pop(0), result.exit_code, result.format) == ("", 8, "install-pyg")
    assert [row["ok"] for row in result.document["extensions"]] == [True, True, True, False]  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["extension", "version", "from", "time", "result"]
    text = "\n".join(lines)
    assert "pyg_lib: it does not compile" in text
    assert "pyg_lib: mend it" in text
    assert "was there" in text


def test_a_plan_names_the_wheel_and_what_compiling_takes(tmp_path: Path) -> None:
    wheel = tmp_path / "torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(bytes(34500))
    offered = File(
        name=wheel.name, project="torch-scatter", version=Version("2.1.2+pt213cu130"), url=wheel.as_uri()
    )
    found = [ended("torch_scatter"), ended("torch_sparse", how="source", version="0.6.18")]
    found[0].origin = Origin(how="prebuilt", offered=offered)
    result = plan_result(environment(cuda_version=None), found)
    assert [line.split() for line in result.lines[1:4]] == [
        ["extension", "version", "from", "CPU", "time"],
        ["torch_scatter", "2.1.2+pt213cu130", "wheel", "-"],
        ["torch_sparse", "0.6.18", "compile", "about", "7", "min"],
    ]
    assert result.lines[4:] == [f"  torch_scatter: {wheel.name}"]
    document = result.to_json()
    assert (document["format"], document["ok"]) == ("megabuild/install-pyg", True)
    rows: Any = document["plan"]
    assert [(row["wheel"], row["cpu_seconds"]) for row in rows] == [(wheel.name, None), (None, 410)]


def test_variables_of_other_guides_and_another_accelerator_are_named() -> None:
    jobs = Jobs(count=2, reason="2 cores")
    xpu = environment(torch_version="2.13.0+xpu", cuda_version=None)
    shown = environment_lines(xpu, (), jobs, {"FORCE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "9.0"})
    assert "XPU" in shown[1]
    assert any("not used: TORCH_CUDA_ARCH_LIST, FORCE_CUDA" in line for line in shown)


def test_a_reason_of_several_extensions_is_said_once() -> None:
    error = PreflightError("nvcc was not found", "venv/bin/pip install nvcc")
    found = [ended(name, error=error) for name in ("torch_scatter", "torch_sparse", "torch_cluster")]
    result = plan_result(environment(), found)
    assert "\n".join(result.lines).count("nvcc was not found") == 1
    assert result.exit_code == 4


def test_with_json_a_mistake_is_a_document_too(
    invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["install-pyg", "--json", "-p", "/nowhere/x"]
    code = outcome(lambda: megabuild.main(arguments, standalone_mode=False, obj=invocation), invocation)
    assert code == UsageError.exit_code
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"
