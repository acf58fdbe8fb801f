#!/usr/bin/env bash
# Test pytorch and libtorch together, as users install them: pytorch.sh VERSION CUDA_VERSION|None PROVIDER TORCH_SOURCE
set -euo pipefail

build_project() {
    # CMake's files from site-packages, as pip's builds use them; tests/libtorch.sh uses those of the environment
    local torch_dir
    torch_dir="$(python -c 'import torch.utils as u; print(u.cmake_prefix_path)')/Torch"
    cmake -G Ninja -S cmake_test -B build -DTorch_DIR="$torch_dir" -DCMAKE_PREFIX_PATH="$PREFIX" -DWITH_PYTHON=ON \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG"
    cmake --build build --target headers "$@"
    local program
    for program in "$@"; do "./build/$program"; done
}
programs=(torch_user python_user)
missing="$(python tests/missing_exports.py)"
if [[ "$4" == wheel && -n "$missing" ]]; then
    echo "warning: the official wheel's libtorch_python does not export $missing:" \
        "extensions that include torch/csrc/jit/python/pybind_utils.h do not link"
    programs=(torch_user)
fi
build_project "${programs[@]}" >project.log 2>&1 &  # during the Python tests, which use one core most of the time
project=$!
trap 'wait "$project" 2>/dev/null || true' EXIT  # a failed test must not leave compilers behind

python tests/torch_works.py "$1" "$2"
python tests/one_owner.py "$CONDA_PREFIX"
[[ "$OSTYPE" != linux* ]] || python tests/linked_libraries.py "$CONDA_PREFIX"
# the model has neither complex numbers nor cpp_extension nor torch.compile
if [[ "$4" != "model" ]]; then
    python tests/features.py "$3" "$2"
    python tests/compiles.py
fi

wait "$project" || { cat project.log; exit 1; }
