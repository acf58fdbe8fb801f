#pragma once

#include <c10/core/Storage.h>
#include <c10/util/Shape.h>

#include <memory>

namespace c10 {

// What autograd hangs onto a tensor; c10 knows no more of it.
struct C10_API AutogradMetaInterface {
  virtual ~AutogradMetaInterface();
};

// A contiguous tensor of doubles.
struct C10_API TensorImpl {
  TensorImpl(Storage storage_, IntList sizes_);

  Storage storage;
  IntList sizes;
  std::unique_ptr<AutogradMetaInterface> autograd;
};

}  // namespace c10
