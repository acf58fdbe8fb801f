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

    def spec(given: Any) -> str:
        name = given if isinstance(given, str) else str(next(iter(given.values()))["name"])
        return name if isinstance(given, str) else pins.get(name, name)

    requirements = part.get("requirements", {})
    sources = [
        {**source, "path": str((folder / source["path"]).resolve())} if "path" in source else source
        for source in part.get("source", [])
    ]
    return {
        "package": {"name": output, "version": recipe["package"]["version"]},
        "build": {"number": recipe["build"].get("number", 0), "script": part["build"].get("script", [])},
        "requirements": {kind: [*map(spec, requirements.get(kind, []))] for kind in ("build", "host")},
        **({"source": sources} if sources else {}),
    }


def main(arguments: list[str]) -> int:
    """Run the command line: ``JOB.json OUTCOME.json OUTPUT FOLDER``."""
    job_file, outcome, output, folder = arguments

    def end(message: str = "", **more: Any) -> int:
        kind = "other" if message else ""
        document = {"ok": not message, "kind": kind, "message": message, "passed": [], **more}
        Path(outcome).write_text(json.dumps(document))
        return 1 if message else 0

    job = json.loads(Path(job_file).read_text())
    os.environ.update(job["env"])
    from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig
    from rattler_build.debug import DebugSession

    original, target = Path(job["recipe"]), Path(folder)
    platform = RenderConfig(
        PlatformConfig(target_platform=job["target_platform"], build_platform=job["build_platform"])
    )
    rendered = Stage0Recipe.from_file(original).render(
        VariantConfig.from_files(job["variant_config"]), platform
    )
    recipes = []
    for variant in rendered:
        pins = {n: f"{n} =={pin.version} {pin.build_string}" for n, pin in variant.pin_subpackages.items()}
        if alone := standing_alone(variant.recipe.to_dict(), output, pins, original.parent):
            recipes.append((variant, alone))
    if not recipes:
        names = sorted({variant.recipe.package.name for variant in rendered})
        names += sorted({cache.name for variant in rendered for cache in variant.recipe.staging_caches})
        return end(f"no output is named '{output}'", outputs=names)
    chosen, alone = recipes[-1]
    shutil.rmtree(target, ignore_errors=True)
    # with what recipes share, where this one lies below another
    above = original.parent.parent
    top = above if (above / "recipe.yaml").exists() else original.parent
    shutil.copytree(top, target / "recipe")
    copied = target / "recipe" / original.relative_to(top)
    copied.write_text(json.dumps(alone, indent=1))  # JSON is YAML
    concrete = {key: [value] for key, value in chosen.variant.items()}
    (variant,) = Stage0Recipe.from_file(copied).render(VariantConfig(concrete), platform)
    own = Path(job["output_dir"])
    channels = [own.as_uri()] if (own / "noarch" / "repodata.json").exists() else []
    try:
        channels += job["channels"]
        session = DebugSession.create(variant, channels=channels, output_dir=target / "out")
    except RattlerBuildError as error:
        return end(str(error) or type(error).__name__)
    return end(paths={name: str(path) for name, path in vars(session.paths).items()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
