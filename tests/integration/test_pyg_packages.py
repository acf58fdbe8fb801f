"""The extensions' packages as a user meets them: installed together by a solver into a fresh environment, and used.

Needs what `python3 build-locally.py <config>` publishes for a wheel config, so no test makes it; another output folder
than this repository's is named by MEGABUILD_TEST_PACKAGES. MEGABUILD_TEST_UPSTREAM names a folder with upstream's test
suites (``pytorch_scatter/``, ``pyg-lib/``, ... : the ``test`` folder of each repository at the version that was built):
those that are there run as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import platformdirs
import pytest
from rattler import Channel, ChannelPriority, VirtualPackage, VirtualPackageOverrides, install, solve
from rattler.virtual_package.virtual_package import Override

from megabuild.configs import config as configs

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
UPSTREAM = Path(os.environ.get("MEGABUILD_TEST_UPSTREAM") or ROOT / "no-suites")
CACHE = Path(os.environ.get("MEGABUILD_CACHE") or platformdirs.user_cache_path("megabuild"))
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
ACTIVATED = """
shopt -s nullglob
for script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$script"; done
exec "$@"
"""


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
        self.config = configs.load(ROOT, config)
        self.prefix = prefix
        channel = OUTPUT / "packages" / config
        there = [name for name in MODULES if list(channel.glob(f"linux-64/{name}-[0-9]*.conda"))]
        meta = "pytorch-gpu" if self.config.cuda_version else "pytorch-cpu"
        channels = [channel, *sorted((CACHE / "channel" / "channels").glob("*"))]
        overrides = VirtualPackageOverrides()
        if self.config.cuda_version:
            overrides.cuda = Override.string(self.config.cuda_version)

        async def both() -> list[str]:
            records = await solve(
                [Channel(path.absolute().as_uri()) for path in channels],
                [meta, f"python {python}.*", "pip", *there],
                platforms=["linux-64", "noarch"],
                virtual_packages=VirtualPackage.detect(overrides),
                # the cache has a channel for every set of packages that was asked for, none of them with all
                channel_priority=ChannelPriority.Disabled,
            )
            await install(records, target_prefix=str(prefix))
            return [record.file_name for record in records]

        self.files = asyncio.run(both())
        self.extensions = there

    def run(self, *command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run something in the activated environment."""
        variables = {
            "PATH": f"{self.prefix}/bin:/usr/bin:/bin",
            "CONDA_PREFIX": str(self.prefix),
            "HOME": str(self.prefix),
        }
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http"))
        }
        return subprocess.run(
            ["bash", "-c", ACTIVATED, "activated", *command],
            env={**kept, **variables}, cwd=cwd, capture_output=True, text=True,
        )  # fmt: skip


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
