#!/usr/bin/env bash
# libtorch alone: a user's CMake project builds and runs against it, and nothing of Python came along.
set -euo pipefail

cmake -G Ninja -S cmake_test -B build -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_BUILD_TYPE=Release
cmake --build build
./build/torch_user

for stray in "$PREFIX"/lib/libtorch_python* "$PREFIX"/lib/python*/site-packages/torch; do
    [[ ! -e "$stray" ]] || { echo "$stray belongs to pytorch, not to libtorch" >&2; exit 1; }
done
if grep -rlE 'placehold_placehold|/tree/torch' "$PREFIX/share/cmake/Torch" "$PREFIX/share/cmake/ATen"; then
    echo "these CMake files name a folder of the build machine" >&2; exit 1
fi
