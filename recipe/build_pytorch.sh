#!/usr/bin/env bash
# pytorch: re-point the staged tree at this output's Python, compile the Python side, install, share libtorch's files.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
cd "$TORCH_TREE"
source "$RECIPE_DIR/backend.sh"

clean() { rm -rf build/lib.* build/bdist.* build/temp.* dist torch.egg-info build/shared-with-libtorch.txt; }
# Left from the Python before this one: setup.py would pack it.
clean
rm -f torch/_C.*.so functorch/_C.*.so functorch/_C*.so

phase swap
# From here on the tree is no longer as staging configured it: should staging have to run again, it configures anew.
rm -f build/configured-with.txt
"$script_python" "$RECIPE_DIR/swap/cmake_python_swap" apply build --python "$PYTHON"

phase python "version=$PY_VER"
compile_python_side

phase package
# Without libtorch's files: most of the package, gigabytes with CUDA, is thrown away in the end.
if [[ "$torch_backend" == "setup.py" ]]; then
    # In steps, where `pip install .` would do: setuptools copies the package twice, packs and unpacks it.
    "$script_python" "$RECIPE_DIR/share_libtorch.py" take-out build/lib.*/torch "$PREFIX" build/shared-with-libtorch.txt
    "$PYTHON" setup.py bdist_wheel --skip-build
else
    "$script_python" "$RECIPE_DIR/share_libtorch.py" list "$installed/torch" "$PREFIX" build/shared-with-libtorch.txt
    "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" wheel . dist --leave-out build/shared-with-libtorch.txt
fi
# By name: of a file's path pip would keep a record, direct_url.json, with a folder of the machine that built.
"$PYTHON" -m pip install torch --pre --find-links dist --no-deps --no-index --no-cache-dir \
    --disable-pip-version-check -v
"$script_python" "$RECIPE_DIR/share_libtorch.py" link "$SP_DIR/torch" "$PREFIX" build/shared-with-libtorch.txt
clean
