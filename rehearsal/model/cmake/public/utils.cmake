# Compile options of all libraries of the model. As in PyTorch, the last option sets the optimisation, except in Debug builds;
# PyTorch sets -O2. The model's speed does not matter, and -O0 saves a third of a rehearsal's compile time.
function(torch_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<NOT:$<CONFIG:Debug>>:-O0>)
endfunction()

# A library of libtorch: only symbols marked TORCH_API are visible; it is installed, and exported for find_package(Torch).
function(torch_core_library target)
  torch_compile_options(${target})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(${target} PUBLIC $<INSTALL_INTERFACE:include>)
  install(TARGETS ${target} EXPORT Caffe2Targets DESTINATION lib)
endfunction()
