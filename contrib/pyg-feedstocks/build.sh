#!/bin/bash
set -euxo pipefail

if [[ "${cuda_compiler_version}" == "None" ]]; then
  export FORCE_CUDA=0
else
  export FORCE_CUDA=1
  # the architectures that PyTorch is built for; libtorch's activation script exports them
  export TORCH_CUDA_ARCH_LIST="${CF_TORCH_CUDA_ARCH_LIST:?libtorch has not exported its architectures}"
  # PyTorch checks that CC is a file, so CC cannot have options; nvcc rejects most options of conda's CFLAGS
  cat > "${SRC_DIR}/gcc_with_headers" <<"EOF"
#!/bin/sh
exec "$GCC" "-I$PREFIX/include" "$@"
EOF
  chmod +x "${SRC_DIR}/gcc_with_headers"
  export CC="${SRC_DIR}/gcc_with_headers"
fi

if [[ "${CONDA_BUILD_CROSS_COMPILATION:-}" == "1" ]]; then
  # headers of the build machine's PyTorch, which would be found before the target's
  rm -rf "${BUILD_PREFIX}"/venv/lib/python3.*/site-packages/torch/include/torch/csrc/api/include/
fi

${PYTHON} -m pip install . -vv --no-deps --no-build-isolation
