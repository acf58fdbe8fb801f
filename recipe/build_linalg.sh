#!/usr/bin/env bash
# libtorch-cuda-linalg: one of the two flavours that staging made. The library with MAGMA has a name of its own, and a link
# to it stands where libtorch_cuda looks: by that link it tells which flavour is installed.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
cd "$TORCH_TREE"
source "$RECIPE_DIR/backend.sh"

library=libtorch_cuda_linalg
[[ "$linalg_backend" == nomagma ]] || library=libtorch_cuda_linalg_magma
install -D -m 755 "$installed/torch/lib/$library.so" "$PREFIX/lib/$library.so"
[[ "$linalg_backend" == nomagma ]] || ln -s "$library.so" "$PREFIX/lib/libtorch_cuda_linalg.so"
