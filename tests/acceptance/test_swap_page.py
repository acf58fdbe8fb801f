"""docs/swap.md from top to bottom: the Python swap by hand, on the miniature, with two real Pythons."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pages import REPOSITORY, documented
from product import Place

#: What the miniature's setup.py and its CMake files need in each environment.
_NEEDED = (
    "numpy",
    "pybind11",
    "pyyaml",
    "setuptools<80",
    "typing_extensions",
    "wheel",
)


def _python(minor: int) -> Path:
    candidates = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
    found = shutil.which(f"/usr/bin/python3.{minor}")
    if found:
        candidates.append(Path(found))
    if not candidates:
        pytest.skip(f"no Python 3.{minor} here")
    return candidates[-1]


@pytest.mark.long  # two environments and a compile: two minutes
def test_the_page_swaps_11_for_12_and_refuses_a_changed_header(own_checkout: Place) -> None:
    folder = own_checkout.folder
    needed = " ".join(shlex.quote(one) for one in _NEEDED)
    tools = folder / "tools"
    own_checkout.run(
        f"python3 -m venv {tools} && {tools}/bin/pip install -q 'cmake>=3.27,<4' 'ninja>=1.13'"
    ).succeeded()
    for minor in (11, 12):
        environment = folder / f"env-3.{minor}"
        subprocess.run([str(_python(minor)), "-m", "venv", str(environment)], check=True)
        own_checkout.run(f"{environment}/bin/python -m pip install -q {needed}").succeeded()
    own_checkout.run(documented("cp -r rehearsal/model pytorch && mv env-3.11 env && cd pytorch")).succeeded()
    inside = replace(own_checkout, folder=folder / "pytorch")
    setting = f'export PATH="{tools}/bin:$PATH" && ' + documented(
        "export CMAKE_GENERATOR=Ninja CMAKE_PREFIX_PATH=$PWD/../env PYTHONPATH=$PWD/../recipe/swap"
    )
    inside.run(f"{setting} && {documented('../env/bin/python setup.py build')}").succeeded()
    inside.run(documented("mv ../env ../env-3.11 && mv ../env-3.12 ../env")).succeeded()
    swap = documented("../env/bin/python -m cmake_python_swap apply build --python ../env/bin/python")
    assert "from=3.11 to=3.12" in inside.run(f"{setting} && {swap}").succeeded()
    inside.run(f"{setting} && ../env/bin/python setup.py build").succeeded()
    refused = documented(
        "touch c10/core/Device.h && ../env/bin/python -m cmake_python_swap verify build; echo $?"
    )
    answer = inside.run(f"{setting} && {refused}")
    page = (REPOSITORY / "docs" / "swap.md").read_text(encoding="utf-8")
    shown = next(line for line in page.splitlines() if line.startswith("cmake_python_swap: refused"))
    assert shown in answer.text
    assert answer.output.splitlines()[-1] == "9"
