"""A feedstock of somebody else's, as far as it matters here: a stand-in whose library is compiled in no time.

One C library is compiled in a staging output, and two packages are made of it; the second takes its time, so that a
run can be killed there.
"""

from __future__ import annotations

from pathlib import Path

CONFIG = "linux_64_"
#: As conda-smithy renders it.
CONFIG_TEXT = """\
c_compiler:
- gcc
c_compiler_version:
- '14'
c_stdlib:
- sysroot
c_stdlib_version:
- '2.17'
channel_sources:
- conda-forge
channel_targets:
- conda-forge main
docker_image:
- quay.io/condaforge/linux-anvil-x86_64:alma9
pin_run_as_build:
  zlib:
    max_pin: x.x
target_platform:
- linux-64
zip_keys:
- - c_compiler_version
  - c_stdlib_version
"""
RECIPE = """\
schema_version: 1
context:
  version: "1.2.3"
recipe:
  name: greet-split
  version: ${{ version }}
source:
  - path: src
outputs:
  - staging:
      name: greet-build
    build:
      script:
        file: build-lib.sh
    requirements:
      build:
        - ${{ stdlib("c") }}
        - ${{ compiler("c") }}
  - package:
      name: libgreet
    inherit: greet-build
    build:
      script: mkdir -p $PREFIX/lib && cp libgreet.so $PREFIX/lib/
    tests:
      - package_contents:
          files: [lib/libgreet.so]
  - package:
      name: greet
    inherit: greet-build
    build:
      script:
        file: install-greet.sh
        env:
          TOKEN: ${{ env.get("BINSTAR_TOKEN", default="no token") }}
    requirements:
      host:
        - ${{ pin_subpackage("libgreet", exact=True) }}
      run:
        - ${{ pin_subpackage("libgreet", exact=True) }}
    tests:
      - script: test "$(greet)" = "hello from greet"
"""
FILES = {
    "conda-forge.yml": "build_platform:\n  linux_aarch64: linux_64\nconda_build_tool: rattler-build\n",
    f".ci_support/{CONFIG}.yaml": CONFIG_TEXT,
    ".ci_support/README": "rendered by conda-smithy\n",
    "recipe/recipe.yaml": RECIPE,
    "recipe/conda_build_config.yaml": "c_stdlib_version:  # [linux]\n  - '2.17'       # [linux]\n",
    "recipe/build-lib.sh": 'set -e\necho "compiling the library"\nsource "${RECIPE_DIR}/flags.sh"\n'
    "$CC -shared -fPIC $FLAGS -o libgreet.so greet.c\n$CC -o greet main.c -L. -lgreet '-Wl,-rpath,$ORIGIN/../lib'\n",
    "recipe/flags.sh": "FLAGS=-O1\n",
    "recipe/install-greet.sh": 'set -e\necho "installing the program, with $TOKEN"\nsleep 3\n'
    "mkdir -p $PREFIX/bin\ncp greet $PREFIX/bin/\n",
    "recipe/src/greet.c": '#include <stdio.h>\nvoid greet(void) { puts("hello from greet"); }\n',
    "recipe/src/main.c": "void greet(void);\nint main(void) { greet(); return 0; }\n",
}


def make(root: Path) -> Path:
    """Write the feedstock."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
