# From 2.14 on no setup.py hands USE_*, BUILD_*, CMAKE_* and others to CMake: CMake asks for them, on every run.
execute_process(
  COMMAND ${Python_EXECUTABLE} -B -m tools.setup_helpers.forward
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  OUTPUT_VARIABLE FORWARDED
  COMMAND_ERROR_IS_FATAL ANY)
cmake_language(EVAL CODE "${FORWARDED}")
