// Computes in functions whose names the thread's name says: "w:" and a letter for each function, outermost first.
// Compiled without frame pointers. What is hard to unwind comes between: callbacks of libc and of the C++ library,
// stacks that are aligned or of a size known when it runs, virtual functions, exceptions, signal handlers.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <alloca.h>
#include <memory>
#include <stdexcept>
#include <sys/prctl.h>
#include <thread>

namespace {
thread_local const char *way;  // the letters of the functions to go through
volatile unsigned long sum;
volatile bool never;

// Functions do something after each call, so that none is a jump.
#define AFTER asm volatile("")

__attribute__((noinline)) void spin() {
    for (int i = 0; i < 2000000; i++) sum += i;
    AFTER;
}

__attribute__((noinline)) void go();
}  // namespace

#define STEP extern "C" __attribute__((noinline)) void
STEP step_a() { go(); AFTER; }
STEP step_b() {  // a stack whose size isn't known before
    char *memory = static_cast<char *>(alloca(100 + strlen(way) * 100));
    memset(memory, 1, 100);
    asm volatile("" ::"r"(memory));
    go();
    AFTER;
}
STEP step_c() {  // a stack that is aligned
    alignas(64) char memory[256];
    char *more = static_cast<char *>(alloca(strlen(way) * 16 + 16));
    asm volatile("" ::"r"(memory), "r"(more));
    go();
    AFTER;
}
STEP step_d() {  // by libc
    int numbers[] = {2, 1};
    static thread_local bool is_first;
    is_first = true;
    qsort(numbers, 2, sizeof(int), [](const void *, const void *) {
        if (is_first) { is_first = false; go(); AFTER; }
        return 0;
    });
    AFTER;
}
STEP step_e() {  // by a virtual function and a pointer to one
    struct Base { virtual ~Base() = default; virtual void call() = 0; };
    struct Derived : Base { __attribute__((noinline)) void call() override { go(); AFTER; } };
    std::unique_ptr<Base> object(new Derived);
    std::function<void()> function = [&] { object->call(); AFTER; };
    if (!never) function();
    AFTER;
}
STEP step_f() {  // while an exception is handled
    try {
        throw std::runtime_error(way);
    } catch (const std::exception &) {
        go();
        AFTER;
    }
}
STEP on_signal(int) { go(); AFTER; }
STEP step_g() {  // interrupted
    raise(SIGUSR1);
    AFTER;
}

namespace {
void go() {
    switch (*way ? *way++ : 0) {
    case 'a': step_a(); break;
    case 'b': step_b(); break;
    case 'c': step_c(); break;
    case 'd': step_d(); break;
    case 'e': step_e(); break;
    case 'f': step_f(); break;
    case 'g': step_g(); break;
    default: spin();
    }
    AFTER;
}

extern "C" __attribute__((noinline)) void along(const char *letters) {
    char name[16];
    snprintf(name, sizeof name, "w:%s", letters);
    way = letters;
    prctl(PR_SET_NAME, name);
    go();
    prctl(PR_SET_NAME, "between");
}

extern "C" __attribute__((noinline)) void forever() {
    const char *ways[] = {"a", "bab", "cac", "dad", "eae", "faf", "aga", "abcdef", "gfedcba", "aaaaaaaaaaaaa", ""};
    for (;;)
        for (const char *one : ways) along(one);
}
}  // namespace

int main() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR1, &action, nullptr);
    puts("busy");
    fflush(stdout);
    std::thread one(forever), other(forever);  // the main thread's name is that of the process
    one.join();
    other.join();
}
