#!/usr/bin/env bash
# pytorch: re-point the staged tree at this output's Python, compile the Python side, install it, and link libtorch's files.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
cd "$TORCH_TREE"
source "$RECIPE_DIR/backend.sh"

clean() { rm -rf build/lib.* build/bdist.* build/temp.* dist torch.egg-info build/shared-with-libtorch.txt; }
# Files of the previous Python, which setup.py would pack.
clean
rm -f torch/_*.so functorch/_C*.so

phase swap
# The swap changes the tree's configuration, to which a later staging run returns.
"$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" keep build configured-with.txt
"$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" apply build --python "$PYTHON"

phase python "version=$PY_VER"
compile_python_side

phase package
# libtorch's files (gigabytes with CUDA) are not packed: links to libtorch replace them.
if [[ "$torch_backend" == "setup.py" ]]; then
    # In steps instead of `pip install .`, in which setuptools copies the whole package twice, packs and unpacks it.
    "$PYTHON" "$RECIPE_DIR/share_libtorch.py" take-out build/lib.*/torch "$PREFIX" build/shared-with-libtorch.txt
    "$PYTHON" setup.py bdist_wheel --skip-build
else
    "$PYTHON" "$RECIPE_DIR/share_libtorch.py" list "$installed/torch" "$PREFIX" build/shared-with-libtorch.txt
    "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" wheel . dist --leave-out build/shared-with-libtorch.txt
fi
# By name, not by path: pip would record a path of the build machine in direct_url.json.
# no file of pip may name another target
PIP_CONFIG_FILE=/dev/null "$PYTHON" -m pip install torch --pre --find-links dist --no-deps --no-index --no-cache-dir \
    --disable-pip-version-check -v
"$PYTHON" "$RECIPE_DIR/share_libtorch.py" link "$SP_DIR/torch" "$PREFIX" build/shared-with-libtorch.txt
clean
