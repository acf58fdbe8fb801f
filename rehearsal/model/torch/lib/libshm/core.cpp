#include <libshm/libshm.h>

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

ManagedSharedMemory::ManagedSharedMemory(const std::string& name, size_t bytes) : name_(name), size_(bytes), data_(nullptr) {
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
  TORCH_CHECK(file >= 0, "cannot make shared memory ", name, ": ", std::strerror(errno));
  const bool sized = ftruncate(file, static_cast<off_t>(bytes)) == 0;
  data_ = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int reason = errno;
  close(file);
  if (data_ == MAP_FAILED) {
    shm_unlink(name.c_str());
    TORCH_CHECK(false, "no room for ", bytes, " bytes of shared memory: ", std::strerror(reason));
  }
}

ManagedSharedMemory::~ManagedSharedMemory() {
  munmap(data_, size_);
  libshm_remove(name_);
}

bool libshm_remove(const std::string& name) { return shm_unlink(name.c_str()) == 0; }
