# torch._C, which setuptools made up to 2.13
add_library(_C MODULE ${CMAKE_CURRENT_SOURCE_DIR}/csrc/stub.c)
target_link_libraries(_C PRIVATE torch_python Python::Module)
set_target_properties(_C PROPERTIES
  PREFIX "" SUFFIX .${SKBUILD_SOABI}.so LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/torch)
install(TARGETS _C DESTINATION .)
