"""Sets up the environment of one output and stops before its script. Standard library and rattler_build only.

``python3 debug_session.py JOB.json OUTCOME.json OUTPUT FOLDER``

The engine's own debug session knows neither staging outputs nor pins between siblings. So the output is written down
once more as a recipe of its own, with everything resolved, in a copy of the recipe folder, and that is what is set up.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

_RECIPE = "recipe.yaml"


def standing_alone(
    recipe: dict[str, Any], output: str, pins: dict[str, str], folder: Path
) -> dict[str, Any] | None:
    """Return a rendered output, or the staging output it inherits from, as a recipe with one output.

    None where neither has the name. ``pins`` are exact specs for siblings, by name; paths of sources are resolved
    against ``folder``, the recipe's.
    """
    part = recipe if recipe["package"]["name"] == output else None
    for staging in recipe.get("staging_caches", []):
        part = staging if staging["name"] == output else part
    if part is None:
        return None
    requirements = {
        kind: [
            spec if isinstance(spec, str) else _pin(spec, pins)
            for spec in part.get("requirements", {}).get(kind, [])
        ]
        for kind in ("build", "host")
    }
    alone: dict[str, Any] = {
        "package": {"name": output, "version": recipe["package"]["version"]},
        "build": {"number": recipe["build"].get("number", 0), "script": part["build"].get("script", [])},
        "requirements": requirements,
    }
    sources = [_absolute(source, folder) for source in part.get("source", [])]
    return {**alone, "source": sources} if sources else alone


def _pin(spec: dict[str, Any], pins: dict[str, str]) -> str:
    name = str(next(iter(spec.values()))["name"])
    return pins.get(name, name)


def _absolute(source: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**source, "path": str((folder / source["path"]).resolve())} if "path" in source else source


def main(arguments: list[str]) -> int:
    """Run the command line: ``JOB.json OUTCOME.json OUTPUT FOLDER``."""
    job_file, outcome, output, folder = arguments

    def end(message: str = "", **found: Any) -> int:
        kind = "other" if message else ""
        document = {"ok": not message, "kind": kind, "message": message, "passed": [], **found}
        Path(outcome).write_text(json.dumps(document))
        return 1 if message else 0

    job = json.loads(Path(job_file).read_text())
    os.environ.update(job["env"])
    from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig
    from rattler_build.debug import DebugSession

    original, place = Path(job["recipe"]), Path(folder)
    platform = RenderConfig(
        PlatformConfig(target_platform=job["target_platform"], build_platform=job["build_platform"])
    )
    variants = VariantConfig.from_files(job["variant_config"])
    rendered = Stage0Recipe.from_file(original).render(variants, platform)
    recipes = [
        (variant, alone)
        for variant in rendered
        if (
            alone := standing_alone(
                variant.recipe.to_dict(),
                output,
                {n: f"{n} =={pin.version} {pin.build_string}" for n, pin in variant.pin_subpackages.items()},
                original.parent,
            )
        )
    ]
    if not recipes:
        names = sorted({variant.recipe.package.name for variant in rendered})
        names += sorted({cache.name for variant in rendered for cache in variant.recipe.staging_caches})
        return end(f"no output is named '{output}'", outputs=names)
    chosen, alone = recipes[-1]
    shutil.rmtree(place, ignore_errors=True)
    # with what recipes share, where this one lies below another
    above = original.parent.parent
    top = above if (above / _RECIPE).exists() else original.parent
    shutil.copytree(top, place / "recipe")
    copied = place / "recipe" / original.relative_to(top)
    # YAML can hold JSON; a recipe is read as YAML.
    copied.write_text(json.dumps(alone, indent=1))
    concrete = {key: [value] for key, value in chosen.variant.items()}
    (variant,) = Stage0Recipe.from_file(copied).render(VariantConfig(concrete), platform)
    own = Path(job["output_dir"])
    channels = [own.as_uri()] if (own / "noarch" / "repodata.json").exists() else []
    try:
        session = DebugSession.create(
            variant, channels=[*channels, *job["channels"]], output_dir=place / "out"
        )
    except RattlerBuildError as error:
        return end(str(error) or type(error).__name__)
    return end(paths={name: str(path) for name, path in vars(session.paths).items()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
