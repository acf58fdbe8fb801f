"""Real PyTorch's packages as a user meets them: solved from the channel, installed into a fresh environment, used.

Needs what `python build-locally.py linux_64_cpu_debian --optimization 0` publishes (hours of compiling, so no test
makes it); MEGABUILD_TEST_PACKAGES names another output folder. Every Python that was built is tried, in the Debian root
whose glibc and libraries the packages were made for.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import platformdirs
import pytest
from rattler import Channel, VirtualPackage, VirtualPackageOverrides, install, solve
from rattler.virtual_package.virtual_package import Override

from megabuild.configs import config as configs
from megabuild.configs.render import render
from megabuild.errors import MegabuildError
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.mount import Mount
from megabuild.providers.environment import Environment
from megabuild.providers.select import provide

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "linux_64_cpu_debian"
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
PACKAGES = OUTPUT / "packages" / CONFIG
BUILT = sorted(
    {path.name.split("_py")[1].split("_")[0] for path in PACKAGES.glob("linux-64/pytorch-2*_py*.conda")}, key=int
)
pytestmark = [
    pytest.mark.debian,
    pytest.mark.slow,
    pytest.mark.skipif(not BUILT, reason=f"{CONFIG} has not been built"),
]


@pytest.fixture(scope="module")
def environment() -> Environment:
    """The provider's channel and root, as the build had them."""
    config = configs.load(ROOT, CONFIG)
    planned = render(config, ROOT / "recipe" / "recipe.yaml")
    cache = Path(os.environ.get("MEGABUILD_CACHE") or platformdirs.user_cache_path("megabuild"))
    try:
        return provide(config, planned, rehearsal=False, cache=cache, report=lambda _: None, ask=lambda _: False)
    except MegabuildError as error:
        pytest.skip(error.message)


def make(prefix: Path, channels: list[Path], specs: list[str], glibc: str) -> list[str]:
    """Solve and install; returns the file names of the packages."""
    overrides = VirtualPackageOverrides()
    overrides.libc = Override.string(glibc)

    async def both() -> list[str]:
        records = await solve(
            [Channel(channel.absolute().as_uri()) for channel in channels],
            specs,
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(overrides),
        )
        await install(records, target_prefix=str(prefix))
        return [record.file_name for record in records]

    return asyncio.run(both())


@pytest.mark.parametrize("tag", BUILT)
def test_a_user_solves_installs_and_computes(tag: str, environment: Environment, tmp_path: Path) -> None:
    python = f"{tag[0]}.{tag[1:]}"
    prefix = tmp_path / "environment"
    channels = [PACKAGES, *(Path(channel) for channel in environment.channels)]
    specs = ["pytorch-cpu", f"python {python}.*", "gxx_linux-64", "ninja"]
    names = make(prefix, channels, specs, environment.virtual_packages["__glibc"])
    assert sum(f"_py{tag}_" in name for name in names if name.startswith("pytorch-")) == 1, names
    assert environment.root is not None
    inside = str(prefix)  # paths in the environment name the place it was installed to
    activated = f'for script in {inside}/etc/conda/activate.d/*.sh; do . "$script"; done; exec python user_of_torch.py'
    variables = {"PATH": f"{inside}/bin:/usr/bin:/bin", "CONDA_PREFIX": inside, "HOME": "/tmp", "MAX_JOBS": "2"}
    engine = Bubblewrap(root=environment.root, network=False)
    command = engine.command(
        ["bash", "-c", activated],
        mounts=[
            Mount(source=prefix, target=inside),
            Mount(source=ROOT / "tests" / "checks", target="/opt/megabuild/checks"),
        ],
        env=variables,
        cwd="/opt/megabuild/checks",
        name=f"user-{tag}",
    )
    done = subprocess.run(command, env=engine.environment(variables), capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("ok ") == 4, done.stdout
    assert f"Python {python}." in done.stdout
