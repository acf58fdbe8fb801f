#!/usr/bin/env bash
# Staging: the wheel of the base Python is taken apart, and libtorch's files of it laid into $PREFIX.
set -euo pipefail
echo "::megabuild:: phase split"
# share_libtorch.py and install_libtorch.py lie beside PyTorch's own recipe
export PYTHONPATH="$RECIPE_DIR/.."
"${PYTHON:-$PREFIX/bin/python}" -B "$RECIPE_DIR/split_wheel.py" libtorch "$torch_source_path" "$torch_python_base" "$PREFIX"
# as ../build_env.sh has the linker do it, for links in torch/lib
for library in "$PREFIX"/lib/lib{c10,caffe2_nvrtc,shm,torch}*.so*; do
    [[ ! -e "$library" ]] || patchelf --add-rpath '$ORIGIN/../utils/../../../..' "$library"
done
