"""Real PyTorch's packages as a user meets them: solved from the channel, installed into a fresh environment, used.

Needs the packages of `python build-locally.py linux_64_cpu_debian` or `linux_64_cuda124_debian`. No test builds them:
that takes hours. MEGABUILD_TEST_PACKAGES names another output folder. The tests try each Python in a bare Debian root,
which lacks the libraries of the root that the packages were compiled in.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from bare_root import make_root

from groundwork.errors import MegabuildError
from groundwork.user_folders import cache_folder
from megabuild.configs import config as configs
from megabuild.configs.render import render
from megabuild.environments import create, solve
from megabuild.isolation.base import Mount
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.select import choose_provider

ROOT = Path(__file__).resolve().parents[2]
CPU, CUDA = "linux_64_cpu_debian", "linux_64_cuda124_debian"
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
CACHE = cache_folder(os.environ)


def built(config: str) -> list[str]:
    """Pythons of a config's published packages: ``["311", "312"]``."""
    packages = (OUTPUT / "packages" / config).glob("linux-64/pytorch-2*_py*.conda")
    return sorted({path.name.split("_py")[1].split("_")[0] for path in packages}, key=int)


BUILT = [(config, tag) for config in (CPU, CUDA) for tag in built(config)]
pytestmark = pytest.mark.skipif(not BUILT, reason=f"neither {CPU} nor {CUDA} has been built")


@functools.cache
def environment(name: str) -> Environment:
    """The provider's channel and root, as the build had them."""
    config = configs.load(ROOT, name)
    planned = render(config, ROOT / "recipe" / "recipe.yaml")
    request = ProviderRequest(config=config, planned=planned, cache=CACHE, report=lambda _: None)
    try:
        return choose_provider(request).provide()
    except MegabuildError as error:
        pytest.skip(error.message)


def make(prefix: Path, config: str, specs: Sequence[str]) -> list[str]:
    """Solve and install; returns the file names of the packages."""
    made = environment(config)
    solution = solve(OUTPUT / "packages" / config, specs, more=made.channels, virtual=made.virtual_packages)
    create(prefix, solution, cache=CACHE, report=lambda _: None)
    return [record.file_name for record in solution.records]


def run(prefix: Path, root: Path | None, check: str, *arguments: str) -> str:
    """Run one of tests/checks in an activated environment inside a root; returns what it printed."""
    assert root is not None
    inside = str(prefix)  # paths in the environment name the place it was installed to
    command = f'. {inside}/activate; exec python {check} "$@"'
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "MAX_JOBS": "2"}
    engine = Bubblewrap(root=root, network=False)
    mounts = [
        Mount(source=prefix, target=inside),
        Mount(source=ROOT / "tests" / "checks", target="/opt/megabuild/checks"),
        Mount(source=ROOT / "recipe" / "cmake_test", target="/opt/megabuild/cmake_test"),
    ]
    words = ["bash", "-c", command, "bash", *arguments]
    words = engine.command(words, mounts=mounts, env=variables, cwd="/opt/megabuild/checks", name="user")
    done = subprocess.run(words, env=engine.environment(variables), capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def dotted(tag: str) -> str:
    return f"{tag[0]}.{tag[1:]}"


@pytest.mark.parametrize(("config", "tag"), BUILT)
def test_a_user_solves_installs_and_computes(config: str, tag: str, tmp_path: Path) -> None:
    prefix = tmp_path / "environment"
    kind = "pytorch-gpu" if config == CUDA else "pytorch-cpu"
    names = make(prefix, config, [kind, f"python {dotted(tag)}.*", "gxx_linux-64", "cmake", "ninja"])
    assert sum(f"_py{tag}_" in name for name in names if name.startswith("pytorch-")) == 1, names
    said = run(prefix, make_root(), "user_of_torch.py")
    assert said.count("ok ") == 6, said
    assert f"Python {dotted(tag)}." in said


@pytest.mark.parametrize("tag", built(CUDA))
def test_the_linalg_flavour_that_is_installed_decides(tag: str, tmp_path: Path) -> None:
    for flavour in ("magma", "nomagma"):
        prefix = tmp_path / flavour
        specs = ["pytorch-gpu", f"python {dotted(tag)}.*", f"libtorch-cuda-linalg * *_{flavour}_*"]
        names = make(prefix, CUDA, specs)
        assert any(name.startswith("libmagma-") for name in names) == (flavour == "magma")
        assert run(prefix, make_root(), "user_of_cuda.py", "12.4", flavour).endswith("ok\n")


@pytest.mark.parametrize("tag", built(CUDA)[:1])
def test_a_user_compiles_kernels(tag: str, tmp_path: Path) -> None:
    prefix = tmp_path / "environment"
    compilers = ["gxx_linux-64", "cuda-nvcc_linux-64", "cuda-cudart-dev", "ninja"]
    make(
        prefix,
        CUDA,
        ["pytorch-gpu", f"python {dotted(tag)}.*", "libtorch-cuda-linalg * *_nomagma_*", *compilers],
    )
    assert run(prefix, environment(CUDA).root, "user_of_cuda.py", "12.4", "nomagma", "compile").endswith(
        "ok\n"
    )
