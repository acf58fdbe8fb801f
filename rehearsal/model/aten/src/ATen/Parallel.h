#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <functional>
#include <string>

namespace at {

// Threads that parallel_for may use: OMP_NUM_THREADS if set, else the processors of this machine.
TORCH_API int get_num_threads();
TORCH_API void set_num_threads(int count);
// Calls body(first, last) over disjoint parts of [begin, end) of at least `grain` elements, and waits for all.
// An exception of a part is thrown here.
TORCH_API void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body);
TORCH_API std::string get_parallel_info();

}  // namespace at
