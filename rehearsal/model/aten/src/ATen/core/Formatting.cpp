#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdio>

namespace at {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

void append(const Tensor& tensor, size_t level, int64_t& position, size_t width, std::string& out) {
  if (level == tensor.sizes().size()) {
    const std::string text = number(tensor.data()[position++]);
    out.append(width - std::min(width, text.size()), ' ').append(text);
    return;
  }
  out += '[';
  for (int64_t i = 0; i < tensor.sizes()[level]; ++i) {
    if (i > 0) {
      const bool last = level + 1 == tensor.sizes().size();
      out += last ? ", " : ",\n" + std::string(level + 1 + sizeof("tensor(") - 1, ' ');
    }
    append(tensor, level + 1, position, width, out);
  }
  out += ']';
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  size_t width = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    width = std::max(width, number(tensor.data()[i]).size());
  }
  std::string out = "tensor(";
  int64_t position = 0;
  append(tensor, 0, position, width, out);
  return out + ")";
}

}  // namespace at
