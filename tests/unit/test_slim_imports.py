"""The tools for GPU code load little: nothing of what builds, and no solver, client or terminal for an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from slim_packages import install, venv

HEAVY = {
    "command_line",
    "megabuild",
    "rattler",
    "rattler_build",
    "httpx",
    "rich",
    "click",
    "tenacity",
    "ruamel",
}
USE = """
import json, sys
from pathlib import Path
from gpu_tools.sizes import report as tables
from gpu_tools.sizes.measure import measure
from gpu_tools.slim import commands
from gpu_tools.slim.steps import SlimRequest
from gpu_tools.verify import report as verdicts
from gpu_tools.verify.check import verify
from gpu_tools.verify.gpu import examine
env, note = Path(sys.argv[1]), lambda text: None
sizes = measure(str(env))
tables.report_sizes(sizes, everything=True)
verdicts.verdict_result([verify(env)]), verdicts.gpu_result(examine(env))
commands.plan(env, SlimRequest(), note)
result = commands.apply(env, SlimRequest(), note, checks=(), keep_originals=True)
commands.undo(env)
print(json.dumps([result.document["checked"]["modules"], sorted(sys.modules)]))
"""


def test_an_environment_needs_none_of_what_builds(tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(env, "pk", {"pk/__init__.py": "", "pk/libx.a": b"!<arch>\n" * 9000})
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", USE, env], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, names = json.loads(done.stdout)
    assert imported == 1
    assert HEAVY & {name.partition(".")[0] for name in names} == set()
