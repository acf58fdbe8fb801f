"""The extensions' packages as a user meets them: installed together by a solver into a fresh environment, and used.

Needs what `python3 build-locally.py <config>` publishes for a wheel config, so no test makes it; another output folder
than this repository's is named by MEGABUILD_TEST_PACKAGES. MEGABUILD_TEST_UPSTREAM names a folder with upstream's test
suites (``pytorch_scatter/``, ``pyg-lib/``, ... : the ``test`` folder of each repository at the version that was built):
those that are there run as well.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from groundwork.user_folders import cache_folder
from megabuild.configs import config as configs
from megabuild.environments import create, solve

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
UPSTREAM = Path(os.environ.get("MEGABUILD_TEST_UPSTREAM") or ROOT / "no-suites")
#: Package, and the module in it.
MODULES = {
    "pytorch_scatter": "torch_scatter",
    "pytorch_sparse": "torch_sparse",
    "pytorch_cluster": "torch_cluster",
    "pytorch_spline_conv": "torch_spline_conv",
    "pyg-lib": "pyg_lib",
}
#: What fails in upstream's own suites, whoever compiled: scipy, which torch_cluster calls on the CPU, takes no float16.
FAILING_UPSTREAM = {"pytorch_cluster": ("test_nearest.py::test_nearest[dtype0-device0]",)}


def built() -> list[tuple[str, str]]:
    """Configs of wheels and Pythons with at least one extension."""
    return [
        (folder.name, python)
        for folder in sorted((OUTPUT / "packages").glob("linux_64_*_wheel"))
        for python in configs.load(ROOT, folder.name).pythons
        if any(folder.glob(f"linux-64/pytorch_*_py{python.replace('.', '')}_*.conda"))
    ]


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not built(), reason="no wheel config with extensions has been built"),
]


class Fresh:
    """An environment in which everything there is for one Python was installed at once."""

    def __init__(self, config: str, python: str, prefix: Path) -> None:
        self.config, self.prefix = configs.load(ROOT, config), prefix
        channel = OUTPUT / "packages" / config
        self.extensions = [name for name in MODULES if list(channel.glob(f"linux-64/{name}-[0-9]*.conda"))]
        meta = "pytorch-gpu" if self.config.cuda_version else "pytorch-cpu"
        virtual = {"__cuda": self.config.cuda_version} if self.config.cuda_version else {}
        specs = [meta, f"python {python}.*", "pip", *self.extensions]
        solution = solve(channel, specs, virtual=virtual)
        create(prefix, solution, cache=cache_folder(os.environ), report=lambda _: None)
        self.files = [record.file_name for record in solution.records]

    def run(self, *command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run something in the activated environment."""
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http"))
        }
        variables = {**kept, "PATH": "/usr/bin:/bin", "HOME": str(self.prefix)}
        activated = ["bash", "-c", '. "$0"/activate; exec "$@"', str(self.prefix), *command]
        return subprocess.run(activated, env=variables, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module", params=built(), ids="-".join)
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """A fresh environment for a config and a Python."""
    config, python = request.param
    return Fresh(config, python, tmp_path_factory.mktemp("fresh") / "environment")


def test_every_package_is_the_one_of_this_config(fresh: Fresh) -> None:
    flavour = f"{fresh.config.accelerator}_wheel_"
    ours = [name for name in fresh.files if name.startswith(("libtorch-", "pytorch", "pyg-lib"))]
    assert len(ours) == 3 + len(fresh.extensions), ours
    assert all(flavour in name for name in ours), ours


def test_all_are_loaded_into_one_process_and_name_their_cuda(fresh: Fresh) -> None:
    modules = [MODULES[name] for name in fresh.extensions]
    program = f"""
import importlib, json, torch
for name in {modules!r}:
    importlib.import_module(name)
versions = {{name: getattr(torch.ops, name).cuda_version() for name in {modules!r} if name != "pyg_lib"}}
if "pyg_lib" in {modules!r}:
    import pyg_lib
    versions["pyg_lib"] = pyg_lib.cuda_version()
print(json.dumps([torch.version.cuda, versions]))
"""
    done = fresh.run("python", "-c", program)
    assert done.returncode == 0, done.stderr[-3000:]
    torch_cuda, versions = json.loads(done.stdout.splitlines()[-1])
    assert torch_cuda == fresh.config.cuda_version
    major, _, minor = (fresh.config.cuda_version or "").partition(".")
    number = int(major) * 1000 + int(minor) * 10 if major else -1
    assert versions == dict.fromkeys(modules, number)


@pytest.mark.parametrize("extension", MODULES)
def test_upstream_s_own_tests_pass(fresh: Fresh, extension: str) -> None:
    suite = UPSTREAM / extension
    if extension not in fresh.extensions or not suite.is_dir():
        pytest.skip("has not been built, or MEGABUILD_TEST_UPSTREAM has no suite of it")
    installed = fresh.run("python", "-m", "pip", "install", "--quiet", "pytest")
    if installed.returncode:
        pytest.skip(f"pip has no pytest: {installed.stderr[-300:]}")
    left_out = [f"--deselect={test}" for test in FAILING_UPSTREAM.get(extension, ())]
    done = fresh.run(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *left_out, str(suite), cwd=suite
    )
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
