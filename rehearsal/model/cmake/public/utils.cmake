# Compile options of every library of ours. As PyTorch does, it has the last word on optimisation, but for Debug; PyTorch's is -O2.
# Nobody runs the model for its speed, and this takes a third off a rehearsal's compiles.
function(torch_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<NOT:$<CONFIG:Debug>>:-O0>)
endfunction()

# A library of libtorch: hidden symbols but for those marked TORCH_API, installed, and known to find_package(Torch).
function(torch_core_library target)
  torch_compile_options(${target})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(${target} PUBLIC $<INSTALL_INTERFACE:include>)
  install(TARGETS ${target} EXPORT Caffe2Targets DESTINATION lib)
endfunction()
