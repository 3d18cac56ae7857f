// A program that makes system calls as fast as it can, in four functions, one after another: of 20,000 calls,
// `ten` makes 10,000, `six` 6,000, `three` 3,000 and `one` 1,000. It writes a line when it begins.
#include <stdio.h>
#include <sys/syscall.h>

static inline long parent(void) { // without libc, whose functions have no frame
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_getppid;
    register long result __asm__("x0");
    __asm__ volatile("svc #0" : "=r"(result) : "r"(number) : "memory");
    return result;
#endif
}

static volatile long sink;

#define CALLER(name) \
    __attribute__((noinline)) static void name(int calls) { \
        for (int i = 0; i < calls; i++) \
            sink += parent(); \
    }

CALLER(ten)
CALLER(six)
CALLER(three)
CALLER(one)

int main(void) {
    puts("busy");
    fflush(stdout);
    for (;;) {
        ten(10000);
        six(6000);
        three(3000);
        one(1000);
    }
}
