#!/usr/bin/env bash
# Test pytorch and libtorch together, as users install them: pytorch.sh VERSION CUDA_VERSION|None PROVIDER TORCH_SOURCE
set -euo pipefail

python tests/torch_works.py "$1" "$2"
python tests/one_owner.py "$CONDA_PREFIX"
[[ "$(uname -s)" != Linux ]] || python tests/linked_libraries.py "$CONDA_PREFIX"
# the model has neither complex numbers nor cpp_extension nor torch.compile
if [[ "$4" != "model" ]]; then
    python tests/features.py "$3" "$2"
    python tests/compiles.py
fi

# CMake's files from site-packages, as pip's builds use them; tests/libtorch.sh uses those of the environment.
torch_dir="$(python -c 'import torch.utils as u; print(u.cmake_prefix_path)')/Torch"
cmake -G Ninja -S cmake_test -B build -DTorch_DIR="$torch_dir" -DCMAKE_PREFIX_PATH="$PREFIX" -DWITH_PYTHON=ON
cmake --build build
./build/torch_user
