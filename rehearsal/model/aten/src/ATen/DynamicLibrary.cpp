#include <ATen/DynamicLibrary.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace at {

DynamicLibrary::DynamicLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_LOCAL | RTLD_NOW)) {
  TORCH_CHECK(handle_ != nullptr, "Error in dlopen: ", dlerror());
}

void* DynamicLibrary::sym(const std::string& name) const {
  void* address = dlsym(handle_, name.c_str());
  TORCH_CHECK(address != nullptr, "Error in dlsym: ", dlerror());
  return address;
}

}  // namespace at
