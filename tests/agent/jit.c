// A JIT compiler of one function, for profilers: `jit seconds NAME [again|frameless]`. It is busy in the
// function for that CPU time once it has read a line, and has its name in /tmp/perf-PID.map, by the number that it knows itself by. With
// `again`, code that was at the same address before has a line above it. With `frameless`, it has no frame
// pointer, as Python's trampolines haven't on x86-64.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// A frame with a call of the function that is the first argument.
#if defined(__x86_64__)
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static const unsigned char frameless[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
#elif defined(__aarch64__)
static const unsigned int code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#define frameless code
#endif

static double until;
static volatile int sum;

static double taken(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) static void spin(void) {
    do {
        for (int i = 0; i < 1000000; i++)
            sum += i;
    } while (taken() < until);
}

int main(int count, char **arguments) {
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    memcpy(made, code, sizeof code);
    if (count > 3 && strcmp(arguments[3], "frameless") == 0)
        memcpy(made, frameless, sizeof frameless);
    __builtin___clear_cache(made, (char *)made + 64);
    if (count > 3 && strcmp(arguments[3], "again") == 0)
        fprintf(map, "%lx 1000 moved_away\n", (unsigned long)made);
    fprintf(map, "%lx %zx %s\n", (unsigned long)made, sizeof frameless, arguments[2]);
    fclose(map);
    puts("busy");
    fflush(stdout);
    getchar();
    until = atof(arguments[1]);
    ((void (*)(void (*)(void)))made)(spin);
    return sum == 1;
}
