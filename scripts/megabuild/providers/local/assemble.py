"""Have the engine put one package together. Standard library and rattler_build only.

``python3 assemble.py RECIPE.json OUTPUT PLATFORM``

A process of its own: the engine holds the interpreter's lock while it compresses, a minute for a large package, so that
the caller would get no signals and could not make a second package meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Weak compression: these packages never leave the machine, and the default takes four times as long.
ARCHIVE = "conda:1"


def assemble(recipe: Path, output: Path, platform: str) -> None:
    """Build the recipe; the package's files are beside it."""
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
