#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace c10 {

using IntList = std::vector<int64_t>;

// Number of elements of a shape.
C10_API int64_t numel(const IntList& sizes);
// Strides, in elements, of a contiguous tensor.
C10_API IntList contiguous_strides(const IntList& sizes);
// The shape two shapes broadcast to; throws if they do not.
C10_API IntList broadcast(const IntList& left, const IntList& right);
// Strides for reading a tensor of shape `from` as if it had shape `to`: 0 where it repeats.
C10_API IntList broadcast_strides(const IntList& from, const IntList& to);
// A dimension counted from either end, as a plain index.
C10_API int64_t wrap_dim(int64_t dim, int64_t rank);
C10_API std::string to_string(const IntList& sizes);

}  // namespace c10
