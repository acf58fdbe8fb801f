"""rattler-build without the driver: the function behind its command line, over the config files as they stand.

With what it reads beside the recipe by itself, as in everybody's hands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.configs.config import Config

_BUILD = """\
import json, sys
from rattler_build.cli_api import build_recipes
build_recipes(**json.loads(sys.argv[1]))
"""


def attempt(arguments: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Call the engine."""
    command = [sys.executable, "-W", "ignore", "-c", _BUILD, json.dumps(arguments)]
    environ = {**os.environ, "CONDA_OVERRIDE_CUDA": "13.0"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1800)


def build(arguments: Mapping[str, object]) -> str:
    """Call the engine; return what it printed: what it rendered, a JSON document for each recipe."""
    ended = attempt(arguments)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def names(config: Config, recipes: Sequence[Path], output: Path, *channels: str) -> list[str]:
    """Return the files that ``rattler-build build -m CONFIG`` would make, in its order."""
    arguments = {
        "recipes": [str(recipe) for recipe in recipes],
        "target_platform": config.platform,
        "build_platform": config.build_platform,
        "variant_config": [str(config.path)],
        "output_dir": str(output),
        "channel": list(channels) or None,
        "render_only": True,
    }
    text, found = build(arguments), list[str]()
    while "[\n" in text:
        outputs, end = json.JSONDecoder().raw_decode(text[text.index("[\n") :])
        text = text[text.index("[\n") + end :]
        for output_ in outputs:
            package = output_["recipe"]["package"]
            found.append(
                f"{package['name']}-{package['version']}-{output_['recipe']['build']['string']}.conda"
            )
    return found
