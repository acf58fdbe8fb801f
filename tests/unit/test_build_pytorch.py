"""What build_pytorch.sh leaves of the wheel that it installs, and what its task does before."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

from wheel_files import make_wheel


def test_the_record_names_what_is_there_and_nothing_names_the_folder_of_the_wheel(
    repository: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "dist", "torch-2.14.0a0+git1-py3-none-any.whl", {"torch/version.py": b"git = 1"})
    script = (repository / "recipe" / "build_pytorch.sh").read_text()
    install = re.search(r'^"\$PYTHON" -m pip install(?:.*\\\n)*.*', script, re.MULTILINE)
    assert install is not None
    site = tmp_path / "site"
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_TARGET": str(site)}
    subprocess.run(["bash", "-euc", install[0]], cwd=tmp_path, env=environment, check=True)
    (info,) = site.glob("torch-*.dist-info")
    named = {row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())}
    assert "torch/version.py" in named
    assert all((site / name).exists() for name in named)
    assert not (info / "direct_url.json").exists()
