#include <ATen/NativeFunctions.h>
#include <ATen/native/Broadcast.h>

#include <algorithm>

namespace at::native {
namespace {

IntList broadcast(const IntList& left, const IntList& right) {
  IntList result = left.size() < right.size() ? right : left;
  const IntList& other = left.size() < right.size() ? left : right;
  for (size_t back = 1; back <= other.size(); ++back) {
    int64_t& size = result[result.size() - back];
    const int64_t wanted = other[other.size() - back];
    TORCH_CHECK(size == wanted || size == 1 || wanted == 1, "shapes ", c10::to_string(left), " and ", c10::to_string(right),
                " do not broadcast");
    size = size == 1 ? wanted : size;
  }
  return result;
}

// Applies op(x, y) to all pairs of elements, with broadcasting.
template <class Op>
Tensor elementwise(const Tensor& a, const Tensor& b, const Op& op) {
  const Tensor result = Tensor::empty(broadcast(a.sizes(), b.sizes()));
  for (int64_t i = 0; i < result.numel(); ++i) {
    const int64_t left = broadcast_offset(i, result.sizes(), a.sizes());
    const int64_t right = broadcast_offset(i, result.sizes(), b.sizes());
    result.data()[i] = op(a.data()[left], b.data()[right]);
  }
  return result;
}

}  // namespace

Tensor add(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double x, double y) { return x + y; });
}
Tensor sub(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double x, double y) { return x - y; });
}
Tensor mul(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double x, double y) { return x * y; });
}
Tensor ne(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double x, double y) { return x != y ? 1.0 : 0.0; });
}

}  // namespace at::native
