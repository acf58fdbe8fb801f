"""Wheels of real packages, installed by pip, uv and poetry from their index on a system that has nothing of the build.

Needs what `megabuild wheels CONFIG` has made in an output folder named by MEGABUILD_TEST_PACKAGES, and bubblewrap.
MEGABUILD_TEST_ROOT names the root of another system, with Python and venv (mmdebstrap --variant=minbase
--include=python3-venv trixie FOLDER); without it this machine's own is entered. pip, uv and poetry come from pip's
index there. MEGABUILD_TEST_UPSTREAM names a folder with upstream's test suites, ``pytorch_scatter/`` and so on;
MEGABUILD_TEST_TORCH an official wheel of PyTorch below /opt, where extensions are for one that no index there has;
MEGABUILD_TEST_INDEX the address of an index for poetry, which does not read pip's settings.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conda_wheels import simple_index
from conda_wheels.simple_index import IndexedWheel
from pyg_extensions.table import EXTENSIONS

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
SYSTEM = Path(os.environ.get("MEGABUILD_TEST_ROOT") or "/")
TORCH = os.environ.get("MEGABUILD_TEST_TORCH", "")
_INDEX = os.environ.get("MEGABUILD_TEST_INDEX", "")
MIRROR = f"$p source add -q --priority primary mirror {_INDEX};" if _INDEX else ""
UPSTREAM = Path(os.environ.get("MEGABUILD_TEST_UPSTREAM") or ROOT / "no-suites")
_KEPT = ("PIP_", "UV_", "SSL_", "REQUESTS_", "http", "HTTP")
WORKS = """
import torch
a = torch.eye(3, dtype=torch.float64) * 2 + 1
x = torch.linalg.solve(a, torch.ones(3, dtype=torch.float64))
assert torch.allclose(a @ x, torch.ones(3, dtype=torch.float64)), x
w = torch.ones(3, requires_grad=True)
(w * w).sum().backward()
assert w.grad.tolist() == [2.0] * 3
print(torch.__version__, torch.__file__)
"""
PREPARED = {
    "pip": "python -m venv env; add='env/bin/pip install -q --extra-index-url {place}'",
    "uv": "python -m venv env; add='tools/bin/uv pip install -q --python env/bin/python --index {place}'",
    "poetry": (
        "python3 -m http.server 8123 --bind 127.0.0.1 --directory {folder} 2>log & sleep 2; "
        "p=$PWD/tools/bin/poetry; mkdir project; ln -s project/.venv env; cd project; "
        "$p init -qn --name p --python '>=3.11,<3.13'; $p config --local virtualenvs.in-project true; "
        "$p env use -q $(command -v python); {mirror} "
        "$p source add -q --priority explicit ours http://127.0.0.1:8123/; "
        "add=\"$p add -q\"; ours='--source ours'"
    ),
}


def built() -> list[str]:
    """Configs with wheels."""
    return sorted(path.parent.name for path in (OUTPUT / "wheels").glob(f"*/{simple_index.SIMPLE}"))


pytestmark = [pytest.mark.long, pytest.mark.skipif(not built(), reason="megabuild wheels has made none")]


def inside(work: Path, script: str, python: str) -> subprocess.CompletedProcess[str]:
    """Run a script in that system; of this machine it sees the wheels, pip's settings and a Python of pyenv's."""
    versions = Path.home() / ".pyenv" / "versions"
    pyenv = next(iter(sorted(versions.glob(f"{python}.*"))), None)
    own = Path("/usr/bin") / f"python{python}"
    chosen = own if (SYSTEM / own.relative_to("/")).exists() else pyenv and pyenv / "bin" / f"python{python}"
    if chosen is None:
        pytest.skip(f"there is no Python {python}")
    work.mkdir(parents=True, exist_ok=True)
    (work / "bin").mkdir(exist_ok=True)
    (work / "bin" / "python").unlink(missing_ok=True)
    (work / "bin" / "python").symlink_to(chosen)
    mounts = ["--bind", str(work), "/tmp/try", "--ro-bind", str(OUTPUT / "wheels"), "/tmp/wheels"]
    mounts += ["--ro-bind-try", str(UPSTREAM), "/tmp/suites"]
    mounts += ["--ro-bind-try", "/etc/pip.conf", "/tmp/pip.conf"]
    for place in ("/etc/ssl", "/etc/resolv.conf", "/opt", pyenv):
        mounts += ["--ro-bind-try", str(place), str(place)] if place else []
    words = ["bwrap", "--ro-bind", str(SYSTEM), "/", "--tmpfs", "/tmp", "--tmpfs", "/root", "--dev", "/dev"]
    words += ["--proc", "/proc", *mounts, "--unshare-pid", "--die-with-parent", "--chdir", "/tmp/try"]
    environ = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    environ |= {"HOME": "/tmp/try", "PATH": "/tmp/try/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    environ |= {"PIP_CONFIG_FILE": "/tmp/pip.conf"} if Path("/etc/pip.conf").exists() else {}
    done = subprocess.run([*words, "bash", "-c", script], env=environ, capture_output=True, text=True)
    print(done.stdout[-3000:], done.stderr[-3000:])
    return done


def latest(config: str) -> list[IndexedWheel]:
    """The wheels of a config for one Python, PyTorch first."""
    wheels = simple_index.read(OUTPUT / "wheels" / config)
    python = next(one.python for one in wheels if one.python)
    return sorted(
        (one for one in wheels if one.python in (None, python)), key=lambda one: one.project != "torch"
    )


@pytest.mark.parametrize("installer", PREPARED)
@pytest.mark.parametrize("config", built())
def test_installed_on_a_bare_system(config: str, installer: str, tmp_path: Path) -> None:
    wheels = latest(config)
    python = str(wheels[0].python)
    exact = " ".join(f"{one.project}=={one.version}" for one in wheels)
    if installer != "pip":
        assert (
            inside(
                tmp_path, f"python3 -m venv tools && tools/bin/pip install -q {installer}", python
            ).returncode
            == 0
        )
    folder = f"/tmp/wheels/{config}/{simple_index.SIMPLE}"
    script = "set -e; " + PREPARED[installer].format(place=f"file://{folder}", folder=folder, mirror=MIRROR)
    if wheels[0].project != "torch" and TORCH:
        script += f"; $add {TORCH}"
    script += f"; $add $ours {exact}"
    done = inside(tmp_path, script, python)
    assert done.returncode == 0, done.stderr[-3000:]
    assert inside(tmp_path, f"env/bin/python -c '{WORKS}'", python).returncode == 0
    for extension in EXTENSIONS:
        if extension.name not in {one.project for one in wheels}:
            continue
        imports = f"env/bin/python -c 'import torch, {extension.name}'"
        assert inside(tmp_path, imports, python).returncode == 0
        if installer == "pip" and (UPSTREAM / extension.conda).is_dir():
            tests = "env/bin/pip install -q pytest && env/bin/python -m pytest -q -p no:cacheprovider "
            tests += f"/tmp/suites/{extension.conda}"
            assert inside(tmp_path, tests, python).returncode == 0
