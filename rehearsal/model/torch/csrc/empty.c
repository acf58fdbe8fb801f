/* libtorch_global_deps has no code: it only links other libraries. */
typedef int torch_global_deps;
