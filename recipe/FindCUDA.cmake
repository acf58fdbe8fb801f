# Implements find_package(CUDA) with find_package(CUDAToolkit).
#
# PyTorch's CMake files, in its own build and in every project that uses find_package(Torch), search CUDA with a copy of
# FindCUDA, which CMake itself has removed. That copy expects include/ and lib/ next to nvcc's folder, and fails if CUDA
# is below targets/<triplet>/, as in conda-forge's packages. This module replaces it, and sets the variables that PyTorch
# and tensorpipe read.
include(FindPackageHandleStandardArgs)

find_package(CUDAToolkit QUIET)
get_filename_component(_cuda_home "${CUDAToolkit_BIN_DIR}" DIRECTORY)
if(NOT CUDAToolkit_FOUND)
  # PyTorch's copy of FindCUDAToolkit looks below targets/ only when cross-compiling
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(_cuda_triplets sbsa-linux aarch64-linux)
  else()
    set(_cuda_triplets x86_64-linux)
  endif()
  foreach(_cuda_root IN ITEMS "${CUDAToolkit_ROOT}" "${_cuda_home}")
    foreach(_cuda_triplet IN LISTS _cuda_triplets)
      if(NOT CUDAToolkit_FOUND AND EXISTS "${_cuda_root}/targets/${_cuda_triplet}/include/cuda_runtime.h")
        set(CUDAToolkit_TARGET_DIR "${_cuda_root}/targets/${_cuda_triplet}")
        list(APPEND CMAKE_PREFIX_PATH "${CUDAToolkit_TARGET_DIR}")
        find_package(CUDAToolkit QUIET)
      endif()
    endforeach()
  endforeach()
endif()

if(CUDAToolkit_FOUND)
  set(CUDA_VERSION_MAJOR "${CUDAToolkit_VERSION_MAJOR}")
  set(CUDA_VERSION_MINOR "${CUDAToolkit_VERSION_MINOR}")
  set(CUDA_VERSION "${CUDA_VERSION_MAJOR}.${CUDA_VERSION_MINOR}")
  set(CUDA_VERSION_STRING "${CUDA_VERSION}")
  set(CUDA_INCLUDE_DIRS "${CUDAToolkit_INCLUDE_DIRS}")
  set(CUDA_TOOLKIT_INCLUDE "${CUDAToolkit_INCLUDE_DIRS}")
  set(CUDA_NVCC_EXECUTABLE "${CUDAToolkit_NVCC_EXECUTABLE}")
  set(CUDA_LIBRARIES CUDA::cudart)
  if(NOT CUDA_TOOLKIT_ROOT_DIR)
    # a cache entry, because PyTorch's setup.py reads it from the cache
    set(CUDA_TOOLKIT_ROOT_DIR "${_cuda_home}" CACHE PATH "where CUDA is")
  endif()
  # the function that converts names of architectures to nvcc's options
  include("${CMAKE_CURRENT_LIST_DIR}/upstream/FindCUDA/select_compute_arch.cmake")
endif()

find_package_handle_standard_args(CUDA
  REQUIRED_VARS CUDA_TOOLKIT_ROOT_DIR CUDA_NVCC_EXECUTABLE CUDA_INCLUDE_DIRS
  VERSION_VAR CUDA_VERSION)
