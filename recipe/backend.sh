# Sourced in PyTorch's tree, after build_env.sh: functions that configure, compile and install this PyTorch, with setup.py up to
# 2.13 and with scikit-build-core from 2.14 on. pyproject.toml names the back end.
# shellcheck shell=bash

# Sets ninja_jobs, ninja's options, and MAX_JOBS, which setup.py passes to ninja as -j. MAKEFLAGS may name a pipe with the jobs that
# this build shares with others (GNU make's jobserver). ninja takes jobs from it since 1.13, unless it gets -j; for an older ninja,
# this function takes those that are free.
limit_jobs() {
    ninja_jobs=(-j "$MAX_JOBS")
    local flags="${MAKEFLAGS:-}" token
    local pipe="${flags##*--jobserver-auth=fifo:}"
    if [[ "$pipe" == "$flags" || ! -p "$pipe" ]]; then return; fi
    # assignments, because a command that fails in a condition would not end the script
    local version older
    version="$(ninja --version)"
    older="$(printf '%s\n' 1.13 "$version" | sort -V | head -n 1)"
    if [[ "$older" == 1.13 ]]; then
        unset MAX_JOBS
        ninja_jobs=()
        return
    fi
    exec {job_pipe}<>"$pipe"
    taken_jobs=""
    while ((${#taken_jobs} + 1 < MAX_JOBS)) && read -r -t 0.1 -N 1 -u "$job_pipe" token; do taken_jobs+="$token"; done
    trap 'printf %s "$taken_jobs" >&"$job_pipe"' EXIT
    export MAX_JOBS="$((${#taken_jobs} + 1))"
    ninja_jobs=(-j "$MAX_JOBS")
}

pyproject=""
[[ ! -f pyproject.toml ]] || pyproject="$(<pyproject.toml)"
if [[ $'\n'"$pyproject" =~ $'\n'build-backend\ *=\ *\"scikit_build_core ]]; then
    torch_backend=scikit-build-core
    installed=installed  # its folder torch/ has the files that setup.py writes into the source tree's torch/
    configure_tree() { "$PYTHON" "$RECIPE_DIR/swap/cmake_python_swap" configure .; }
    install_tree() {
        limit_jobs
        cmake --build build -- "${ninja_jobs[@]}"
        cmake --install build --prefix "$PWD/$installed/torch"
        rm -rf build/temp.skbuild  # the back end's temporary folder, into which CMake installs files with absolute paths
    }
    compile_python_side() {
        limit_jobs
        cmake --build build -- "${ninja_jobs[@]}"
    }
else
    torch_backend=setup.py
    installed=.
    configure_tree() { "$PYTHON" setup.py build --cmake-only; }
    install_tree() {
        limit_jobs
        cmake --build build --target install -- "${ninja_jobs[@]}"
    }
    compile_python_side() {
        limit_jobs
        "$PYTHON" setup.py build
    }
fi
