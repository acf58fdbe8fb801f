#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10 {

using IntList = std::vector<int64_t>;

// Number of elements of a shape.
C10_API int64_t numel(const IntList& sizes);
C10_API std::string to_string(const IntList& sizes);

// Base class of the data that autograd adds to a tensor.
struct C10_API AutogradMetaInterface {
  virtual ~AutogradMetaInterface();
};

// A contiguous tensor of doubles; several may share them.
struct C10_API TensorImpl {
  TensorImpl(std::shared_ptr<double[]> data_, IntList sizes_);

  std::shared_ptr<double[]> data;
  IntList sizes;
  std::unique_ptr<AutogradMetaInterface> autograd;
};

}  // namespace c10
