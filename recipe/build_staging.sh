#!/usr/bin/env bash
# Staging: compile libtorch once, against one fixed Python, and collect its files in the tree, from which outputs take theirs.
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"

phase sync
if [[ "$torch_source" != "model" ]]; then
    # before sync_tree.py compares the sources with the tree: otherwise each run would replace this file, and configure again
    find_cuda="$SRC_DIR/FindCUDA.cmake"
    [[ ! -f "$find_cuda" ]] || mv "$find_cuda" "$SRC_DIR/cmake/Modules_CUDA_fix/FindCUDA.cmake"
    # NNPACK's configure step would download six from PyPI, although the environment has it
    six="$SRC_DIR/third_party/NNPACK/cmake/DownloadSix.cmake"
    [[ ! -f "$six" ]] || : >"$six"
    # configs that differ in the BLAS share their objects
    config="$SRC_DIR/aten/src/ATen/Config.h.in"
    [[ ! -f "$config" || -f "${config%/*}/BlasConfig.h.in" ]] || "$PYTHON" "$RECIPE_DIR/separate_blas.py" "$SRC_DIR"
fi
"$PYTHON" "$RECIPE_DIR/sync_tree.py" "$SRC_DIR" "$TORCH_TREE"
cd "$TORCH_TREE"
"$PYTHON" "$RECIPE_DIR/gather_licences.py" "$TORCH_TREE" "$SRC_DIR/licenses"
if [[ "$torch_source" == "debian" ]]; then
    # Debian's source has the schema, but not the header generated from it
    (cd torch/csrc/jit/serialization && "$PYTHON" "$RECIPE_DIR/sync_tree.py" \
        --generate mobile_bytecode_generated.h -- flatc --cpp --gen-mutable --scoped-enums mobile_bytecode.fbs)
fi
source "$RECIPE_DIR/backend.sh"

phase configure
# Swaps have changed the configuration. If it cannot be restored, configured-with.txt is missing.
[[ ! -d build ]] || "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" return build configured-with.txt || true
if [[ -n "${CMAKE_TOOLCHAIN_FILE:-}" ]]; then write_toolchain "$CMAKE_TOOLCHAIN_FILE"; fi
# Outputs that read files of the environment which changed since are removed; then the tree is configured from scratch.
"$PYTHON" "$RECIPE_DIR/tree_inputs" compare build "$installed/torch"
# build/configured-with.txt records the settings; it is written last, so that a run after a kill configures again.
settings="$(env | grep -E '^(USE_|BUILD_|CMAKE_|BLAS=|CUD|MAGMA_|NCCL_|ONNX_|TORCH_[CN]|PYTORCH_|CC=|CXX=|CFLAGS=|CXXFLAGS=|LDFLAGS=|torch_|PREFIX=)' \
    | LC_ALL=C sort && cat "${CMAKE_TOOLCHAIN_FILE:-/dev/null}")"
if [[ "$settings" != "$(cat build/configured-with.txt 2>/dev/null)" ]]; then
    rm -f build/CMakeCache.txt build/configured-with.txt
    (
        # All inputs are in the sources and the environment, pinned by hash: every network access must fail visibly.
        none=http://nothing-is-downloaded-here.invalid:9
        export http_proxy=$none https_proxy=$none all_proxy=$none no_proxy="" PIP_NO_INDEX=1 GIT_ALLOW_PROTOCOL=file
        export HTTP_PROXY=$none HTTPS_PROXY=$none ALL_PROXY=$none NO_PROXY=""
        configure_tree
    )
    "$PYTHON" "$RECIPE_DIR/check_staged.py" downloads build
    if [[ "$torch_optimization" == 0 ]]; then
        # -O0 does not use these instruction sets: without them, the same kernels are not compiled several times
        "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" set build --new \
            CXX_AVX2_FOUND:BOOL=FALSE CXX_AVX512_FOUND:BOOL=FALSE CXX_SVE_FOUND:BOOL=FALSE
        "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" regenerate build
    fi
    echo "$settings" >build/configured-with.txt
fi

phase compile
"$PYTHON" "$RECIPE_DIR/tree_inputs" begin build "$installed/torch"
install_tree
if [[ "$torch_source" == "debian" ]]; then
    # libtorch's headers and torch.compile include them, and users of the packages have no libfmt-dev and libsleef-dev.
    # find_package(Torch) and cpp_extension search this folder; in include/ they could overwrite another package's.
    bundled="$installed/torch/include/torch/csrc/api/include"
    rm -rf "$bundled/fmt" "$installed/torch/include/sleef.h"  # the latter from a tree of a former recipe
    multiarch="$("$CXX" -print-multiarch)"
    cp -rp /usr/include/fmt "/usr/include/$multiarch/sleef.h" "$bundled/"
fi

phase check
if [[ "$target_platform" == linux-* ]]; then
    "$PYTHON" "$RECIPE_DIR/check_staged.py" libraries "$installed/torch" "$PREFIX"
fi
if [[ -z "$is_cross" ]]; then
    # Both folders, as for "libraries": in the package they are one folder, which RPATHs find only there.
    LD_BIND_NOW=1 LD_LIBRARY_PATH="$PWD/$installed/torch/lib:$PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$PYTHON" "$RECIPE_DIR/check_staged.py" import . "$installed/torch"
fi
# last: a record of files says that all objects read them
"$PYTHON" "$RECIPE_DIR/tree_inputs" record build "$installed/torch"

phase install
# Not into $PREFIX: the engine would copy it for every output. build_libtorch.sh links these files.
rm -rf "$TORCH_TREE/libtorch-files"
"$PYTHON" "$RECIPE_DIR/install_libtorch.py" "$TORCH_TREE/$installed" "$TORCH_TREE/libtorch-files"
