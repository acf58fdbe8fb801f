# What PyTorch's CMake takes from the environment from 2.14 on, and setup.py handed to it before: on every run of CMake, and
# with force. The interpreter's packages come first in the search.
function(take name value)
  if(NOT "${${name}}" STREQUAL "${value}")
    set(${name} "${value}" CACHE STRING "from the environment" FORCE)
  endif()
endfunction()
file(WRITE ${CMAKE_BINARY_DIR}/environment.py [=[
import os, sysconfig
also = {"BLAS", "GENERIC_BLAS_LIBRARIES", "INSTALL_TEST", "ONNX_NAMESPACE"}
for name, value in os.environ.items():
    if name.startswith(("USE_", "BUILD_", "CMAKE_")) or name in also:
        print(f"take({name} [==[{value}]==])")
print(f'list(PREPEND CMAKE_PREFIX_PATH [==[{sysconfig.get_path("purelib")}]==])')
print('list(REMOVE_DUPLICATES CMAKE_PREFIX_PATH)')
]=])
execute_process(
  COMMAND ${Python_EXECUTABLE} -B ${CMAKE_BINARY_DIR}/environment.py
  OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
cmake_language(EVAL CODE "${said}")
take(TORCH_BUILD_VERSION "$ENV{PYTORCH_BUILD_VERSION}")
