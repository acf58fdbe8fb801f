/* LD_PRELOAD library: counts write-like calls below a path, and kills the caller at the n-th. A write is done by half.
 *
 * The environment variable KILL_STATE names a file with a struct state, which the tests map, too (kill_sweep.py).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct state {
    int kill_at; /* number of the call, from 1; negative: do not count */
    int count;
    int only; /* process id; 0: all processes */
    char below[512];
    char last[PATH_MAX + 16]; /* the call that was killed */
};
static struct state *state;

__attribute__((constructor)) static void map_state(void) {
    const char *path = getenv("KILL_STATE");
    int file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0) return;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (state == MAP_FAILED) state = NULL;
}

/* Write the absolute path of an open file or of a name below an open folder. */
static void resolve(int at, const char *name, char *out) {
    char link[64], folder[PATH_MAX] = "";
    if (name && name[0] == '/') {
        snprintf(out, PATH_MAX, "%s", name);
        return;
    }
    if (at == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, folder, sizeof folder - 1);
    folder[length < 0 ? 0 : length] = 0;
    size_t kept = strlen(folder);
    snprintf(out, PATH_MAX, "%s", folder);
    if (name) snprintf(out + kept, PATH_MAX - kept, "/%s", name);
}

/* Count a call; return whether its process is to be killed. */
static int counted(const char *what, int at, const char *name) {
    if (!state || state->kill_at < 0 || (state->only && state->only != getpid())) return 0;
    char path[PATH_MAX];
    resolve(at, name, path);
    size_t length = strlen(state->below);
    if (strncmp(path, state->below, length) || (path[length] && path[length] != '/')) return 0;
    if (__sync_add_and_fetch(&state->count, 1) != state->kill_at) return 0;
    snprintf(state->last, sizeof state->last, "%s %s", what, path);
    return 1;
}

static int is_regular(int file) {
    struct stat status;
    return state && state->kill_at >= 0 && !fstat(file, &status) && S_ISREG(status.st_mode);
}

#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define DIE kill(getpid(), SIGKILL)
#define REAL(name) \
    static typeof(&name) real; \
    if (!real) real = dlsym(RTLD_NEXT, #name)
/* A function without a half: killed before it does anything. */
#define WHOLE(type, name, parameters, what, at, path, arguments) \
    type name parameters { \
        REAL(name); \
        if (counted(what, at, path)) DIE; \
        return real arguments; \
    }
#define OPEN(name, parameters, at, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        va_list more; \
        va_start(more, flags); \
        if (flags & (O_CREAT | O_TMPFILE)) mode = va_arg(more, int); \
        va_end(more); \
        REAL(name); \
        if ((flags & WRITES) && counted("open", at, path)) DIE; \
        return real arguments; \
    }
/* A function that moves bytes to a regular file: killed after half of them. */
#define HALF(name, parameters, to, whole, half) \
    ssize_t name parameters { \
        REAL(name); \
        if (to > 2 && is_regular(to) && counted(#name, to, NULL)) { \
            if (real half < 0) DIE; \
            DIE; \
        } \
        return real whole; \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), at, (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), at, (at, path, flags, mode))
WHOLE(int, rename, (const char *from, const char *to), "rename", AT_FDCWD, to, (from, to))
WHOLE(int, renameat, (int at, const char *from, int in, const char *to), "rename", in, to, (at, from, in, to))
WHOLE(int, renameat2, (int at, const char *from, int in, const char *to, unsigned how), "rename", in, to,
      (at, from, in, to, how))
WHOLE(int, link, (const char *from, const char *to), "link", AT_FDCWD, to, (from, to))
WHOLE(int, linkat, (int at, const char *from, int in, const char *to, int how), "link", in, to,
      (at, from, in, to, how))
WHOLE(int, symlink, (const char *target, const char *path), "symlink", AT_FDCWD, path, (target, path))
WHOLE(int, symlinkat, (const char *target, int at, const char *path), "symlink", at, path, (target, at, path))
WHOLE(int, unlink, (const char *path), "unlink", AT_FDCWD, path, (path))
WHOLE(int, unlinkat, (int at, const char *path, int how), "unlink", at, path, (at, path, how))
WHOLE(int, rmdir, (const char *path), "rmdir", AT_FDCWD, path, (path))
WHOLE(int, mkdir, (const char *path, mode_t mode), "mkdir", AT_FDCWD, path, (path, mode))
WHOLE(int, mkdirat, (int at, const char *path, mode_t mode), "mkdir", at, path, (at, path, mode))
WHOLE(int, chmod, (const char *path, mode_t mode), "chmod", AT_FDCWD, path, (path, mode))
WHOLE(int, fchmod, (int file, mode_t mode), "chmod", file, NULL, (file, mode))
WHOLE(int, fchmodat, (int at, const char *path, mode_t mode, int how), "chmod", at, path, (at, path, mode, how))
WHOLE(int, fsync, (int file), "fsync", file, NULL, (file))
WHOLE(int, utimensat, (int at, const char *path, const struct timespec times[2], int how), "utime", at, path,
      (at, path, times, how))
WHOLE(int, futimens, (int file, const struct timespec times[2]), "utime", file, NULL, (file, times))
HALF(write, (int to, const void *data, size_t size), to, (to, data, size), (to, data, size / 2))
HALF(pwrite64, (int to, const void *data, size_t size, off64_t at), to, (to, data, size, at), (to, data, size / 2, at))
HALF(sendfile, (int to, int from, off_t *at, size_t size), to, (to, from, at, size), (to, from, at, size / 2))
HALF(sendfile64, (int to, int from, off64_t *at, size_t size), to, (to, from, at, size), (to, from, at, size / 2))
HALF(copy_file_range, (int from, off64_t *at, int to, off64_t *in, size_t size, unsigned how), to,
     (from, at, to, in, size, how), (from, at, to, in, size / 2, how))
