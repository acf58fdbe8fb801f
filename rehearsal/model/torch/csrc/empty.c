/* libtorch_global_deps has no code: it exists for what it links to. */
typedef int torch_global_deps;
