// A program to be profiled: `busy`, `busy threads`, `busy forks` or `busy hidden`, until it is killed. It writes
// a line when it begins.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int sink;

__attribute__((noinline)) static int inner(int rounds) {
    volatile int sum = 0; // in memory, so that it has a frame
    for (int i = 0; i < rounds; i++)
        sum += i;
    return sum;
}

__attribute__((noinline)) static int middle(void) {
    struct stat status;
    int failed = 0;
    for (int i = 0; i < 50; i++)
        failed += stat("/etc/passwd", &status);
    return inner(100000) + failed;
}

static double taken(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void *spin(void *seconds) {
    const struct timespec pause = {.tv_nsec = 20000000};
    double until = taken() + 0.01;
    while (seconds == NULL || taken() < *(double *)seconds) {
        sink = middle();
        if (seconds == NULL && taken() > until) { // leave most of a core to the tests beside it
            nanosleep(&pause, NULL);
            until = taken() + 0.01;
        }
    }
    return NULL;
}

static void begin(void) {
    if (write(STDOUT_FILENO, "busy\n", 5) != 5)
        _exit(1);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "threads") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, spin, NULL);
        pthread_setname_np(thread, "helper");
        begin();
        pthread_join(thread, NULL);
    }
    if (count > 1 && strcmp(arguments[1], "hidden") == 0) { // a parent that can't be looked at without rights
        prctl(PR_SET_DUMPABLE, 0);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execl(arguments[0], arguments[0], (char *)NULL);
            _exit(1);
        }
        wait(NULL);
    }
    begin();
    double short_life = 0.03;
    while (count > 1) { // "forks": a server with a process for each client
        if (fork() == 0) {
            spin(&short_life);
            _exit(0);
        }
        wait(NULL);
    }
    spin(NULL);
}
