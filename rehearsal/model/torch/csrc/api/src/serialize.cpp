#include <torch/serialize.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace torch {
namespace {

constexpr char kMagic[8] = {'m', 'o', 'd', 'e', 'l', 'p', 't', '1'};

void put(std::ofstream& out, int64_t value) { out.write(reinterpret_cast<const char*>(&value), sizeof(value)); }

int64_t get(std::ifstream& in) {
  int64_t value = -1;
  in.read(reinterpret_cast<char*>(&value), sizeof(value));
  TORCH_CHECK(in.good() && value >= 0 && value < (int64_t{1} << 40), "the file is damaged");
  return value;
}

}  // namespace

void save(const std::map<std::string, Tensor>& tensors, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out.write(kMagic, sizeof(kMagic));
  put(out, static_cast<int64_t>(tensors.size()));
  for (const auto& [name, tensor] : tensors) {
    put(out, static_cast<int64_t>(name.size()));
    out.write(name.data(), static_cast<std::streamsize>(name.size()));
    put(out, tensor.dim());
    for (const int64_t size : tensor.sizes()) {
      put(out, size);
    }
    out.write(reinterpret_cast<const char*>(tensor.data()), tensor.numel() * static_cast<int64_t>(sizeof(double)));
  }
  out.flush();
  TORCH_CHECK(out.good(), "cannot write ", path);
}

std::map<std::string, Tensor> load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[sizeof(kMagic)] = {};
  in.read(magic, sizeof(magic));
  TORCH_CHECK(in.good() && std::equal(magic, magic + sizeof(magic), kMagic), path, " holds no tensors");
  std::map<std::string, Tensor> tensors;
  for (int64_t left = get(in); left > 0; --left) {
    std::string name(static_cast<size_t>(get(in)), '\0');
    in.read(name.data(), static_cast<std::streamsize>(name.size()));
    IntList sizes(static_cast<size_t>(get(in)));
    for (int64_t& size : sizes) {
      size = get(in);
    }
    const Tensor tensor = Tensor::empty(sizes);
    in.read(reinterpret_cast<char*>(tensor.data()), tensor.numel() * static_cast<int64_t>(sizeof(double)));
    TORCH_CHECK(in.good(), path, " ends too early");
    tensors.emplace(name, tensor);
  }
  return tensors;
}

}  // namespace torch
