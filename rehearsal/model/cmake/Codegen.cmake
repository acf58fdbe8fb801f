# Operators are declared once, in native_functions.yaml; torchgen generates C++ and bindings from it.
set(NATIVE_FUNCTIONS ${PROJECT_SOURCE_DIR}/aten/src/ATen/native/native_functions.yaml)
set(TORCHGEN_OUTPUT ${CMAKE_BINARY_DIR}/aten/src/ATen)
set(GENERATED_CXX_CORE ${TORCHGEN_OUTPUT}/Functions.cpp)
set(GENERATED_H_CORE ${TORCHGEN_OUTPUT}/Functions.h ${TORCHGEN_OUTPUT}/NativeFunctions.h)
set(GENERATED_CXX_PYTHON ${TORCHGEN_OUTPUT}/python_torch_functions.cpp)

add_custom_command(
  OUTPUT ${GENERATED_CXX_CORE} ${GENERATED_H_CORE} ${GENERATED_CXX_PYTHON}
  COMMAND "${Python_EXECUTABLE}" -B -m torchgen.gen ${NATIVE_FUNCTIONS} ${TORCHGEN_OUTPUT}
  DEPENDS ${NATIVE_FUNCTIONS} ${PROJECT_SOURCE_DIR}/torchgen/gen.py
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "Generating operators"
  VERBATIM)
add_custom_target(generate-torch-sources DEPENDS ${GENERATED_CXX_CORE} ${GENERATED_H_CORE} ${GENERATED_CXX_PYTHON})
