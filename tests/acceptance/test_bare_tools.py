"""What a user of a bare Debian 13 was promised who has PyPI and Debian alone: tools, uvx, firewall, odd file systems."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

import bare_root
import pytest
from bare_root import HOME, BareRoot, succeed
from pages import REPOSITORY, documented

#: Starts a command in a namespace whose only network is a loopback that is down.
NO_NETWORK = ("unshare", "--map-root-user", "--net")
ODD_FILE_SYSTEM = REPOSITORY / "tests" / "acceptance" / "odd_file_system.c"
#: uv brings certificates of its own, and this machine's network may have others.
UVX = {"UV_SYSTEM_CERTS": "1"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareRoot:
    """A root with a clone that was never started; pip has no settings but PyPI's mirror."""
    machine = bare_root.make(REPOSITORY, tmp_path_factory.mktemp("bare"))
    succeed(machine.run("python3", "-m", "venv", f"{HOME}/v"))
    settings = succeed(machine.run(f"{HOME}/v/bin/pip", "config", "list"))
    assert "find-links" not in settings
    assert "extra-index-url" not in settings
    return machine


@pytest.fixture(scope="module")
def installed(bare: BareRoot) -> BareRoot:
    """The same with ``~/v/bin/megabuild``."""
    # Python compiles the modules that the tests import
    succeed(bare.run(f"{HOME}/v/bin/pip", "install", "-q", "--no-compile", f"{HOME}/megabuild"))
    return bare


@pytest.fixture(scope="module")
def small(installed: BareRoot) -> Path:
    """``~/small``, an environment with a compiled package, as it is outside the root."""
    make = "python3 -m venv --without-pip ~/small"  # a pip takes four CPU seconds
    succeed(shell(installed, f"{make} && ~/v/bin/pip --python ~/small install -q zstandard"))
    return installed.home / "small"


@pytest.fixture(scope="module")
def started(bare: BareRoot) -> BareRoot:
    """The same with a clone that was started once."""
    succeed(shell(bare, "python3 build-locally.py --help"))
    return bare


@pytest.fixture(scope="module")
def odd_file_system(bare: BareRoot) -> str:
    """The library in the root that takes locks or links from a folder."""
    (bare.home / "odd.c").write_bytes(ODD_FILE_SYSTEM.read_bytes())
    succeed(shell(bare, "gcc -shared -fPIC -o ~/odd.so ~/odd.c -ldl"))
    return f"{HOME}/odd.so"


def shell(
    machine: BareRoot, command: str, *, network: bool = True, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a shell's command line in the clone; fails the test if a traceback is shown."""
    words = () if network else NO_NETWORK
    done = machine.run(*words, "bash", "-c", command, environment=environment)
    assert "Traceback (most recent call last)" not in done.stdout + done.stderr
    return done


def refused(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    """Return the errors of a command that failed with one cause and one hint; fails the test otherwise."""
    assert done.returncode == exit_code, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith(("error:", "hint:"))] == [
        "error",
        "hint",
    ]
    return done.stderr


def content(environment: Path) -> dict[str, bytes]:
    """Return the content of each file outside byte code, which Python may write again."""
    return {
        str(path): path.read_bytes()
        for path in environment.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_an_installed_tool_shows_and_completes_its_commands(installed: BareRoot) -> None:
    listed = ("sizes", "slim", "verify", "install-pyg")
    for words in ("", "--help"):
        text = succeed(shell(installed, f"~/v/bin/megabuild {words}"))
        assert all(f"\n  {command} " in text for command in listed)
    completed = shell(
        installed,
        "~/v/bin/megabuild",
        environment={"_MEGABUILD_COMPLETE": "bash_complete", "COMP_WORDS": "megabuild s", "COMP_CWORD": "1"},
    )
    assert succeed(completed).split() == ["plain,sizes", "plain,slim", "plain,status"]


def test_an_installed_tool_measures_a_package_of_pypi(installed: BareRoot) -> None:
    document = json.loads(shell(installed, "~/v/bin/megabuild sizes six --json").stdout)
    assert "six" in json.dumps(document)


def test_an_installed_tool_slims_an_environment_and_restores_it(installed: BareRoot, small: Path) -> None:
    before = content(small)
    plan = succeed(shell(installed, "~/v/bin/megabuild slim ~/small"))
    assert "nothing was changed" in plan
    assert content(small) == before
    succeed(shell(installed, "~/v/bin/megabuild slim ~/small --apply"))
    slimmed = sum(len(data) for path, data in content(small).items() if ".megabuild-slim" not in path)
    assert slimmed < sum(map(len, before.values()))
    succeed(shell(installed, "~/v/bin/megabuild slim ~/small --undo"))
    assert content(small) == before


def test_install_pyg_advises_pytorch_where_it_is_missing(installed: BareRoot) -> None:
    text = refused(shell(installed, "~/v/bin/megabuild install-pyg --python ~/v torch_scatter --plan"), 4)
    assert "install PyTorch there: " in text


@pytest.mark.long  # uv installs the program first
@pytest.mark.parametrize("requirements", ["six", "torch==2.15.0 tensorflow onnxruntime-gpu"])
def test_uvx_measures_packages_of_pypi(bare: BareRoot, requirements: str) -> None:
    succeed(shell(bare, "test -x ~/u/bin/uvx || (python3 -m venv ~/u && ~/u/bin/pip install -q uv)"))
    command = f"~/u/bin/uvx --from ~/megabuild megabuild sizes {requirements}"
    text = succeed(shell(bare, command, environment=UVX))
    assert "all together" in text or requirements == "six"
    for requirement in requirements.split():
        assert f"{requirement}, Python 3.13: " in text


def test_wheels_of_pypi_alone_are_enough_for_a_wheel_config(started: BareRoot) -> None:
    said = succeed(shell(started, "python3 build-locally.py linux_64_cuda132_wheel --plan"))
    assert re.search(r"libtorch .* torch-2\.15\.0-", said)


def test_a_cpu_wheel_config_names_the_ways_around_the_firewall(started: BareRoot) -> None:
    command = documented("python3 build-locally.py linux_64_cpu_wheel -e spline_conv")
    if shell(started, "getent hosts download.pytorch.org").returncode == 0:
        pytest.skip("download.pytorch.org is reachable, and the config can be planned")
    text = refused(shell(started, f"{command} --plan"), 5)
    assert "PyPI has no CPU wheels of PyTorch for x86-64" in text
    assert "put torch-2.13.0+cpu-cp313-*.whl into a folder and set PIP_FIND_LINKS to the folder" in text
    assert "set PIP_EXTRA_INDEX_URL to a mirror of https://download.pytorch.org/whl/cpu" in text
    assert "--python" not in text


def test_a_folder_of_cpu_wheels_is_enough_for_a_plan(started: BareRoot) -> None:
    (started.home / "wheels").mkdir()
    wheel = started.home / "wheels" / "torch-2.13.0+cpu-cp313-cp313-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:  # a plan reads no more of it
        metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n"
        archive.writestr("torch-2.13.0+cpu.dist-info/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp313-cp313-manylinux_2_28_x86_64\n"
        archive.writestr("torch-2.13.0+cpu.dist-info/WHEEL", tag)
        archive.writestr("torch-2.13.0+cpu.dist-info/RECORD", "")
    command = documented(
        "PIP_FIND_LINKS=/srv/wheels python3 build-locally.py linux_64_cpu_wheel -e spline_conv",
        {"/srv/wheels": f"{HOME}/wheels"},
    )
    cache = {
        "MEGABUILD_CACHE": f"{HOME}/cache-folder"
    }  # a cache keeps which wheels fit, whatever pip's indexes are
    plan = succeed(shell(started, f"{command} --plan", environment=cache))
    assert f"libtorch is made from {wheel.name}" in plan


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (
            documented(
                "PIP_FIND_LINKS=/srv/wheels python3 build-locally.py linux_64_cpu_wheel -e spline_conv"
            ),
            "/srv/wheels: no such folder",
        ),
        (
            documented(
                "PIP_EXTRA_INDEX_URL=https://mirror.example.org/whl/cpu python3 build-locally.py linux_64_cpu_wheel -e spline_conv"
            ),
            "mirror.example.org: ",
        ),
    ],
)
def test_a_folder_or_mirror_of_wheels_that_cannot_be_read_is_named(
    started: BareRoot, command: str, cause: str
) -> None:
    assert cause in refused(shell(started, f"{command} --plan"), 5)


def test_without_a_network_the_first_start_names_one_cause(bare: BareRoot) -> None:
    succeed(shell(bare, "git clone -q . ~/offline"))
    done = shell(bare, "cd ~/offline && python3 build-locally.py linux_64_cpu --rehearse", network=False)
    text = refused(done, 5)
    assert "name resolution" in text or "Name or service not known" in text
    assert "check the network" in text


def test_without_a_network_installed_tools_read_an_environment(installed: BareRoot, small: Path) -> None:
    assert small.is_dir()
    for words in ("--help", "slim --help", "slim ~/small", "sizes ~/small"):
        succeed(shell(installed, f"~/v/bin/megabuild {words}", network=False))
    verified = shell(installed, "~/v/bin/megabuild verify ~/small", network=False)
    assert "nothing to verify" in verified.stdout
    text = refused(shell(installed, "~/v/bin/megabuild sizes six", network=False), 5)
    assert re.search(r"name resolution|Name or service not known|dns error|unreachable", text), text


@pytest.mark.parametrize("filled", [False, True])
def test_a_cache_without_locks_is_named_with_the_remedy(
    started: BareRoot, odd_file_system: str, filled: bool
) -> None:
    cache = f"{HOME}/cache-{filled}"
    rehearsal = documented("python3 build-locally.py linux_64_cpu --rehearse")
    if filled:
        succeed(shell(started, f"{rehearsal} --plan", environment={"MEGABUILD_CACHE": cache}))
    variables = {"MEGABUILD_CACHE": cache, "NO_LOCKS_BELOW": cache, "LD_PRELOAD": odd_file_system}
    text = refused(shell(started, f"{rehearsal} -o ~/output-{filled}", environment=variables), 4)
    assert f"error: {cache}/" in text
    assert "its file system has no locks" in text
    assert "use a folder whose file system has locks: " in text
    assert "MEGABUILD_CACHE" in text


def test_a_cache_without_symbolic_links_is_named_with_the_remedy(
    started: BareRoot, odd_file_system: str
) -> None:
    cache = f"{HOME}/cache-links"
    rehearsal = documented("python3 build-locally.py linux_64_cpu --rehearse")
    variables = {"MEGABUILD_CACHE": cache, "NO_LINKS_BELOW": cache, "LD_PRELOAD": odd_file_system}
    text = refused(shell(started, f"{rehearsal} -o ~/output-links", environment=variables), 4)
    assert f"error: {cache}/" in text
    assert "Operation not permitted" in text
    assert "use another disk" in text
    assert "MEGABUILD_CACHE" in text
