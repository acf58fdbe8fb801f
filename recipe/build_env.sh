# Sourced by every build script: the one place for the environment of PyTorch's own build. It must come out the same in
# staging and in every output that inherits from it: a changed flag recompiles libtorch, and the Python swap refuses it.
# shellcheck shell=bash

phase() { echo "::megabuild:: phase $*"; }

# Where the CMake tree lives. The driver names a folder outside the engine's work folder, which the engine would copy
# twice per output and throw away when interrupted; plain rattler-build leaves it empty and builds in the work folder.
export TORCH_TREE="${TORCH_TREE:-$SRC_DIR}"
export NINJA_STATUS='[%f/%t %es] '
export PYTHONDONTWRITEBYTECODE=1  # stray .pyc of host packages would be captured as files of ours
export PYTHONHASHSEED=0  # pip's byte code: Python 3.10 writes sets in the order of their hashes
export PYTHON="${PYTHON:-$PREFIX/bin/python}"
# Runs what lies beside this file, and PyTorch's code generators. Where Debian's root compiles for another processor,
# $PYTHON is of that one and slow.
script_python="$PYTHON"
if [[ "$provider" == "debian" && "${CMAKE_ARGS:-}" == *-DCMAKE_SYSTEM_NAME=* ]]; then script_python=/usr/bin/python3; fi

# ---- flags: constant over all outputs --------------------------------------------------------------------
freeze_flags() {
    local word frozen=()
    for word in $1; do
        case "$word" in
            # conda's activation puts the package's name into it, and another name is another command line; see below
            -fdebug-prefix-map=*) continue ;;
            # PyTorch chooses the C++ standard itself; its exported symbols must stay visible, its libraries linked
            -std=* | -fvisibility-inlines-hidden | -Wl,--as-needed | -Wl,-dead_strip_dylibs) continue ;;
            # bound lazily: libcuda.so.1 is missing on a machine without a GPU
            -Wl,-z,now) word=-Wl,-z,lazy ;;
        esac
        frozen+=("$word")
    done
    echo "${frozen[*]}"
}
# A name for the environment that is the same in every folder (see compile_cached.sh).
export BUILD_ENV_LINK="${PREFIX%/*}/env"
ln -sfn "$PREFIX" "$BUILD_ENV_LINK"
# Paths in objects (PyTorch's errors name their source file) are the same wherever, whenever and as whichever version they
# were compiled: an object cache does not look at these flags, and may hand out the object of another folder.
prefix_maps=(
    "-ffile-prefix-map=$TORCH_TREE=/usr/local/src/conda/libtorch"
    "-ffile-prefix-map=$PREFIX=/usr/local/src/conda-prefix"
    "-ffile-prefix-map=$BUILD_ENV_LINK=/usr/local/src/conda-prefix"
    # as newer versions of ccache hand them to the compiler, from the build folder; the last that fits counts
    "-ffile-prefix-map=..=/usr/local/src/conda/libtorch"
    "-ffile-prefix-map=../../${BUILD_ENV_LINK#"${TORCH_TREE%/*}/"}=/usr/local/src/conda-prefix"
)
CFLAGS="$(freeze_flags "${CFLAGS:-}") ${prefix_maps[*]}"
CXXFLAGS="$(freeze_flags "${CXXFLAGS:-}") ${prefix_maps[*]} -w"  # warnings are upstream's; they only drown the log
LDFLAGS="$(freeze_flags "${LDFLAGS:-}")"
if [[ "$target_platform" == linux-* ]]; then
    LDFLAGS="$LDFLAGS -Wl,-z,noexecstack"  # glibc >= 2.41 refuses libraries that ask for an executable stack
    # Libraries in lib/ are also opened through links in torch/lib, and glibc takes $ORIGIN from the folder of the link. This
    # path leads from there to lib/. From lib/ itself it leads nowhere: there is no ../utils, and so no way out of $PREFIX.
    LDFLAGS="$LDFLAGS -Wl,-rpath,\\\$ORIGIN/../utils/../../../.."
fi
export CFLAGS CXXFLAGS LDFLAGS

# ---- CMake -------------------------------------------------------------------------------------------------
export CMAKE_GENERATOR=Ninja
export CMAKE_PREFIX_PATH="$PREFIX"
export CMAKE_LIBRARY_PATH="$PREFIX/lib"
export CMAKE_BUILD_TYPE=Release
# What the linker read would be noted by absolute path, which ninja does not take for the library that it makes itself: in a
# compile that goes on, libtorch_cuda would stay older than the libtorch_cpu linked anew beside it, and the swap refuse.
export CMAKE_LINK_DEPENDS_USE_LINKER=OFF
launchers=()
case "$torch_optimization" in
    2) ;;
    0) launchers+=("$RECIPE_DIR/compile_at_O0.sh") ;;
    *) echo "torch_optimization is '$torch_optimization'; it can be 2 or 0" >&2; exit 1 ;;
esac
if [[ -n "${TORCH_CCACHE:-}" ]]; then
    launchers+=("$RECIPE_DIR/compile_cached.sh" "$TORCH_CCACHE")
    # hits whatever folder the tree lies in
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$(dirname "$TORCH_TREE")}" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
    # ninja has the compilers write down what they include: nothing needs to be preprocessed once more for the cache
    export CCACHE_DEPEND=1
    # Headers of packages are hard links: the same package installed once more, for a test or another build, gives them
    # a new ctime. An object that was being compiled meanwhile would not be kept, since a header seems to have changed
    # under it. What really changes has a new mtime, which still counts.
    export CCACHE_SLOPPINESS=include_file_ctime
fi
if ((${#launchers[@]})); then
    launcher="$(IFS=';'; echo "${launchers[*]}")"
    export CMAKE_C_COMPILER_LAUNCHER="$launcher" CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
    if [[ "$cuda_compiler_version" != "None" && "$torch_source" != "model" ]]; then
        export CMAKE_CUDA_COMPILER_LAUNCHER="$launcher"
        # nvcc only calls these, and may be a script itself: for the object cache, what it makes depends on them
        NVCC_PROGRAMS=""
        for program in nvcc cicc cudafe++ ptxas fatbinary nvlink; do
            for folder in "$BUILD_PREFIX/nvvm/bin" "$BUILD_PREFIX/bin" /usr/lib/nvidia-cuda-toolkit/bin /usr/bin; do
                [[ -x "$folder/$program" ]] || continue
                NVCC_PROGRAMS+="${NVCC_PROGRAMS:+:}$folder/$program"
                break
            done
        done
        export NVCC_PROGRAMS
    fi
fi
# conda's CMAKE_ARGS (cross-compiler, sysroot, search roots) must be known before project(), and PyTorch's setup.py knows
# nothing of them: a toolchain file, which CMake takes from the environment, needs no patch.
write_toolchain() {
    local word name
    {
        for word in ${CMAKE_ARGS:-}; do
            [[ "$word" == -D*=* ]] || continue
            name="${word%%=*}"; name="${name#-D}"
            case "${name%%:*}" in
                CMAKE_INSTALL_PREFIX | CMAKE_INSTALL_LIBDIR | CMAKE_BUILD_TYPE) ;;  # PyTorch's own business
                # third_party/ is looked up like a library, and must lie below a search root
                CMAKE_FIND_ROOT_PATH) echo "set(CMAKE_FIND_ROOT_PATH \"${word#*=};$TORCH_TREE\")" ;;
                *) echo "set(${name%%:*} \"${word#*=}\")" ;;
            esac
        done
        if [[ "$cuda_compiler_version" != "None" ]]; then
            for name in CUDAToolkit_ROOT CUDA_TOOLKIT_ROOT_DIR CUDAToolkit_TARGET_DIR; do
                echo "set($name \"${!name}\" CACHE PATH \"where the environment has CUDA\")"
            done
        fi
        if [[ "${build_platform:-$target_platform}" != "$target_platform" ]]; then
            # the host environment's, which the imported target names, cannot run here
            echo "set(CAFFE2_CUSTOM_PROTOC_EXECUTABLE \"$BUILD_PREFIX/bin/protoc\" CACHE FILEPATH \"protoc that runs here\")"
        fi
        # Looked for natively only, and not at all once a BLAS is named: without it complex dot products are 0 or garbage
        # where the BLAS returns complex numbers in the other way.
        echo 'set(BLAS_USE_CBLAS_DOT TRUE CACHE BOOL "complex dot products through CBLAS")'
        if [[ "$provider" == "debian" ]]; then
            echo "set(TORCH_GENERATORS_PYTHON \"$script_python\")"
        elif [[ "$blas_impl" == "generic" ]]; then
            # conda-forge's interface to whatever BLAS is installed: three libraries, none of them called openblas
            name="$PREFIX/lib/lib@${SHLIB_EXT:-.so}"
            echo "set(OpenBLAS_LIB \"${name/@/lapack};${name/@/cblas};${name/@/blas}\" CACHE STRING \"BLAS and LAPACK\")"
        fi
    } >"$1.new"
    # a new time would make CMake run again for nothing
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}
if [[ "$provider" != "debian" || "$script_python" != "$PYTHON" ]]; then
    export CMAKE_TOOLCHAIN_FILE="$TORCH_TREE/conda-toolchain.cmake"
fi
export USE_CCACHE=0  # ours is named above; PyTorch's own search would find another one

# ---- PyTorch -----------------------------------------------------------------------------------------------
export PYTORCH_BUILD_VERSION="$torch_version" PYTORCH_BUILD_NUMBER=0  # 0: no ".post" in the version
export PACKAGE_TYPE=conda BUILD_TEST=0 INSTALL_TEST=0
export USE_NUMA=0 USE_ITT=0 USE_CUFILE=0 USE_MPI=0 USE_ROCM=0 USE_XPU=0
export BUILD_CUSTOM_PROTOBUF=OFF
export _GLIBCXX_USE_CXX11_ABI=1
export MAX_JOBS="${MAX_JOBS:-$CPU_COUNT}"

case "$blas_impl" in
    mkl) export BLAS=MKL ;;
    generic) export BLAS=OpenBLAS OpenBLAS_HOME="$PREFIX" ;;
    *) echo "blas_impl is '$blas_impl'; it can be mkl or generic" >&2; exit 1 ;;
esac

if [[ "$provider" == "debian" ]]; then
    # Debian's source holds no third_party: everything comes from the system, and what is off has no package there or
    # would more than double the compile.
    export USE_SYSTEM_LIBS=ON ONNX_NAMESPACE=onnx USE_GFLAGS=OFF USE_GLOG=OFF
    export USE_DISTRIBUTED=0 USE_GLOO=0 USE_TENSORPIPE=0 USE_MKLDNN=0 USE_FBGEMM=0 USE_KINETO=0 USE_VALGRIND=0
    export USE_XNNPACK=0 USE_NNPACK=0 USE_QNNPACK=0 USE_PYTORCH_QNNPACK=0
    unset OpenBLAS_HOME
else
    # fmt is PyTorch's own: kineto does not compile against a newer one
    export USE_SYSTEM_SLEEF=1 USE_SYSTEM_PYBIND11=1 USE_SYSTEM_EIGEN_INSTALL=1
    export USE_MKLDNN=1 USE_DISTRIBUTED=1
    export PYTORCH_BLAS_USE_CBLAS_DOT=ON  # what FindBLAS asks when cross-compiling; natively see write_toolchain
    [[ "$target_platform" == osx-arm64 ]] && export USE_MKLDNN=0
    [[ "$target_platform" == osx-64 ]] && export CFLAGS="$CFLAGS -DTARGET_OS_OSX=1" CXXFLAGS="$CXXFLAGS -DTARGET_OS_OSX=1"
fi

if [[ "$cuda_compiler_version" == "None" ]]; then
    export USE_CUDA=0 TORCH_CUDA_ARCH_LIST=""
else
    export USE_CUDA=1 TORCH_CUDA_ARCH_LIST="$torch_cuda_arch_list"
    export TORCH_NVCC_FLAGS="-Xfatbin -compress-all"
    [[ "$cuda_compiler_version" == 13.* ]] && TORCH_NVCC_FLAGS+=" -compress-mode=size"
    # the host compiler's preprocessor writes the names of files
    export CMAKE_CUDA_FLAGS="-w -Xptxas -w ${prefix_maps[*]/#/-Xcompiler=}"
    export CUDA_VERSION="$cuda_compiler_version" USE_STATIC_CUDNN=0
    # libtorch_cuda knows nothing of MAGMA; the linear algebra library is made in both flavours (see patches/)
    export USE_MAGMA=OFF BUILD_LAZY_CUDA_LINALG=ON BUILD_LINALG_MAGMA=ON
    # from 2.15 on: kernels exported with a torch that is installed, and libtorch_cuda linked again (see README.md)
    export TORCH_NATIVE_AOT=0
    # PyTorch asks two different modules where CUDA is; both must answer the same (see write_toolchain).
    if [[ "$provider" == "debian" ]]; then
        export CUDAToolkit_ROOT=/usr CUDA_TOOLKIT_ROOT_DIR=/usr MAGMA_HOME=/usr
        unset NVCC_APPEND_FLAGS  # names the host compiler, which CMake does by itself
        # no package of Debian's, but from PyPI
        export USE_CUDNN=1 CUDNN_ROOT="$PREFIX" CUDNN_INCLUDE_DIR="$PREFIX/include" CUDNN_LIBRARY="$PREFIX/lib/libcudnn.so"
        # not in Debian, and attention's kernels alone take longer than all others together
        export USE_NCCL=0 USE_CUFILE=0 USE_CUSPARSELT=0 USE_CUDSS=0 USE_FLASH_ATTENTION=0 USE_MEM_EFF_ATTENTION=0
    else
        case "$target_platform" in
            linux-64) cuda_target=x86_64-linux ;;
            linux-aarch64)
                cuda_target=sbsa-linux
                [[ ! -d "$PREFIX/targets/aarch64-linux" ]] || cuda_target=aarch64-linux  # Jetson Orin's
                export USE_PRIORITIZED_TEXT_FOR_LD=1 ;;
            *) echo "no CUDA build for $target_platform" >&2; exit 1 ;;
        esac
        export CUDAToolkit_ROOT="$PREFIX" CUDA_TOOLKIT_ROOT_DIR="$PREFIX" CUDAToolkit_TARGET_DIR="$PREFIX/targets/$cuda_target"
        export MAGMA_HOME="$PREFIX" USE_CUFILE=1 USE_SYSTEM_NVTX=1
        export USE_SYSTEM_NCCL=1 USE_STATIC_NCCL=0 NCCL_ROOT_DIR="$PREFIX" NCCL_INCLUDE_DIR="$PREFIX/include"
    fi
fi
