#!/usr/bin/env bash
# Staging: put the libtorch files of the base Python's wheel into $PREFIX.
set -euo pipefail
echo "::megabuild:: phase split"
# share_libtorch.py and install_libtorch.py are in the folder of PyTorch's own recipe
export PYTHONPATH="$RECIPE_DIR/.."
"${PYTHON:-$PREFIX/bin/python}" -B "$RECIPE_DIR/split_wheel.py" libtorch "$torch_source_path" "$torch_python_base" "$PREFIX"
# the same RPATH that ../build_env.sh passes to the linker, for links in torch/lib
through_links='$ORIGIN/../utils/../../../..'
vendored=
[[ ! -d "$PREFIX/lib/libtorch" ]] || vendored=":\$ORIGIN/libtorch:$through_links/libtorch"  # VENDORED of wheel_parts.py
for library in "$PREFIX"/lib/lib{c10,caffe2_nvrtc,shm,torch}*.so*; do
    [[ ! -e "$library" ]] || patchelf --add-rpath "$through_links$vendored" "$library"
done
