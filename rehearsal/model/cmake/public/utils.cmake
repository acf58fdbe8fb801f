# Compile options of every library of ours. PyTorch optimises whatever the build type says, but for Debug.
function(torch_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<NOT:$<CONFIG:Debug>>:-O2>)
endfunction()

# A library of libtorch: hidden symbols but for those marked TORCH_API, installed, and known to find_package(Torch).
function(torch_core_library target)
  torch_compile_options(${target})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(${target} PUBLIC $<INSTALL_INTERFACE:include>)
  install(TARGETS ${target} EXPORT Caffe2Targets DESTINATION lib)
endfunction()
