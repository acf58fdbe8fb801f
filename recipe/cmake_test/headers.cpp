// Includes headers of libtorch that include fmt's: libtorch's requirements must bring these. The rehearsal's model has none.
#if __has_include(<torch/csrc/distributed/c10d/logging.h>)
#include <torch/csrc/distributed/c10d/error.h>
#include <torch/csrc/distributed/c10d/logging.h>
#include <torch/csrc/profiler/unwind/unwind_error.h>
#endif
