/* Wait or compute by way of libc, compiled without frame pointers: `frameless nap`, which waits for 7 ms at a
 * time, `frameless blink`, for 20 us, so that it computes, too, or `frameless sort`.
 *
 * It writes a line when it begins, and runs until it is killed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAMED __attribute__((noinline, noclone)) static

static volatile long sink; /* keeps calls from being the last of their function */
static int numbers[4096];

NAMED void nap_once(int nanos) {
    struct timespec time = {.tv_nsec = nanos};
    nanosleep(&time, NULL);
    sink++;
}

NAMED int compare(const void *one, const void *other) {
    int sum = 0;
    for (volatile int i = 0; i < 20; i++)
        sum += i;
    sink += sum;
    return *(const int *)one - *(const int *)other;
}

NAMED void sort_all(void) {
    for (int i = 0; i < 4096; i++)
        numbers[i] = i * 7919 % 4096;
    qsort(numbers, 4096, sizeof(int), compare);
    sink++;
}

NAMED void work(int nanos) {
    char room[512]; /* a stack of some size */
    memset(room, nanos, sizeof room);
    sink += room[sink & 511];
    for (;;) {
        if (nanos)
            nap_once(nanos);
        else
            sort_all();
        sink++;
    }
}

int main(int count, char **arguments) {
    if (count < 2 || write(STDOUT_FILENO, "runs\n", 5) != 5)
        return 1;
    work(strcmp(arguments[1], "nap") == 0 ? 7000000 : strcmp(arguments[1], "blink") == 0 ? 20000 : 0);
    sink++;
}
