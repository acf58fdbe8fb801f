#!/usr/bin/env bash
# libtorch: the files stand in $PREFIX already, from staging; CUDA packages also tell others which archs they hold.
set -euo pipefail

if [[ "$cuda_compiler_version" != "None" ]]; then
    for change in activate deactivate; do
        mkdir -p "$PREFIX/etc/conda/$change.d"
        sed "s/@torch_cuda_arch_list@/$torch_cuda_arch_list/" "$RECIPE_DIR/$change.sh" \
            > "$PREFIX/etc/conda/$change.d/libtorch_$change.sh"
    done
fi
