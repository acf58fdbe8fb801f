"""The USE_* switches that the recipe's build sets, per config, with their lines: the script is run by bash."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from groundwork.errors import AuditError
from groundwork.process import run
from megabuild.configs.config import Config

SCRIPT = "build_env.sh"
_SECONDS = 20.0
# set here, since root's bash takes no PS4 from its environment
_TRACE = "PS4='+$LINENO '; set -x; source \"$0\""
_TRACED = re.compile(r"\++(?P<line>\d+) export (?P<words>.*)")
_ASSIGNED = re.compile(r"([A-Z_][A-Z0-9_]*)=(\S*)")


def switches(script: Path, config: Config, wanted: Collection[str]) -> Mapping[str, tuple[str, int]]:
    """Run the script of flags as a build of this config would; return each switch's value and the line that sets it.

    It sets variables and links the prefix by a name beside it; it runs with an environment of its own, in an empty
    folder. Raises AuditError where there is no bash, or the script fails for this config.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise AuditError("bash is not installed: the build's switches cannot be read", "install bash")
    single = {key: values[0] for key, values in config.variant.items() if len(values) == 1 and key.islower()}
    with tempfile.TemporaryDirectory(prefix="megabuild-switches-") as folder:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "SRC_DIR": folder,
            "PREFIX": f"{folder}/prefix",
            "RECIPE_DIR": str(script.parent),
            "CPU_COUNT": "1",
            "target_platform": config.platform,
            "build_platform": config.platform,
            **single,
            "torch_optimization": "2",
        }
        argv = [bash, "--noprofile", "--norc", "-euc", _TRACE, str(script)]
        done = run(argv, timeout=_SECONDS, environ=environment, folder=Path(folder))
    lines = done.stderr.splitlines()
    if done.returncode != 0:
        reason = next((line for line in reversed(lines) if line[:1] != "+"), "")
        raise AuditError(f"{script} fails for {config.name}: {reason}", "correct the script")
    return {
        name: (value.strip("'\""), int(traced["line"]))
        for traced in map(_TRACED.fullmatch, lines)
        if traced
        for name, value in _ASSIGNED.findall(traced["words"])
        if name in wanted
    }
