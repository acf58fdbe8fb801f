# Sourced by every build script: sets the environment of PyTorch's own build. The result must be the same in staging and in
# every output that inherits from it: a changed flag recompiles libtorch, and the Python swap refuses it.
# shellcheck shell=bash

phase() { echo "::megabuild:: phase $*"; }

# The folder of the CMake tree. The driver names one outside the engine's work folder, which the engine would copy twice per
# output and delete when interrupted. Without the driver, the tree is in the work folder.
export TORCH_TREE="${TORCH_TREE:-$SRC_DIR}"
export NINJA_STATUS='[%f/%t %es] '
export PYTHONDONTWRITEBYTECODE=1  # a new .pyc of a host package would be packed into ours
export PYTHONHASHSEED=0  # makes pip's byte code reproducible: Python 3.10 writes sets in the order of their hashes
export PYTHON="${PYTHON:-$PREFIX/bin/python}"
# Set if the compiled programs are for another machine. $PYTHON runs in any case: cross-python_* makes it this machine's, with
# the facts of the other one's.
is_cross=""
if [[ "${build_platform:-$target_platform}" != "$target_platform" ]]; then is_cross=yes; fi

# ---- flags: constant over all outputs --------------------------------------------------------------------
freeze_flags() {
    local word frozen=()
    for word in $1; do
        case "$word" in
            # contains the package's name, which would change the command lines; prefix_maps below replace this flag
            -fdebug-prefix-map=*) continue ;;
            # PyTorch chooses the C++ standard itself; its symbols must stay visible, and its libraries must stay linked
            -std=* | -fvisibility-inlines-hidden | -Wl,--as-needed | -Wl,-dead_strip_dylibs) continue ;;
            # lazy binding, because libcuda.so.1 is missing on a machine without a GPU
            -Wl,-z,now) word=-Wl,-z,lazy ;;
        esac
        frozen+=("$word")
    done
    echo "${frozen[*]}"
}
# A link to the environment: a path whose end does not differ between work folders (compile_cached.sh).
export BUILD_ENV_LINK="${PREFIX%/*}/env"
ln -sfn "$PREFIX" "$BUILD_ENV_LINK"
# PyTorch's errors name their source file. These flags make the paths in objects independent of folder and version: an object
# cache ignores the flags, and may return an object that was compiled in another folder.
prefix_maps=(
    "-ffile-prefix-map=$TORCH_TREE=/usr/local/src/conda/libtorch"
    "-ffile-prefix-map=$PREFIX=/usr/local/src/conda-prefix"
    "-ffile-prefix-map=$BUILD_ENV_LINK=/usr/local/src/conda-prefix"
    # newer versions of ccache pass paths relative to the build folder; the last map that matches counts
    "-ffile-prefix-map=..=/usr/local/src/conda/libtorch"
    "-ffile-prefix-map=../../${BUILD_ENV_LINK#"${TORCH_TREE%/*}/"}=/usr/local/src/conda-prefix"
)
CFLAGS="$(freeze_flags "${CFLAGS:-}") ${prefix_maps[*]}"
CXXFLAGS="$(freeze_flags "${CXXFLAGS:-}") ${prefix_maps[*]} -w"  # upstream's warnings would hide errors in the log
LDFLAGS="$(freeze_flags "${LDFLAGS:-}")"
if [[ "$target_platform" == linux-* ]]; then
    LDFLAGS="$LDFLAGS -Wl,-z,noexecstack"  # glibc >= 2.41 refuses libraries that ask for an executable stack
    # A direct branch reaches 128 MiB on ARM. GNU ld groups 127 MiB with the stubs of longer branches, which take more than
    # the rest: libtorch_cpu of PyTorch 2.6 at -O0, 129 MiB, did not link.
    [[ "$target_platform" == linux-aarch64 ]] && LDFLAGS="$LDFLAGS -Wl,--stub-group-size=100000000"
    # Libraries in lib/ are also opened through links in torch/lib, and glibc resolves $ORIGIN to the folder of the link. This
    # path leads from torch/lib to lib/. From lib/ it leads nowhere, because ../utils does not exist, so never out of $PREFIX.
    LDFLAGS="$LDFLAGS -Wl,-rpath,\\\$ORIGIN/../utils/../../../.."
fi
export CFLAGS CXXFLAGS LDFLAGS

# ---- CMake -------------------------------------------------------------------------------------------------
export CMAKE_GENERATOR=Ninja
export CMAKE_PREFIX_PATH="$PREFIX"
export CMAKE_LIBRARY_PATH="$PREFIX/lib"
export CMAKE_BUILD_TYPE=Release
# With ON, the linker records its inputs by absolute path, which ninja does not match with its own outputs. In a resumed compile,
# libtorch_cuda would then stay older than the relinked libtorch_cpu, and the Python swap would refuse the tree.
export CMAKE_LINK_DEPENDS_USE_LINKER=OFF
launchers=()
case "$torch_optimization" in
    2) ;;
    0) launchers+=("$RECIPE_DIR/compile_at_O0.sh") ;;
    *) echo "torch_optimization=$torch_optimization: must be 2 or 0" >&2; exit 1 ;;
esac
if [[ -n "${TORCH_CCACHE:-}" ]]; then
    launchers+=("$RECIPE_DIR/compile_cached.sh" "$TORCH_CCACHE")
    # hits do not depend on the tree's folder
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$(dirname "$TORCH_TREE")}" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
    # ninja makes the compilers list their headers, so the cache need not preprocess
    export CCACHE_DEPEND=1
    # Packages' headers are hard links: a second installation of the same package, for a test or another build, changes their
    # ctime. ccache would then not store objects that are being compiled. A header that really changes has a new mtime, which
    # still counts.
    export CCACHE_SLOPPINESS=include_file_ctime
fi
if ((${#launchers[@]})); then
    launcher="$(IFS=';'; echo "${launchers[*]}")"
    export CMAKE_C_COMPILER_LAUNCHER="$launcher" CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
    if [[ "$cuda_compiler_version" != "None" && "$torch_source" != "model" ]]; then
        export CMAKE_CUDA_COMPILER_LAUNCHER="$launcher"
    fi
fi
# CMake must know conda's CMAKE_ARGS (cross-compiler, sysroot, search roots) before project(), but PyTorch's setup.py ignores
# them. CMake reads a toolchain file named in the environment: that needs no patch.
write_toolchain() {
    local word name
    {
        for word in ${CMAKE_ARGS:-}; do
            [[ "$word" == -D*=* ]] || continue
            name="${word%%=*}"; name="${name#-D}"
            case "${name%%:*}" in
                CMAKE_INSTALL_PREFIX | CMAKE_INSTALL_LIBDIR | CMAKE_BUILD_TYPE) ;;  # PyTorch sets these itself
                # CMake searches third_party/ like libraries: it must be below a search root
                CMAKE_FIND_ROOT_PATH) echo "set(CMAKE_FIND_ROOT_PATH \"${word#*=};$TORCH_TREE\")" ;;
                *) echo "set(${name%%:*} \"${word#*=}\")" ;;
            esac
        done
        if [[ "$cuda_compiler_version" != "None" ]]; then
            for name in CUDAToolkit_ROOT CUDA_TOOLKIT_ROOT_DIR CUDAToolkit_TARGET_DIR; do
                echo "set($name \"${!name}\" CACHE PATH \"where the environment has CUDA\")"
            done
        fi
        if [[ -n "$is_cross" ]]; then
            # the imported target names the host environment's protoc, which cannot run on this machine
            name="$BUILD_PREFIX/bin/protoc"
            if [[ "$provider" == "debian" ]]; then name=/usr/bin/protoc; fi
            echo "set(CAFFE2_CUSTOM_PROTOC_EXECUTABLE \"$name\" CACHE FILEPATH \"protoc that runs here\")"
            # FindPython asks python3.X-config instead of the interpreter, and not every Python has this program
            name="$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
            echo "set(Python_INCLUDE_DIR \"$name\" CACHE PATH \"Python's headers\")"
        fi
        # PyTorch tests this only in native builds without a named BLAS. If a BLAS returns complex numbers in the other way,
        # complex dot products are 0 or garbage without it.
        echo 'set(BLAS_USE_CBLAS_DOT TRUE CACHE BOOL "complex dot products through CBLAS")'
        if [[ "$provider" != "debian" && "$blas_impl" == "generic" ]]; then
            # conda-forge's interface to the installed BLAS is three libraries, none of them called openblas
            name="$PREFIX/lib/lib@${SHLIB_EXT:-.so}"
            echo "set(OpenBLAS_LIB \"${name/@/lapack};${name/@/cblas};${name/@/blas}\" CACHE STRING \"BLAS and LAPACK\")"
        fi
    } >"$1.new"
    # an unchanged file keeps its date: a new date would make CMake run again
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}
if [[ "$provider" != "debian" || -n "$is_cross" ]]; then
    export CMAKE_TOOLCHAIN_FILE="$TORCH_TREE/conda-toolchain.cmake"
fi
export USE_CCACHE=0  # the launchers above name the object cache; PyTorch's search could find another one

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
    *) echo "blas_impl=$blas_impl: must be mkl or generic" >&2; exit 1 ;;
esac

if [[ "$provider" == "debian" ]]; then
    # Debian's source has no third_party: all libraries come from the system. The features that are off have no package in
    # Debian, or would more than double the compile time.
    export USE_SYSTEM_LIBS=ON ONNX_NAMESPACE=onnx USE_GFLAGS=OFF USE_GLOG=OFF
    export USE_DISTRIBUTED=0 USE_GLOO=0 USE_TENSORPIPE=0 USE_FBGEMM=0 USE_KINETO=0 USE_VALGRIND=0
    export USE_XNNPACK=0 USE_NNPACK=0 USE_QNNPACK=0 USE_PYTORCH_QNNPACK=0
    export USE_MKLDNN=1  # the system's oneDNN and ideep; without them conv2d takes three times as long
    unset OpenBLAS_HOME
else
    export USE_SYSTEM_SLEEF=1 USE_SYSTEM_PYBIND11=1 USE_SYSTEM_EIGEN_INSTALL=1
    export USE_SYSTEM_FMT=1  # patches/official/0009
    export USE_MKLDNN=1 USE_DISTRIBUTED=1
    export PYTORCH_BLAS_USE_CBLAS_DOT=ON  # FindBLAS reads it when cross-compiling; for native builds see write_toolchain
    [[ "$target_platform" == osx-arm64 ]] && export USE_MKLDNN=0
    [[ "$target_platform" == osx-64 ]] && export CFLAGS="$CFLAGS -DTARGET_OS_OSX=1" CXXFLAGS="$CXXFLAGS -DTARGET_OS_OSX=1"
fi

if [[ "$cuda_compiler_version" == "None" ]]; then
    export USE_CUDA=0 TORCH_CUDA_ARCH_LIST=""
else
    export USE_CUDA=1 TORCH_CUDA_ARCH_LIST="$torch_cuda_arch_list"
    export TORCH_NVCC_FLAGS="-Xfatbin -compress-all"
    [[ "$cuda_compiler_version" == 13.* ]] && TORCH_NVCC_FLAGS+=" -compress-mode=size"
    # -Xcompiler, because the host compiler's preprocessor writes the file names
    export CMAKE_CUDA_FLAGS="-w -Xptxas -w ${prefix_maps[*]/#/-Xcompiler=}"
    export CUDA_VERSION="$cuda_compiler_version" USE_STATIC_CUDNN=0
    # libtorch_cuda does not use MAGMA; the linear algebra library is built in both flavours (see patches/)
    export USE_MAGMA=OFF BUILD_LAZY_CUDA_LINALG=ON BUILD_LINALG_MAGMA=ON
    # from 2.15 on, these kernels would need an installed torch, and a second link of libtorch_cuda (see README.md)
    export TORCH_NATIVE_AOT=0
    # Two CMake modules search CUDA for PyTorch; both must find the same one (see write_toolchain).
    if [[ "$provider" == "debian" ]]; then
        export CUDAToolkit_ROOT=/usr CUDA_TOOLKIT_ROOT_DIR=/usr MAGMA_HOME=/usr
        unset NVCC_APPEND_FLAGS  # names the host compiler, but CMake chooses it
        # cuDNN comes from PyPI: Debian has no package of it
        export USE_CUDNN=1 CUDNN_ROOT="$PREFIX" CUDNN_INCLUDE_DIR="$PREFIX/include" CUDNN_LIBRARY="$PREFIX/lib/libcudnn.so"
        # the libraries are not in Debian; the attention kernels take longer to compile than all others together
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
