#!/usr/bin/env bash
# libtorch: staging has put the files into $PREFIX. CUDA packages also get activation scripts that export their architectures.
set -euo pipefail

# tell_archs SCRIPT activate|deactivate
tell_archs() {
    mkdir -p "$PREFIX/etc/conda/$2.d"
    sed "s/@torch_cuda_arch_list@/$torch_cuda_arch_list/" "$1" >"$PREFIX/etc/conda/$2.d/libtorch_$2.sh"
}

if [[ "$cuda_compiler_version" != "None" ]]; then
    tell_archs "$RECIPE_DIR/activate.sh" activate
    tell_archs "$RECIPE_DIR/deactivate.sh" deactivate
fi
