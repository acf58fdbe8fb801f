#!/usr/bin/env bash
# libtorch-cuda-linalg: one of the two flavours that staging built. The library with MAGMA has its own name; libtorch_cuda opens
# it through a link under the usual name, and recognises the installed flavour by that link.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
cd "$TORCH_TREE"
source "$RECIPE_DIR/backend.sh"

library=libtorch_cuda_linalg
[[ "$linalg_backend" == nomagma ]] || library=libtorch_cuda_linalg_magma
install -D -m 755 "$installed/torch/lib/$library.so" "$PREFIX/lib/$library.so"
[[ "$linalg_backend" == nomagma ]] || ln -s "$library.so" "$PREFIX/lib/libtorch_cuda_linalg.so"
