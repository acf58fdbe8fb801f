"""install-pyg before it compiles: its plan, and its words where PyTorch or headers are missing."""

from __future__ import annotations

import pytest
from pages import documented
from product import BASE_PYTHON, Place


@pytest.mark.parametrize(
    "command",
    [
        documented("scripts/install-pyg --python ~/venv torch_scatter --plan"),
        documented("scripts/install-pyg -p ~/venv torch_scatter torch_sparse"),
        documented(
            "scripts/install-pyg --python venv torch_scatter --arch-list 12.0 --plan",
            {"--python venv": "--python ~/venv"},
        ),
        documented(
            "scripts/install-pyg --python venv torch_scatter --arch-list 12.0",
            {"--python venv": "--python ~/venv"},
        ),
        documented('scripts/install-pyg pyg-lib --pyg source --arch-list "9.0;12.0"') + " -p ~/venv",
        documented('scripts/install-pyg torch_scatter==2.1.2 --pyg source --arch-list "9.0;sm_120"')
        + " -p ~/venv",
    ],
)
def test_an_environment_without_pytorch_is_told_so_before_anything_else(
    pyg_user: Place, command: str
) -> None:
    packages = pyg_user.home / "venv" / "lib"
    before = sorted(packages.glob("*/site-packages/*"))
    text = pyg_user.run(command).ended_with(4)
    assert "PyTorch" in text
    assert "hint: " in text
    assert sorted(packages.glob("*/site-packages/*")) == before


@pytest.mark.parametrize(
    "command",
    [
        documented("scripts/install-pyg"),
        documented("scripts/install-pyg pyg-lib"),
        documented("scripts/install-pyg --plan"),
        documented("scripts/install-pyg --pyg-index ./index --pyg-sources ./sources"),
    ],
)
def test_without_an_active_environment_a_virtual_one_is_advised(checkout: Place, command: str) -> None:
    assert BASE_PYTHON.is_file()
    answer = checkout.run(command)
    text = answer.ended_with(answer.exit_code)
    assert answer.exit_code in (2, 4)
    assert "--force-reinstall" not in text
