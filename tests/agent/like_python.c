// A program that isn't CPython 3.12, but has its symbols, and memory in which nothing ends or is what it says.
// It computes once it has read a line, for a second of CPU time, and then writes another.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t word;

unsigned long Py_Version = 0x030c01f0;
char *PyCode_Type[50] = {0, 0, 0, "code"};
word _PyRuntime[100];
static word interpreter[100], thread[100], frame[100], other[100], code[100], name[100], table[100];

#define AT(of, offset) (of)[(offset) / 8]
#define TO(of) ((word)(of))

static void compute(void) {
    while (clock() < CLOCKS_PER_SEC)
        ;
}

int main(void) {
    char own[16];
    word c_frame[4];
    snprintf(own, sizeof(own), "like-%d", getpid());
    prctl(PR_SET_NAME, own);
    AT(_PyRuntime, 40) = TO(interpreter);
    AT(interpreter, 72) = TO(thread);
    AT(interpreter, 0) = TO(interpreter);
    AT(thread, 8) = TO(thread);
    AT(thread, 136) = TO(pthread_self());
    AT(thread, 56) = TO(c_frame);
    c_frame[0] = TO(frame); // one frame calls the other, without end
    AT(frame, 8) = TO(other);
    AT(other, 8) = TO(frame);
    AT(frame, 0) = AT(other, 0) = TO(code);
    AT(frame, 56) = AT(other, 56) = ~0ull;
    ((char *)other)[70] = 3;
    AT(code, 8) = TO(PyCode_Type);
    AT(code, 112) = AT(code, 128) = TO(name);
    AT(code, 136) = TO(table);
    AT(name, 16) = AT(table, 16) = ~0ull; // of lengths
    AT(name, 32) = 0x64;
    memset(table + 4, 0xff, sizeof(table) - 32);
    puts("ready");
    fflush(stdout);
    getchar();
    compute();
    puts("over");
    fflush(stdout);
    getchar();
    return 0;
}
