// Preloaded into programs: files below $NO_LOCKS_BELOW have no locks, as on Lustre without -o flock, and folders below
// $NO_LINKS_BELOW take no symbolic links, as on FAT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int starts_with_value_of(const char *path, const char *variable) {
  const char *folder = getenv(variable);
  return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_file_below(int file, const char *variable) {
  char name[32];
  char path[PATH_MAX] = "";
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  return readlink(name, path, sizeof path - 1) > 0 && starts_with_value_of(path, variable);
}

int flock(int file, int operation) {
  if (is_file_below(file, "NO_LOCKS_BELOW")) {
    errno = ENOLCK;
    return -1;
  }
  int (*original)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return original(file, operation);
}

int symlinkat(const char *target, int folder, const char *link) {
  if (starts_with_value_of(link, "NO_LINKS_BELOW") || is_file_below(folder, "NO_LINKS_BELOW")) {
    errno = EPERM;
    return -1;
  }
  int (*original)(const char *, int, const char *) =
      (int (*)(const char *, int, const char *))dlsym(RTLD_NEXT, "symlinkat");
  return original(target, folder, link);
}

int symlink(const char *target, const char *link) { return symlinkat(target, AT_FDCWD, link); }
