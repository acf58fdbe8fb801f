#include <ATen/NativeFunctions.h>
#include <ATen/native/Lines.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace at::native {
namespace {

// Pairwise, so that the rounding error grows with the logarithm of the length.
template <class Map>
double pairwise(const double* in, int64_t count, const Map& map) {
  if (count <= 128) {
    double lanes[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (int lane = 0; lane < 4; ++lane) {
        lanes[lane] += map(in[i + lane]);
      }
    }
    for (; i < count; ++i) {
      lanes[0] += map(in[i]);
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
  const int64_t half = count / 2;
  return pairwise(in, half, map) + pairwise(in + half, count - half, map);
}

double total(const Tensor& t) {
  return pairwise(t.data(), t.numel(), [](double x) { return x; });
}

}  // namespace

Tensor sum(const Tensor& self) { return Tensor::scalar(total(self)); }

Tensor sum_dim(const Tensor& self, int64_t dim, bool keepdim) {
  const Lines lines(self, dim);
  IntList sizes = self.sizes();
  const auto along = sizes.begin() + c10::wrap_dim(dim, self.dim());
  if (keepdim) {
    *along = 1;
  } else {
    sizes.erase(along);
  }
  const Tensor result = Tensor::empty(sizes);
  std::vector<double> line(static_cast<size_t>(lines.length));
  lines.each([&](int64_t offset, int64_t number) {
    for (int64_t i = 0; i < lines.length; ++i) {
      line[static_cast<size_t>(i)] = self.data()[offset + i * lines.inner];
    }
    result.data()[number] = pairwise(line.data(), lines.length, [](double x) { return x; });
  });
  return result;
}

Tensor mean(const Tensor& self) { return Tensor::scalar(total(self) / static_cast<double>(self.numel())); }

Tensor prod(const Tensor& self) {
  double product = 1;
  std::for_each(self.data(), self.data() + self.numel(), [&](double x) { product *= x; });
  return Tensor::scalar(product);
}

Tensor max(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "max() of no elements");
  return Tensor::scalar(*std::max_element(self.data(), self.data() + self.numel()));
}

Tensor min(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "min() of no elements");
  return Tensor::scalar(*std::min_element(self.data(), self.data() + self.numel()));
}

Tensor cumsum(const Tensor& self, int64_t dim) {
  const Lines lines(self, dim);
  const Tensor result = Tensor::empty(self.sizes());
  lines.each([&](int64_t offset, int64_t) {
    double sum = 0;
    for (int64_t i = 0; i < lines.length; ++i) {
      result.data()[offset + i * lines.inner] = sum += self.data()[offset + i * lines.inner];
    }
  });
  return result;
}

Tensor var(const Tensor& self) {
  const double center = total(self) / static_cast<double>(self.numel());
  const double squares = pairwise(self.data(), self.numel(), [center](double x) { return (x - center) * (x - center); });
  return Tensor::scalar(squares / static_cast<double>(self.numel() - 1));
}

Tensor cov(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2 && self.size(1) > 1, "cov() needs a matrix of variables by observations");
  const int64_t n = self.size(0), m = self.size(1);
  std::vector<double> centered(self.data(), self.data() + self.numel());
  for (int64_t i = 0; i < n; ++i) {
    double* row = centered.data() + i * m;
    const double center = pairwise(row, m, [](double x) { return x; }) / static_cast<double>(m);
    std::for_each(row, row + m, [center](double& x) { x -= center; });
  }
  const Tensor result = Tensor::empty({n, n});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < m; ++k) {
        sum += centered[static_cast<size_t>(i * m + k)] * centered[static_cast<size_t>(j * m + k)];
      }
      result.data()[i * n + j] = sum / static_cast<double>(m - 1);
    }
  }
  return result;
}

}  // namespace at::native
