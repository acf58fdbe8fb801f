find_package(Threads REQUIRED)
# the interpreter also generates code; the other components are for the Python side only
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)
if(CMAKE_CROSSCOMPILING AND NOT Python_SOABI)  # as in the recipe's patch for PyTorch
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "from sysconfig import get_config_var as get; print(get('SOABI'), end='')"
    OUTPUT_VARIABLE Python_SOABI COMMAND_ERROR_IS_FATAL ANY)
endif()
find_package(pybind11 CONFIG REQUIRED)
add_library(pybind::pybind11 INTERFACE IMPORTED)
target_include_directories(pybind::pybind11 SYSTEM INTERFACE ${pybind11_INCLUDE_DIRS})
target_link_libraries(pybind::pybind11 INTERFACE Python::Module)

# ---- fake CUDA: only its version is needed
if(USE_CUDA)
  set(CUDA_VERSION "$ENV{CUDA_VERSION}" CACHE STRING "CUDA version the packages are for")
  if(NOT CUDA_VERSION)
    message(FATAL_ERROR "USE_CUDA needs a CUDA_VERSION, in the environment or in CMAKE_ARGS")
  endif()
  # PyTorch's notation (9.0+PTX) to nvcc's (sm_90 compute_90), as torch.cuda.get_arch_list() returns it
  string(REPLACE "." "" TORCH_CUDA_ARCHS "${TORCH_CUDA_ARCH_LIST}")
  string(REGEX REPLACE "([0-9]+)\\+PTX" "\\1;compute_\\1" TORCH_CUDA_ARCHS "${TORCH_CUDA_ARCHS}")
  string(REGEX REPLACE "(^|;)([0-9]+)" "\\1sm_\\2" TORCH_CUDA_ARCHS "${TORCH_CUDA_ARCHS}")
  string(REPLACE ";" " " TORCH_CUDA_ARCHS "${TORCH_CUDA_ARCHS}")
else()
  set(CUDA_VERSION "")
endif()
