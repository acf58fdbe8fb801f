#!/usr/bin/env bash
# libtorch: staging has collected the files in the tree, or, from official wheels, put them into $PREFIX. CUDA packages also
# get activation scripts that export their architectures.
set -euo pipefail

files="${TORCH_TREE:-$SRC_DIR}/libtorch-files"
if [[ -d "$files" ]]; then
    # as hard links, unless $PREFIX is on another file system, or cp cannot make them
    cp -RPl "$files/." "$PREFIX/" 2>/dev/null || cp -RPp "$files/." "$PREFIX/"
fi

# tell_archs SCRIPT activate|deactivate
tell_archs() {
    mkdir -p "$PREFIX/etc/conda/$2.d"
    sed "s/@torch_cuda_arch_list@/$torch_cuda_arch_list/" "$1" >"$PREFIX/etc/conda/$2.d/libtorch_$2.sh"
}

if [[ "$cuda_compiler_version" != "None" ]]; then
    tell_archs "$RECIPE_DIR/activate.sh" activate
    tell_archs "$RECIPE_DIR/deactivate.sh" deactivate
fi
