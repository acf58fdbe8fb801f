#include <libshm/libshm.h>

#include <sys/mman.h>

bool libshm_remove(const char* name) { return shm_unlink(name) == 0; }
