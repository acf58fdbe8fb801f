"""How often plain rattler-build compiles what outputs share: once, say recipe/README.md and docs/conda-smithy.md."""

from __future__ import annotations

from pathlib import Path

import plain_engine
from tiny import make_channel

RECIPE = """\
schema_version: 1
recipe: {name: toy, version: "1.0"}
build: {number: 0}
outputs:
  - staging:
      name: toy-build
    build:
      script: echo staged >> "$COUNTER" && mkdir -p $PREFIX/lib && touch $PREFIX/lib/toy
  - package: {name: libtoy}
    inherit: toy-build
    build: {files: [lib/toy], script: test -f $PREFIX/lib/toy}
  - package: {name: pytoy}
    inherit: toy-build
    build:
      string: py${{ python | version_to_buildstring }}_h${{ hash }}
      script: echo ${{ python }} >$PREFIX/lib/pytoy
      files: [lib/pytoy]
about: {license: MIT}
"""


def test_staging_runs_once_for_all_outputs_and_pythons(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("$COUNTER", str(counter)))
    variants = tmp_path / "linux_64_toy.yaml"
    variants.write_text("python: [3.11.* *_cpython, 3.12.* *_cpython, 3.13.* *_cp313]\n")
    plain_engine.build(
        {
            "recipes": [str(tmp_path / "recipe.yaml")],
            "variant_config": [str(variants)],
            "channel": [make_channel(tmp_path / "channel").as_uri()],
            "target_platform": "linux-64",
            "output_dir": str(tmp_path / "out"),
        }
    )
    made = sorted(path.name.split("-1.0-")[0] for path in (tmp_path / "out" / "linux-64").glob("*.conda"))
    assert made == ["libtoy", *["pytoy"] * 3]
    assert counter.read_text().split() == ["staged"]
