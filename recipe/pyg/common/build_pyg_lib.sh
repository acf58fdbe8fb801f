#!/usr/bin/env bash
# Build pyg-lib, whose setup.py runs CMake: compile it, or repackage a wheel, and verify it.
set -euo pipefail
source "$RECIPE_DIR/../common/build_env.sh"

compile() {
    # of an earlier build in a local checkout: CMake refuses its folder, and setuptools would pack its files
    rm -rf build dist
    # libpyg.so contains a static METIS with 64-bit indices; an environment may also have one with 32-bit indices
    export LDFLAGS="$LDFLAGS -Wl,--exclude-libs,libmetis.a"
    export FORCE_NINJA=1
    unset CMAKE_GENERATOR
    if [[ "$cuda_compiler_version" != "None" ]]; then
        # cuCollections, which pyg-lib uses, compiles only for 6.0 and newer
        TORCH_CUDA_ARCH_LIST="$("$PYTHON" "$common/arch_list.py" "$TORCH_CUDA_ARCH_LIST" --at-least 6.0)"
    fi
    use_toolchain
    phase compile
    "$PYTHON" setup.py bdist_wheel --dist-dir "$SRC_DIR/dist"
}

# the package works with several Pythons, which compile the .pyc files themselves
compile_python=--no-compile
make_package compile
