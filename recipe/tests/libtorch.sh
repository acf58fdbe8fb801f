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
    folder="$PREFIX/share/cmake/$package"
    [[ -d "$folder" ]] || continue
    code=0
    grep -rlE 'placehold_placehold|/(tree|work)/(torch|build|third_party)|/build_env' "$folder" || code=$?
    case "$code" in
        0) echo "error: these CMake files name a folder of the build machine" >&2; exit 1 ;;
        1) ;;  # no file names one
        *) echo "error: $folder: not all files could be read (grep: exit code $code)" >&2; exit 1 ;;
    esac
done
