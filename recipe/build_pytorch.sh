#!/usr/bin/env bash
# pytorch: re-point the staged tree at this output's Python, compile the Python side, install, share libtorch's files.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
cd "$TORCH_TREE"

# Left from the Python before this one: setup.py would pack it.
rm -rf build/lib.* build/bdist.* build/temp.* dist torch.egg-info torch/_C.*.so functorch/_C.*.so functorch/_C*.so

phase swap
# From here on the tree is no longer as staging configured it: should staging have to run again, it configures anew.
rm -f build/configured-with.txt
"$PYTHON" "$RECIPE_DIR/python_swap.py" build --python "$PYTHON"

phase python "version=$PY_VER"
"$PYTHON" -m pip install . --no-deps --no-build-isolation --no-cache-dir --disable-pip-version-check -v

phase package
"$PYTHON" "$RECIPE_DIR/share_libtorch.py" "$SP_DIR/torch" "$PREFIX"
rm -rf build/lib.* build/bdist.* build/temp.* dist torch.egg-info
