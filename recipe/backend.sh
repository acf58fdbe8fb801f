# Sourced in PyTorch's tree, after build_env.sh: functions that configure, compile and install this PyTorch, with setup.py up to
# 2.13 and with scikit-build-core from 2.14 on. pyproject.toml names the back end.
# shellcheck shell=bash

if grep -qs '^build-backend *= *"scikit_build_core' pyproject.toml; then
    torch_backend=scikit-build-core
    installed=installed  # its folder torch/ has the files that setup.py writes into the source tree's torch/
    configure_tree() { "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" configure .; }
    install_tree() {
        cmake --build build -- -j "$MAX_JOBS"
        cmake --install build --prefix "$PWD/$installed/torch"
        rm -rf build/temp.skbuild  # the back end's temporary folder, into which CMake installs files with absolute paths
    }
    compile_python_side() { cmake --build build -- -j "$MAX_JOBS"; }
else
    torch_backend=setup.py
    installed=.
    configure_tree() { "$PYTHON" setup.py build --cmake-only; }
    install_tree() { cmake --build build --target install -- -j "$MAX_JOBS"; }
    compile_python_side() { "$PYTHON" setup.py build; }
fi
