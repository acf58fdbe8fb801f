#!/usr/bin/env bash
# pyg-lib, whose setup.py drives CMake: compile it, or take a verified wheel, and look inside.
set -euo pipefail
source "$RECIPE_DIR/../common/build_env.sh"
cd "$SRC_DIR"

if [[ -n "${PYG_WHEEL:-}" ]]; then
    phase repackage "wheel=$(basename "$PYG_WHEEL")"
    wheel="$PYG_WHEEL"
else
    # A static METIS with 64-bit indices goes into libpyg.so; an environment may also hold one with 32-bit indices
    export LDFLAGS="$LDFLAGS -Wl,--exclude-libs,libmetis.a"
    export FORCE_NINJA=1
    unset CMAKE_GENERATOR
    if [[ "$cuda_compiler_version" != "None" ]]; then
        # cuCollections, which it uses, compiles for 6.0 and newer only
        TORCH_CUDA_ARCH_LIST="$("$PYTHON" "$common/arch_list.py" "$TORCH_CUDA_ARCH_LIST" --at-least 6.0)"
    fi
    use_toolchain
    phase compile
    "$PYTHON" setup.py bdist_wheel --dist-dir "$SRC_DIR/dist"
    wheel=("$SRC_DIR"/dist/*.whl)
    [[ ${#wheel[@]} == 1 ]] || refuse "expected one wheel in dist, found: ${wheel[*]}"
fi

phase install
# every Python compiles the sources for itself
compile_python=--no-compile
# shellcheck disable=SC2128  # the one wheel
install_wheel "$wheel"
phase verify
verify_package "$module"
lay_out_checks
"$PYTHON" "$RECIPE_DIR/../../gather_licences.py" "$SRC_DIR" "$SRC_DIR/licenses"  # its own, and those of what it vendors
