/* Preloaded into the server (LD_PRELOAD): reads of the catalog fail with EIO, as often as the file that
 * FAILING_READS names says: a 32-bit number, which counts down. 64-bit Linux only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int32_t *left;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAILING_READS");
    int file = name ? open(name, O_RDWR) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        left = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
}

static int is_catalog(int file) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = '\0';
    return strstr(path, "/catalog.sqlite3") != NULL;
}

ssize_t pread64(int file, void *buffer, size_t size, off_t offset) {
    if (left && *left > 0 && is_catalog(file) && __sync_fetch_and_sub(left, 1) > 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, file, buffer, size, offset);
}
