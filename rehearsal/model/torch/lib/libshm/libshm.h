#pragma once

#include <cstddef>
#include <string>

// A named block of shared memory. The creator removes the name; torch_shm_manager does it if the creator was killed.
class __attribute__((visibility("default"))) ManagedSharedMemory {
 public:
  // Makes a block of `bytes` under `name` ("/something"); throws if the name is taken or there is no room.
  ManagedSharedMemory(const std::string& name, size_t bytes);
  ManagedSharedMemory(const ManagedSharedMemory&) = delete;
  ManagedSharedMemory& operator=(const ManagedSharedMemory&) = delete;
  ~ManagedSharedMemory();

  void* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::string name_;
  size_t size_;
  void* data_;
};

// Removes a name; false if there was none.
__attribute__((visibility("default"))) bool libshm_remove(const std::string& name);
