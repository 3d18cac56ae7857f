/* Wait in functions with known names, for known times, until killed: `waits WAY [FILE]`.
 *
 * System calls are made without libc, whose functions have no frame, so that a stack has each caller.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMED __attribute__((noinline, noclone)) static

static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d) {
    register long fourth __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static volatile long done; /* keeps calls from being the last of their function */

NAMED void sleep_ms(long ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    call(SYS_nanosleep, (long)&time, 0, 0, 0);
    done++;
}

NAMED void sleep_seven(void) {
    sleep_ms(7);
    done++;
}

NAMED void sleep_for_ages(void) {
    sleep_ms(3000000);
    done++;
}

static atomic_int lock;

NAMED void wait_for_lock(void) {
    while (atomic_exchange(&lock, 1))
        call(SYS_futex, (long)&lock, FUTEX_WAIT, 1, 0);
    done++;
}

NAMED void release_lock(void) {
    atomic_store(&lock, 0);
    call(SYS_futex, (long)&lock, FUTEX_WAKE, 1, 0);
    done++;
}

static void *hold_lock(void *unused) {
    for (;;) {
        while (atomic_exchange(&lock, 1))
            ;
        sleep_ms(5);
        release_lock();
        sleep_ms(2);
    }
    return unused;
}

NAMED void write_through(int file) {
    static char bytes[4096];
    call(SYS_pwrite64, file, (long)bytes, sizeof(bytes), 0);
    call(SYS_fsync, file, 0, 0, 0);
    done++;
}

NAMED void sync_all(int file) {
    static char bytes[4096];
    call(SYS_pwrite64, file, (long)bytes, sizeof(bytes), 0);
    call(SYS_sync, 0, 0, 0, 0);
    done++;
}

NAMED void read_late(int from, int to) {
    char byte = 0;
    call(SYS_write, to, (long)&byte, 1, 0);
    sleep_ms(7); /* the packet waits for its reader */
    call(SYS_read, from, (long)&byte, 1, 0);
    done++;
}

NAMED void send_two(int to) {
    static char bytes[1208];
    for (int i = 0; i < 2; i++) /* the second one waits for its turn in a slow device's queue */
        call(SYS_write, to, (long)bytes, sizeof(bytes), 0);
    sleep_ms(20);
    done++;
}

NAMED void connect_late(int socket, struct sockaddr_in *address) {
    call(SYS_connect, socket, (long)address, sizeof(*address), 0);
    done++;
}

static void *accept_late(void *listener) {
    fcntl(*(int *)listener, F_SETFL, O_NONBLOCK);
    for (;;) {
        sleep_ms(300);
        close(accept(*(int *)listener, 0, 0));
    }
    return listener;
}

NAMED void spin(void) {
    for (;;)
        done++;
}

NAMED void nap_among_spinners(void) {
    sleep_ms(1);
    done++;
}

#define STORM 300000

NAMED void storm(void) {
    for (int i = 0; i < STORM; i++)
        call(SYS_getppid, 0, 0, 0, 0);
    done++;
}

static struct sockaddr_in address = {.sin_family = AF_INET};

static int listening(int kind) {
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, kind, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, length) || (kind == SOCK_STREAM && listen(listener, 0)) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        exit(1);
    return listener;
}

static int connected(int kind) {
    int to = socket(AF_INET, kind, 0);
    if (connect(to, (struct sockaddr *)&address, sizeof(address)))
        exit(1);
    return to;
}

/* A listener has room for one connection, and the packet that asks for another is dropped and sent again. */
static void connect_to_busy(void) {
    int first = connected(SOCK_STREAM), second = socket(AF_INET, SOCK_STREAM, 0);
    connect_late(second, &address);
    close(first);
    close(second);
    sleep_ms(700);
}

static void spin_on_one_cpu(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof(one), &one);
    for (int i = 0; i < 4; i++)
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            spin();
        }
    setpriority(PRIO_PROCESS, 0, 19);
}

NAMED void wait_in_a_child(char *program) {
    if (fork() == 0) {
        if (program)
            execl(program, program, "once", (char *)0);
        sleep_seven();
        _exit(0);
    }
    wait(0);
    done++;
}

int main(int count, char **arguments) {
    const char *way = arguments[1];
    int file = count > 2 ? open(arguments[2], O_RDWR | O_CREAT, 0600) : -1, from = -1, to = -1;
    int listener = -1;
    pthread_t helper;
    if (!strcmp(way, "futex"))
        pthread_create(&helper, 0, hold_lock, 0);
    if (!strcmp(way, "queue"))
        spin_on_one_cpu();
    if (!strcmp(way, "tcp")) {
        listener = listening(SOCK_STREAM);
        to = connected(SOCK_STREAM);
        from = accept(listener, 0, 0);
    }
    if (!strcmp(way, "send")) {
        listening(SOCK_DGRAM);
        to = connected(SOCK_DGRAM);
    }
    if (!strcmp(way, "connect")) {
        listener = listening(SOCK_STREAM);
        pthread_create(&helper, 0, accept_late, &listener);
    }
    if (strcmp(way, "once"))
        puts("waits");
    fflush(stdout);
    if (!strcmp(way, "storm")) { /* once, when a line is read, and then nothing */
        getchar();
        storm();
        puts("stormed");
        fflush(stdout);
        pause();
    }
    for (;;) {
        if (!strcmp(way, "sleep"))
            sleep_seven();
        else if (!strcmp(way, "brief") || !strcmp(way, "run")) /* each wait in a process of its own */
            wait_in_a_child(!strcmp(way, "run") ? arguments[0] : 0);
        else if (!strcmp(way, "once")) {
            sleep_seven();
            _exit(0);
        }
        else if (!strcmp(way, "ages"))
            sleep_for_ages();
        else if (!strcmp(way, "futex")) {
            wait_for_lock();
            release_lock();
            sleep_ms(1);
        } else if (!strcmp(way, "fsync"))
            write_through(file);
        else if (!strcmp(way, "sync"))
            sync_all(file);
        else if (!strcmp(way, "tcp"))
            read_late(from, to);
        else if (!strcmp(way, "send"))
            send_two(to);
        else if (!strcmp(way, "connect"))
            connect_to_busy();
        else if (!strcmp(way, "queue"))
            nap_among_spinners();
    }
}
