#!/usr/bin/env bash
# pytorch: unpack this Python's own wheel, with links in place of the files that libtorch has already.
set -euo pipefail
echo "::megabuild:: phase split"
export PYTHONPATH="$RECIPE_DIR/.."
"$PYTHON" -B "$RECIPE_DIR/split_wheel.py" pytorch "$torch_source_path" "$torch_python_base" "$PREFIX" \
    "$PY_VER" "$SP_DIR" "$PREFIX/bin/python"
patchelf --add-rpath '$ORIGIN/../utils/../../../..' "$PREFIX/lib/libtorch_python.so"  # as in build_staging.sh
