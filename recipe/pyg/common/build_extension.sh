#!/usr/bin/env bash
# Build an extension whose setup.py uses torch.utils.cpp_extension: compile it, or repackage a wheel, and verify it.
set -euo pipefail
source "$RECIPE_DIR/../common/build_env.sh"

compile() {
    if [[ "${with_metis:-none}" != none ]]; then
        phase metis
        # static, and without exported symbols: an environment may also have a METIS with 32-bit indices
        cmake -G Ninja -S "$common/metis" -B "$work/metis-build" -DMETIS_SOURCE="$SRC_DIR/metis" -DCMAKE_BUILD_TYPE=
        cmake --build "$work/metis-build"
        export WITH_METIS=1
        metis_flags="-DIDXTYPEWIDTH=64 -DREALTYPEWIDTH=32 -I$SRC_DIR/metis/include"
        CFLAGS="$CFLAGS $metis_flags" CXXFLAGS="$CXXFLAGS $metis_flags"
        LDFLAGS="$LDFLAGS -L$work/metis-build -Wl,--exclude-libs,libmetis.a"
    fi
    phase compile
    "$PYTHON" "$common/build_wheel.py" "$SRC_DIR/dist"
}

make_package compile
