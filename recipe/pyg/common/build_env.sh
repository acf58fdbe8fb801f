# Sourced by every extension's build script: the one place for the environment in which extensions compile.
# shellcheck shell=bash

phase() { echo "::megabuild:: phase $*"; }
refuse() { echo "error: $*" >&2; exit 1; }

common="$RECIPE_DIR/../common"
export PYTHONDONTWRITEBYTECODE=1  # stray .pyc of host packages would be captured as files of ours
export PYTHONHASHSEED=0  # pip's byte code: Python 3.10 writes sets in the order of their hashes
export PYTHON="${PYTHON:-$PREFIX/bin/python}"
export NINJA_STATUS='[%f/%t %es] '
[[ "${CPU_COUNT:-}" =~ ^[0-9]+$ ]] || CPU_COUNT="$(getconf _NPROCESSORS_ONLN)"
export CPU_COUNT
# -j would make ninja leave the jobserver that MAKEFLAGS names
unset MAX_JOBS
if [[ "${MAKEFLAGS:-}" == *--jobserver-auth=fifo:* ]]; then
    unset CMAKE_BUILD_PARALLEL_LEVEL
else
    export CMAKE_BUILD_PARALLEL_LEVEL="$CPU_COUNT"
fi

# ---- names that are the same in every work folder ---------------------------------------------------------------
# The environment's own path is padded to a fixed length, so it differs with the folder's: an object cache would never
# hit elsewhere. The link stands beside the sources.
work="$(dirname "$SRC_DIR")"
export BUILD_ENV_LINK="$work/env"
ln -sfn "$PREFIX" "$BUILD_ENV_LINK"

compiler_flags() {
    local word previous="" words=()
    # The environment's headers are looked for with -I, before those in site-packages. Were their folder one of the
    # system's as well, GCC would move it behind: all headers would be found under a path with the Python's version in it,
    # and nothing would be the same text for two Pythons.
    for word in $1; do
        if [[ "$previous $word" == "-isystem $PREFIX/include" ]]; then
            unset 'words[-1]'
            continue
        fi
        previous="$word"
        case "$word" in
            # no debug information is made, so there are no paths in it to map
            -fdebug-prefix-map=*) continue ;;
            # hides what PyTorch's headers make visible
            -fvisibility-inlines-hidden) continue ;;
        esac
        words+=("${word//$PREFIX/$BUILD_ENV_LINK}")
    done
    # Python's own flags are not used (build_wheel.py): -g0 is for PyTorch's CMake files
    echo "${words[*]} -g0"
}
linker_flags() {
    local word words=()
    for word in $1; do
        case "$word" in
            # What an extension was linked to tells what it is (verify): all that upstream names stays
            -Wl,--as-needed) continue ;;
            # bound lazily: libcuda.so.1 is missing on a machine without a GPU
            -Wl,-z,now) word=-Wl,-z,lazy ;;
        esac
        words+=("$word")
    done
    echo "${words[*]} -Wl,-z,noexecstack"
}
CFLAGS="$(compiler_flags "${CFLAGS:-}")"
CXXFLAGS="$(compiler_flags "${CXXFLAGS:-}")"
CPPFLAGS="$(compiler_flags "${CPPFLAGS:-}")"
LDFLAGS="$(linker_flags "${LDFLAGS:-}")"

# ---- object cache -----------------------------------------------------------------------------------------------
# The engine's HOME is the work folder: without a folder said here or by the launcher, every build would have its own cache.
[[ -n "${CCACHE_DIR:-}" ]] || unset CCACHE_DIR
# PyTorch puts a ccache that it finds on PATH before the compilers, whichever that is. It is to find the one we were
# given, or none.
if [[ -n "${PYG_CCACHE:-}" ]]; then
    mkdir -p "$work/launcher"
    # with the PATH of before: a launcher that looks for ccache there must not find itself under that name
    printf '#!/bin/sh\nPATH="%s" exec "%s" "$@"\n' "$PATH" "$PYG_CCACHE" >"$work/launcher/ccache"
    chmod +x "$work/launcher/ccache"
    export PATH="$work/launcher:$PATH"
    export CMAKE_C_COMPILER_LAUNCHER="$PYG_CCACHE" CMAKE_CXX_COMPILER_LAUNCHER="$PYG_CCACHE"
    export CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
    # found again by what the preprocessor makes of it, whichever Python's headers were searched in vain
    unset CCACHE_DEPEND CCACHE_NODIRECT
    # Headers of packages are hard links: the same package installed elsewhere meanwhile gives them a new ctime.
    export CCACHE_SLOPPINESS=include_file_ctime
else
    export TORCH_NO_COMPILER_WRAPPER=1
fi

# ---- accelerator ------------------------------------------------------------------------------------------------
if [[ "$cuda_compiler_version" == "None" ]]; then
    export FORCE_CUDA=0 FORCE_ONLY_CPU=1
    unset FORCE_ONLY_CUDA TORCH_CUDA_ARCH_LIST
else
    # libtorch says what it holds kernels for; there is no second list
    [[ -n "${CF_TORCH_CUDA_ARCH_LIST:-}" ]] ||
        refuse "libtorch's activation did not export CF_TORCH_CUDA_ARCH_LIST: is this libtorch a CUDA build of this repository?"
    [[ "$CF_TORCH_CUDA_ARCH_LIST" == "$torch_cuda_arch_list" ]] ||
        refuse "libtorch was built for $CF_TORCH_CUDA_ARCH_LIST, this config is for $torch_cuda_arch_list: build libtorch first"
    export TORCH_CUDA_ARCH_LIST="$CF_TORCH_CUDA_ARCH_LIST"
    export FORCE_CUDA=1 FORCE_ONLY_CUDA=1
    unset FORCE_ONLY_CPU
    case "$target_platform" in
        linux-64) cuda_target=x86_64-linux ;;
        linux-aarch64)
            cuda_target=sbsa-linux
            [[ ! -d "$PREFIX/targets/aarch64-linux" ]] || cuda_target=aarch64-linux ;;  # Jetson Orin's
        *) refuse "there are no CUDA builds for $target_platform" ;;
    esac
    # nvcc runs here; its headers and libraries are the target's
    export CUDA_HOME="$BUILD_PREFIX"
    [[ -x "$CUDA_HOME/bin/nvcc" ]] || CUDA_HOME="$(dirname "$(dirname "$(command -v nvcc)")")"
    if [[ -n "${PYG_CCACHE:-}" ]]; then
        # nvcc only calls these, and may be a script itself: what it makes depends on them
        CCACHE_EXTRAFILES=""
        for program in nvcc cicc cudafe++ ptxas fatbinary nvlink; do
            for folder in "$CUDA_HOME/nvvm/bin" /usr/lib/nvidia-cuda-toolkit/bin "$CUDA_HOME/bin"; do
                [[ -x "$folder/$program" ]] || continue
                CCACHE_EXTRAFILES+="${CCACHE_EXTRAFILES:+:}$folder/$program"
                break
            done
        done
        export CCACHE_EXTRAFILES
    fi
    cuda_include="$BUILD_ENV_LINK/targets/$cuda_target/include"
    # -I and not -isystem, as above: where this folder is a link to the environment's own, GCC takes them for one
    CFLAGS="$CFLAGS -I$cuda_include" CXXFLAGS="$CXXFLAGS -I$cuda_include"
    LDFLAGS="$LDFLAGS -L$PREFIX/lib -L$PREFIX/targets/$cuda_target/lib -L$PREFIX/targets/$cuda_target/lib/stubs"
    NVCC_FLAGS="-Xfatbin -compress-all"
    [[ "$cuda_compiler_version" == 13.* ]] && NVCC_FLAGS+=" -compress-mode=size"
    export NVCC_FLAGS="$NVCC_FLAGS -I$cuda_include -w"
    export CMAKE_CUDA_FLAGS="-w" CMAKE_CUDA_COMPILER_LAUNCHER="${PYG_CCACHE:-}"
    # what the compiler depends on is of no use to a build that runs once, and not every object cache can tell
    export TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES=1
fi
export CFLAGS CXXFLAGS CPPFLAGS LDFLAGS

# conda's CMAKE_ARGS (cross-compiler, sysroot, search roots) for projects whose setup.py knows nothing of them: CMake
# takes a toolchain file from the environment.
use_toolchain() {
    local word name
    {
        for word in ${CMAKE_ARGS:-}; do
            [[ "$word" == -D*=* ]] || continue
            name="${word%%=*}"; name="${name#-D}"
            case "${name%%:*}" in
                CMAKE_INSTALL_PREFIX | CMAKE_INSTALL_LIBDIR | CMAKE_BUILD_TYPE) ;;  # the project's own business
                CMAKE_FIND_ROOT_PATH) echo "set(CMAKE_FIND_ROOT_PATH \"${word#*=};$SRC_DIR\")" ;;
                *) echo "set(${name%%:*} \"${word#*=}\")" ;;
            esac
        done
        echo "set(Python3_EXECUTABLE \"$PYTHON\" CACHE FILEPATH \"the Python with PyTorch\")"
        if [[ "$cuda_compiler_version" != "None" ]]; then
            for name in CUDAToolkit_ROOT CUDA_TOOLKIT_ROOT_DIR; do
                echo "set($name \"$PREFIX\" CACHE PATH \"where the environment has CUDA\")"
            done
            echo "set(CUDAToolkit_TARGET_DIR \"$PREFIX/targets/$cuda_target\" CACHE PATH \"headers and libraries\")"
        fi
    } >"$work/conda-toolchain.cmake"
    export CMAKE_TOOLCHAIN_FILE="$work/conda-toolchain.cmake" CMAKE_PREFIX_PATH="$PREFIX"
}

# install_wheel WHEEL: lay a wheel into the environment
install_wheel() {
    # By name: of a file's path pip would keep a record, direct_url.json, with a folder of the machine that built.
    local name version
    IFS=- read -r name version _ <<<"$(basename "$1")"
    "$PYTHON" -m pip install "$name==$version" --find-links "$(dirname "$1")" --no-deps --no-index \
        --no-cache-dir --disable-pip-version-check --ignore-installed ${compile_python:---compile}
}

# verify_package MODULE: no CPU library goes into a CUDA package, no architecture is missing, and the pin on PyTorch holds
verify_package() {
    "$PYTHON" "$common/verify_package.py" "$1" --folder "$SP_DIR" --archs "$torch_cuda_arch_list" \
        --torch-pin "$torch_pin" --accelerator "$([[ "$cuda_compiler_version" == "None" ]] && echo cpu || echo "cuda${cuda_compiler_version/./}")"
}

# What a package's tests need besides its recipe's own, in the work folder, from where the engine packs them.
lay_out_checks() {
    mkdir -p "$SRC_DIR/checks"
    cp -r "$common/cuda_code" "$common/run_operators.py" "$common/verify_package.py" "$SRC_DIR/checks/"
    rm -rf "$SRC_DIR/checks/cuda_code/__pycache__"
    # a wheel that somebody else compiled says nothing of METIS
    if [[ -n "${PYG_WHEEL:-}" ]]; then echo wheel; else echo "${with_metis:-none}"; fi >"$SRC_DIR/checks/metis.txt"
}
