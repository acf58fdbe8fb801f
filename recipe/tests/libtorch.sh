#!/usr/bin/env bash
# libtorch alone: a user's CMake project builds and runs with it, and the package has no Python files.
set -euo pipefail

# -O0 halves the time of the compile
cmake -G Ninja -S cmake_test -B build -DCMAKE_PREFIX_PATH="$PREFIX" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG"
cmake --build build
./build/torch_user

for stray in "$PREFIX"/lib/libtorch_python* "$PREFIX"/lib/python*/site-packages/torch; do
    [[ ! -e "$stray" ]] || { echo "error: $stray belongs to pytorch, not to libtorch" >&2; exit 1; }
done
[[ -x "$PREFIX/bin/torch_shm_manager" ]] || { echo "error: bin/torch_shm_manager: not executable" >&2; exit 1; }
for package in ATen Caffe2 Tensorpipe Torch; do
    [[ -d "$PREFIX/share/cmake/$package" ]] || continue
    if grep -rlE 'placehold_placehold|/(tree|work)/(torch|build|third_party)|/build_env' "$PREFIX/share/cmake/$package"; then
        echo "error: these CMake files name a folder of the build machine" >&2; exit 1
    fi
done
