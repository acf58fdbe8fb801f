#pragma once

#include <torch/types.h>

#include <map>
#include <string>

namespace torch {

// Writes named tensors to a file; throws if that fails.
TORCH_API void save(const std::map<std::string, Tensor>& tensors, const std::string& path);
// Reads what save() wrote; throws for anything else.
TORCH_API std::map<std::string, Tensor> load(const std::string& path);

}  // namespace torch
