# Sourced in PyTorch's tree, after build_env.sh: how this PyTorch is configured and compiled. setup.py does it up to 2.13; from
# 2.14 on that is a shim, and scikit-build-core does it. The tree says which.
# shellcheck shell=bash

if grep -qs '^build-backend *= *"scikit_build_core' pyproject.toml; then
    torch_backend=scikit-build-core
    installed=installed  # its folder torch/ is what setup.py has in the source tree
    configure_tree() { "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" configure .; }
    install_tree() {
        cmake --build build -- -j "$MAX_JOBS"
        cmake --install build --prefix "$PWD/$installed/torch"
        rm -rf build/temp.skbuild  # what goes to absolute places goes to the back end's temporary folder
    }
    compile_python_side() { cmake --build build -- -j "$MAX_JOBS"; }
else
    torch_backend=setup.py
    installed=.
    configure_tree() { "$PYTHON" setup.py build --cmake-only; }
    install_tree() { cmake --build build --target install -- -j "$MAX_JOBS"; }
    compile_python_side() { "$PYTHON" setup.py build; }
fi
