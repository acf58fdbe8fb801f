"""Build one package with rattler-build. Imports the standard library and rattler_build only.

``python3 assemble.py RECIPE.json OUTPUT PLATFORM``

Runs as a separate process: the engine holds the GIL while it compresses, a minute for a large package. In the caller's
process that would block signals and the build of a second package.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Compression level 1: these packages never leave the machine, and the default level takes four times as long.
ARCHIVE = "conda:1"


def assemble(recipe: Path, output: Path, platform: str) -> None:
    """Build `recipe` into the folder `output`, without running tests."""
    from rattler_build import PlatformConfig, Stage0Recipe, ToolConfiguration, VariantConfig
    from rattler_build.render import RenderConfig

    stage0 = Stage0Recipe.from_yaml(recipe.read_text(), recipe_dir=recipe.parent)
    machines = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    (variant,) = stage0.render(VariantConfig(), RenderConfig(machines))
    variant.run_build(
        ToolConfiguration(test_strategy="skip", keep_build=True),
        output,
        channels=[],
        package_format=ARCHIVE,
        no_include_recipe=True,
    )


if __name__ == "__main__":
    try:
        assemble(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except Exception as error:  # the engine raises bare exceptions of several kinds
        sys.exit(f"{type(error).__name__}: {error}")
