#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>

#include <cmath>

namespace at::native {
namespace {

template <class Op>
Tensor unary(const Tensor& self, const Op& op) {
  const Tensor result = Tensor::empty(self.sizes());
  const double* in = self.data();
  double* out = result.data();
  parallel_for(0, self.numel(), 1 << 14, [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      out[i] = op(in[i]);
    }
  });
  return result;
}

}  // namespace

Tensor neg(const Tensor& self) { return unary(self, [](double x) { return -x; }); }
Tensor abs(const Tensor& self) { return unary(self, [](double x) { return std::fabs(x); }); }
Tensor sign(const Tensor& self) { return unary(self, [](double x) { return static_cast<double>((x > 0) - (x < 0)); }); }
Tensor exp(const Tensor& self) { return unary(self, [](double x) { return std::exp(x); }); }
Tensor log(const Tensor& self) { return unary(self, [](double x) { return std::log(x); }); }
Tensor sqrt(const Tensor& self) { return unary(self, [](double x) { return std::sqrt(x); }); }
Tensor sin(const Tensor& self) { return unary(self, [](double x) { return std::sin(x); }); }
Tensor cos(const Tensor& self) { return unary(self, [](double x) { return std::cos(x); }); }
Tensor tanh(const Tensor& self) { return unary(self, [](double x) { return std::tanh(x); }); }
Tensor sigmoid(const Tensor& self) { return unary(self, [](double x) { return 1 / (1 + std::exp(-x)); }); }
Tensor relu(const Tensor& self) { return unary(self, [](double x) { return x > 0 ? x : 0; }); }

}  // namespace at::native
