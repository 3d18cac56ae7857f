/* Preloaded into the server (LD_PRELOAD): counts every operation that changes what is on disk below one
 * folder, in all processes and threads, and at the one asked for kills the server or fills the disk.
 *
 * FAULTS_FOLDER names the folder, without links in it; FAULTS_CONTROL a file of `struct control`, which the
 * test maps too. A process that was loaded without them begins to count when it sets them and calls
 * `watch_folder`. The first process that begins, or is forked, after the test asked for it is
 * the server, which is killed with the caller: its other processes have to notice by themselves, as they
 * have to when the kernel's OOM killer strikes.
 *
 * What changes nothing isn't counted: open(O_CREAT) of a file that is there, with nothing to truncate, and
 * unlink of one that isn't. Calls go to the kernel directly, so the 64-bit names are mere aliases: 64-bit
 * Linux only.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "64-bit Linux only");

/* A cache, and written in the background: its operations have no place among the others. */
#define BACKGROUND "/rows"

enum mode { COUNT, KILL, TORN, FULL, SHORT };
enum kind { WRITE, GROW, SYNC, SHRINK }; /* SHRINK needs no space and so never fails on a full disk */

struct control { /* killer.py has the same layout */
    int32_t armed;
    int32_t mode;
    int64_t target; /* the operation to strike at, from 1 */
    int64_t count;
    int32_t server; /* its pid; 0 while the next process is to become it */
    int32_t unused;
    struct { char name[32]; char path[224]; } log[4096];
};

static struct control *control;
static char *folder;

static void claim(void) {
    int32_t none = 0;
    __atomic_compare_exchange_n(&control->server, &none, getpid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Begin to count, if the environment says where. */
__attribute__((constructor)) void watch_folder(void) {
    const char *file = getenv("FAULTS_CONTROL");
    if (!file || !getenv("FAULTS_FOLDER")) return;
    folder = strdup(getenv("FAULTS_FOLDER"));
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED) _exit(99);
    close(fd);
    control = map;
    claim();
    pthread_atfork(NULL, NULL, claim);
}

static int armed(void) { return control && __atomic_load_n(&control->armed, __ATOMIC_SEQ_CST); }

/* Path of `name`, relative to `fd` (AT_FDCWD: the working directory); of `fd` itself if `name` is NULL. */
static void locate(char path[PATH_MAX], int fd, const char *name) {
    char link[64];
    ssize_t length = 0;
    if (!name || name[0] != '/') {
        if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        length = readlink(link, path, PATH_MAX - 1);
        if (length < 0) length = 0;
    }
    path[length] = 0;
    if (name) snprintf(path + length, PATH_MAX - length, "%s%s", length ? "/" : "", name);
}

static int there(int fd, const char *name) {
    struct stat found;
    int saved = errno;
    int result = fstatat(fd, name, &found, AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return result == 0;
}

static _Noreturn void die(void) {
    kill(control->server, SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* What a write does at the point that is struck. */
enum verdict { GO, FAIL, HALF, HALF_THEN_DIE };

static enum verdict strike(const char *call, enum kind kind, const char *path) {
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) || (path[length] && path[length] != '/')) return GO;
    if (!strncmp(path + length, BACKGROUND, strlen(BACKGROUND))) return GO;
    int64_t at = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (at <= (int64_t)(sizeof control->log / sizeof *control->log)) {
        snprintf(control->log[at - 1].name, sizeof control->log->name, "%s", call);
        snprintf(control->log[at - 1].path, sizeof control->log->path, "%s", path + length + !!path[length]);
    }
    if (control->mode == COUNT || at < control->target) return GO;
    if (control->mode == KILL) die();
    if (control->mode == TORN) {
        if (kind == WRITE) return HALF_THEN_DIE;
        die();
    }
    if (control->mode == SHORT && at == control->target && kind == WRITE) return HALF;
    if (kind == SHRINK || (kind == SYNC && at > control->target)) return GO;
    errno = ENOSPC;
    return FAIL;
}

static enum verdict strike_fd(const char *call, enum kind kind, int fd) {
    char path[PATH_MAX];
    if (!armed()) return GO;
    int saved = errno;
    locate(path, fd, NULL);
    errno = saved;
    return strike(call, kind, path);
}

static enum verdict strike_at(const char *call, enum kind kind, int fd, const char *name) {
    char path[PATH_MAX];
    if (!armed()) return GO;
    int saved = errno;
    locate(path, fd, name);
    errno = saved;
    return strike(call, kind, path);
}

/* The call itself unless the verdict is against it; `HALF` is the same call with half of the bytes. */
#define WRITTEN(verdict, WHOLE, HALVED)                  \
    switch (verdict) {                                   \
        case FAIL: return -1;                            \
        case HALF: return HALVED;                        \
        case HALF_THEN_DIE: if (HALVED) {} die();        \
        default: return WHOLE;                           \
    }
#define UNLESS_FAILED(verdict, CALL) return (verdict) == FAIL ? -1 : (CALL)

ssize_t write(int fd, const void *bytes, size_t size) {
    WRITTEN(strike_fd("write", WRITE, fd), syscall(SYS_write, fd, bytes, size),
            syscall(SYS_write, fd, bytes, size / 2))
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    WRITTEN(strike_fd("pwrite", WRITE, fd), syscall(SYS_pwrite64, fd, bytes, size, offset),
            syscall(SYS_pwrite64, fd, bytes, size / 2, offset))
}
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));

ssize_t writev(int fd, const struct iovec *parts, int count) {
    WRITTEN(strike_fd("writev", WRITE, fd), syscall(SYS_writev, fd, parts, count),
            syscall(SYS_write, fd, parts->iov_base, parts->iov_len / 2))
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    WRITTEN(strike_fd("pwritev", WRITE, fd), syscall(SYS_pwritev, fd, parts, count, offset, 0L),
            syscall(SYS_pwrite64, fd, parts->iov_base, parts->iov_len / 2, offset))
}
ssize_t pwritev64(int, const struct iovec *, int, off64_t) __attribute__((alias("pwritev")));

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    WRITTEN(strike_fd("pwritev2", WRITE, fd), syscall(SYS_pwritev2, fd, parts, count, offset, 0L, flags),
            syscall(SYS_pwrite64, fd, parts->iov_base, parts->iov_len / 2, offset))
}
ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("pwritev2")));

ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    WRITTEN(strike_fd("sendfile", WRITE, to), syscall(SYS_sendfile, to, from, offset, size),
            syscall(SYS_sendfile, to, from, offset, size / 2))
}
ssize_t sendfile64(int, int, off64_t *, size_t) __attribute__((alias("sendfile")));

ssize_t copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t size, unsigned flags) {
    WRITTEN(strike_fd("copy_file_range", WRITE, to), syscall(SYS_copy_file_range, from, in, to, out, size, flags),
            syscall(SYS_copy_file_range, from, in, to, out, size / 2, flags))
}

int ftruncate(int fd, off_t size) {
    UNLESS_FAILED(strike_fd("ftruncate", SHRINK, fd), syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));

int truncate(const char *name, off_t size) {
    UNLESS_FAILED(strike_at("truncate", SHRINK, AT_FDCWD, name), syscall(SYS_truncate, name, size));
}
int truncate64(const char *, off64_t) __attribute__((alias("truncate")));

int fallocate(int fd, int mode, off_t offset, off_t size) {
    UNLESS_FAILED(strike_fd("fallocate", GROW, fd), syscall(SYS_fallocate, fd, mode, offset, size));
}
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));

int posix_fallocate(int fd, off_t offset, off_t size) {
    return fallocate(fd, 0, offset, size) ? errno : 0; /* its error is the result */
}
int posix_fallocate64(int, off64_t, off64_t) __attribute__((alias("posix_fallocate")));

/* Not done: SIGKILL loses nothing that the kernel has, and most of the time would go into it. */
int fsync(int fd) { UNLESS_FAILED(strike_fd("fsync", SYNC, fd), 0); }

int fdatasync(int fd) { UNLESS_FAILED(strike_fd("fdatasync", SYNC, fd), 0); }

int linkat(int from, const char *old, int to, const char *new, int flags) {
    UNLESS_FAILED(strike_at("link", GROW, to, new), syscall(SYS_linkat, from, old, to, new, flags));
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int symlinkat(const char *target, int to, const char *new) {
    UNLESS_FAILED(strike_at("symlink", GROW, to, new), syscall(SYS_symlinkat, target, to, new));
}
int symlink(const char *target, const char *new) { return symlinkat(target, AT_FDCWD, new); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    UNLESS_FAILED(strike_at("rename", GROW, to, new), syscall(SYS_renameat2, from, old, to, new, flags));
}
int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int fd, const char *name, int flags) {
    if (!there(fd, name)) return syscall(SYS_unlinkat, fd, name, flags);
    UNLESS_FAILED(strike_at("unlink", SHRINK, fd, name), syscall(SYS_unlinkat, fd, name, flags));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) {
    UNLESS_FAILED(strike_at("rmdir", SHRINK, AT_FDCWD, name), syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
}

int mkdirat(int fd, const char *name, mode_t mode) {
    UNLESS_FAILED(strike_at("mkdir", GROW, fd, name), syscall(SYS_mkdirat, fd, name, mode));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

static int open_at(int fd, const char *name, int flags, mode_t mode) {
    int changes = (flags & O_TMPFILE) == O_TMPFILE || (flags & O_TRUNC) || ((flags & O_CREAT) && !there(fd, name));
    if (armed() && changes && strike_at("open", GROW, fd, name) == FAIL) return -1;
    return syscall(SYS_openat, fd, name, flags, mode);
}

static mode_t mode_of(int flags, va_list *rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(*rest, mode_t) : 0;
}

int open(const char *name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, &rest);
    va_end(rest);
    return open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char *, int, ...) __attribute__((alias("open")));

int openat(int fd, const char *name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, &rest);
    va_end(rest);
    return open_at(fd, name, flags, mode);
}
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));

int creat(const char *name, mode_t mode) { return open_at(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *, mode_t) __attribute__((alias("creat")));
