#!/bin/bash
set -euxo pipefail

if [[ "${cuda_compiler_version}" == "None" ]]; then
  export FORCE_CUDA=0
else
  export FORCE_CUDA=1
  # the architectures that PyTorch is built for; libtorch's activation script exports them. cuCollections needs 6.0
  export TORCH_CUDA_ARCH_LIST="${CF_TORCH_CUDA_ARCH_LIST:?libtorch has not exported its architectures}"
  TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST#5.0;}"
fi

# lazy binding, because libcuda.so.1 is missing on a machine without a GPU
export LDFLAGS="${LDFLAGS//-Wl,-z,now/-Wl,-z,lazy}"
if [[ "${target_platform}" == linux-* ]]; then
  # the module contains a METIS with 64-bit indices; an environment may also have one with 32-bit indices
  export LDFLAGS="${LDFLAGS} -Wl,--exclude-libs,libmetis.a"
fi

# setup.py does not pass CMAKE_ARGS on; CMake reads a toolchain file that the environment names
export CMAKE_TOOLCHAIN_FILE="${SRC_DIR}/conda-toolchain.cmake" CMAKE_PREFIX_PATH="${PREFIX}"
{
  for argument in ${CMAKE_ARGS}; do
    name="${argument%%=*}"
    name="${name#-D}"
    case "${argument}" in
      -DCMAKE_INSTALL_* | -DCMAKE_BUILD_TYPE=*) ;;  # setup.py sets these
      -DCMAKE_FIND_ROOT_PATH=*) echo "set(CMAKE_FIND_ROOT_PATH \"${argument#*=};${SRC_DIR}\")" ;;
      -D*=*) echo "set(${name%%:*} \"${argument#*=}\")" ;;
    esac
  done
  echo "set(Python3_EXECUTABLE \"${PYTHON}\" CACHE FILEPATH \"the Python with PyTorch\")"
  if [[ "${cuda_compiler_version}" != "None" ]]; then
    echo "set(CUDAToolkit_ROOT \"${PREFIX}\" CACHE PATH \"where the environment has CUDA\")"
    echo "set(CUDA_TOOLKIT_ROOT_DIR \"${PREFIX}\" CACHE PATH \"where the environment has CUDA\")"
  fi
} > "${CMAKE_TOOLCHAIN_FILE}"

export FORCE_NINJA=1
unset CMAKE_GENERATOR
${PYTHON} -m pip install . -vv --no-deps --no-build-isolation
