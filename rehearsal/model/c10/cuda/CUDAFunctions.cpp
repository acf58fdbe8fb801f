#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace c10::cuda {

int device_count() noexcept { return 0; }

void set_device(int index) { TORCH_CHECK(false, "no CUDA device ", index, ": this is a model of PyTorch, without GPU code"); }

}  // namespace c10::cuda
