"""Options that no run could be carried out with are refused while planning."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import PreflightError
from megabuild.configs.config import load
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan


@pytest.mark.parametrize("name", ["my builds", "50%", "builds-für-mich", "x" * 160])
def test_a_path_that_compilers_cannot_handle_is_refused_by_the_plan(
    name: str, repository: Path, tmp_path: Path
) -> None:
    options = Options(
        config=load(repository, "linux_64_cpu"),
        root=repository,
        output=tmp_path / name,
        cache=tmp_path / "cache",
        rehearse=True,
    )
    with pytest.raises(PreflightError, match=f"{name}/"):
        make_plan(options, lambda _: None, only_plan=True)
    assert not list(tmp_path.iterdir())
