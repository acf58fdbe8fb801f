#pragma once

#include <c10/macros/Export.h>

#include <string>

namespace at {

// A shared library opened at run time. It stays open: what it registered may be called until the program ends.
class TORCH_API DynamicLibrary {
 public:
  // Throws c10::Error with the loader's message.
  explicit DynamicLibrary(const std::string& name);
  // Address of a symbol; throws if there is none.
  void* sym(const std::string& name) const;

 private:
  void* handle_;
};

}  // namespace at
