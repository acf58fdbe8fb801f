# Sourced by every extension's build script: sets the environment in which extensions compile.
# shellcheck shell=bash

phase() { echo "::megabuild:: phase $*"; }
refuse() { echo "error: $*" >&2; exit 1; }

common="$RECIPE_DIR/../common"
export PYTHONDONTWRITEBYTECODE=1  # a new .pyc of a host package would be packed into ours
export PYTHONHASHSEED=0  # makes pip's byte code reproducible: Python 3.10 writes sets in the order of their hashes
export PYTHON="${PYTHON:-$PREFIX/bin/python}"
export NINJA_STATUS='[%f/%t %es] '
[[ "${CPU_COUNT:-}" =~ ^[0-9]+$ ]] || CPU_COUNT="$(getconf _NPROCESSORS_ONLN)"
export CPU_COUNT
# PyTorch would pass it to ninja as -j, and ninja would then ignore the jobserver of MAKEFLAGS
unset MAX_JOBS
if [[ "${MAKEFLAGS:-}" == *--jobserver-auth=fifo:* ]]; then
    unset CMAKE_BUILD_PARALLEL_LEVEL
else
    export CMAKE_BUILD_PARALLEL_LEVEL="$CPU_COUNT"
fi

# ---- names that are the same in every work folder ---------------------------------------------------------------
# The environment's path is padded to a fixed length, so its end depends on the work folder, and an object cache would not hit
# in another one. Compiles use a link next to the sources instead.
work="$(dirname "$SRC_DIR")"
export BUILD_ENV_LINK="$work/env"
ln -sfn "$PREFIX" "$BUILD_ENV_LINK"

compiler_flags() {
    local word previous="" words=()
    # -I searches the environment's headers before those in site-packages. If -isystem named the same folder, GCC would search
    # it last: headers would be found below a path with the Python's version, and preprocessed text would differ between
    # Pythons.
    for word in $1; do
        if [[ "$previous $word" == "-isystem $PREFIX/include" ]]; then
            unset 'words[-1]'
            continue
        fi
        previous="$word"
        case "$word" in
            # there is no debug information, so no paths to map
            -fdebug-prefix-map=*) continue ;;
            # hides symbols that PyTorch's headers make visible
            -fvisibility-inlines-hidden) continue ;;
        esac
        words+=("${word//$PREFIX/$BUILD_ENV_LINK}")
    done
    # -g0 is for PyTorch's CMake files; build_wheel.py does not use Python's flags
    echo "${words[*]} -g0"
}
linker_flags() {
    local word words=()
    for word in $1; do
        case "$word" in
            # verify recognises an extension by the libraries it links to: all that upstream names must stay
            -Wl,--as-needed) continue ;;
            # lazy binding, because libcuda.so.1 is missing on a machine without a GPU
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
# The engine's HOME is the work folder: every build would have its own cache unless CCACHE_DIR or the launcher names a folder.
[[ -n "${CCACHE_DIR:-}" ]] || unset CCACHE_DIR
# PyTorch puts any ccache on PATH before the compilers. It must find the one that PYG_CCACHE names, or none.
if [[ -n "${PYG_CCACHE:-}" ]]; then
    mkdir -p "$work/launcher"
    # with the former PATH: a launcher that searches ccache on PATH must not find this script
    cat >"$work/launcher/ccache" <<LAUNCHER
#!/bin/sh
PATH="$PATH"
export PATH
exec "$common/cache_compiler.sh" "$PYG_CCACHE" "\$@"
LAUNCHER
    chmod +x "$work/launcher/ccache"
    export CCACHE_COMPILERCHECK=content CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1
    export PATH="$work/launcher:$PATH"
    launcher="$work/launcher/ccache"
    export CMAKE_C_COMPILER_LAUNCHER="$launcher" CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
    # C and C++ by preprocessed text, which does not depend on the searched Python folders; nvcc never (cache_nvcc.sh)
    unset CCACHE_DEPEND CCACHE_NODIRECT
    # Packages' headers are hard links: another installation of the same package changes their ctime.
    export CCACHE_SLOPPINESS=include_file_ctime
else
    export TORCH_NO_COMPILER_WRAPPER=1
fi

# ---- accelerator ------------------------------------------------------------------------------------------------
if [[ "$cuda_compiler_version" == "None" ]]; then
    export FORCE_CUDA=0 FORCE_ONLY_CPU=1
    unset FORCE_ONLY_CUDA TORCH_CUDA_ARCH_LIST
else
    # libtorch's activation exports the architectures that it has kernels for; extensions must be built for the same ones
    [[ -n "${CF_TORCH_CUDA_ARCH_LIST:-}" ]] ||
        refuse "CF_TORCH_CUDA_ARCH_LIST is not set: is this libtorch a CUDA build of this repository?"
    [[ "$CF_TORCH_CUDA_ARCH_LIST" == "$torch_cuda_arch_list" ]] ||
        refuse "libtorch was built for $CF_TORCH_CUDA_ARCH_LIST, not for this config's $torch_cuda_arch_list: build libtorch first"
    export TORCH_CUDA_ARCH_LIST="$CF_TORCH_CUDA_ARCH_LIST"
    export FORCE_CUDA=1 FORCE_ONLY_CUDA=1
    unset FORCE_ONLY_CPU
    case "$target_platform" in
        linux-64) cuda_target=x86_64-linux ;;
        linux-aarch64)
            cuda_target=sbsa-linux
            [[ ! -d "$PREFIX/targets/aarch64-linux" ]] || cuda_target=aarch64-linux ;;  # Jetson Orin's
        *) refuse "$target_platform: no CUDA builds for this platform" ;;
    esac
    # nvcc runs on the build machine; its headers and libraries are those of the target
    export CUDA_HOME="$BUILD_PREFIX"
    if [[ ! -x "$CUDA_HOME/bin/nvcc" ]]; then
        # a prebuilt wheel needs none
        nvcc="$(command -v nvcc)" || [[ -n "${PYG_WHEEL:-}" ]] ||
            refuse "nvcc: neither in $BUILD_PREFIX/bin nor on PATH; CUDA $cuda_compiler_version needs it"
        [[ -z "$nvcc" ]] || CUDA_HOME="$(cd "${nvcc%/*}/.." && pwd)"
    fi
    if [[ -n "${PYG_CCACHE:-}" ]]; then
        # nvcc calls these programs, and may itself be a script: the object cache must hash them too
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
    # -I and not -isystem, as above: if this folder is a link to the environment's own, GCC treats them as one
    CFLAGS="$CFLAGS -I$cuda_include" CXXFLAGS="$CXXFLAGS -I$cuda_include"
    LDFLAGS="$LDFLAGS -L$PREFIX/lib -L$PREFIX/targets/$cuda_target/lib -L$PREFIX/targets/$cuda_target/lib/stubs"
    NVCC_FLAGS="-Xfatbin -compress-all"
    [[ "$cuda_compiler_version" == 13.* ]] && NVCC_FLAGS+=" -compress-mode=size"
    export NVCC_FLAGS="$NVCC_FLAGS -I$cuda_include -w"
    export CMAKE_CUDA_FLAGS="-w" CMAKE_CUDA_COMPILER_LAUNCHER="${launcher:-}"
    # without the list of headers, nvcc's objects are not cached (cache_nvcc.sh)
    unset TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES
fi
export CFLAGS CXXFLAGS CPPFLAGS LDFLAGS

# Pass conda's CMAKE_ARGS (cross-compiler, sysroot, search roots) to projects whose setup.py ignores them: CMake reads a
# toolchain file named in the environment.
use_toolchain() {
    local word name
    {
        for word in ${CMAKE_ARGS:-}; do
            [[ "$word" == -D*=* ]] || continue
            name="${word%%=*}"; name="${name#-D}"
            case "${name%%:*}" in
                CMAKE_INSTALL_PREFIX | CMAKE_INSTALL_LIBDIR | CMAKE_BUILD_TYPE) ;;  # the project sets these itself
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

# install_wheel WHEEL: install a wheel into the environment
install_wheel() {
    # By name, not by path: pip would record a path of the build machine in direct_url.json.
    local name version
    IFS=- read -r name version _ <<<"${1##*/}"
    # no file of pip may name another target
    PIP_CONFIG_FILE=/dev/null "$PYTHON" -m pip install "$name==$version" --find-links "${1%/*}" --no-deps --no-index \
        --no-cache-dir --disable-pip-version-check --ignore-installed ${compile_python:---compile}
}

# verify_package MODULE: fail if a CUDA package has a CPU library, an architecture is missing, or the pin on PyTorch is wrong
verify_package() {
    "$PYTHON" "$common/verify_package.py" "$1" --folder "$SP_DIR" --archs "$torch_cuda_arch_list" \
        --torch-pin "$torch_pin" --accelerator "$([[ "$cuda_compiler_version" == "None" ]] && echo cpu || echo "cuda${cuda_compiler_version/./}")"
}

# make_package FUNCTION: install and verify the wheel of $PYG_WHEEL, else the one that FUNCTION compiles into $SRC_DIR/dist
make_package() {
    local wheels=("${PYG_WHEEL:-}")
    cd "$SRC_DIR"
    if [[ -n "${PYG_WHEEL:-}" ]]; then
        phase repackage "wheel=${PYG_WHEEL##*/}"
    else
        "$1"
        wheels=("$SRC_DIR"/dist/*.whl)
        [[ ${#wheels[@]} == 1 ]] || refuse "dist has ${#wheels[@]} wheels instead of one: ${wheels[*]}"
    fi
    phase install
    install_wheel "${wheels[0]}"
    phase verify
    verify_package "$module"
    lay_out_checks
    # the licences of the extension and its vendored libraries
    "$PYTHON" "$RECIPE_DIR/../../gather_licences.py" "$SRC_DIR" "$SRC_DIR/licenses"
}

# Put shared test files into the work folder, from which the engine packs them with the package's own tests.
lay_out_checks() {
    mkdir -p "$SRC_DIR/checks"
    cp -r "$common/cuda_code" "$common/run_operators.py" "$common/verify_package.py" "$SRC_DIR/checks/"
    rm -rf "$SRC_DIR/checks/cuda_code/__pycache__"
    # a prebuilt wheel does not record whether it has METIS
    if [[ -n "${PYG_WHEEL:-}" ]]; then echo wheel; else echo "${with_metis:-none}"; fi >"$SRC_DIR/checks/metis.txt"
}
