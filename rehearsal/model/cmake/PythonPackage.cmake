# From 2.14 on: what setup.py does up to 2.13, besides what scikit-build-core packs by itself.
add_library(_C MODULE torch/csrc/stub.c)
target_link_libraries(_C PRIVATE torch_python Python::Module)
set_target_properties(_C PROPERTIES
  PREFIX "" SUFFIX .${SKBUILD_SOABI}.so
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/torch
  INSTALL_RPATH ${_rpath_portable_origin}/lib)
install(TARGETS _C DESTINATION .)
# .gitignore names it, so that scikit-build-core does not see it
install(FILES torch/version.py DESTINATION .)
