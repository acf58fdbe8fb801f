#!/usr/bin/env bash
# libtorch-cuda-linalg: one of the two flavours that staging put aside.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"

install -D -m 755 "$TORCH_TREE/linalg/$linalg_backend/libtorch_cuda_linalg.so" "$PREFIX/lib/libtorch_cuda_linalg.so"
