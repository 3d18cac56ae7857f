/* Runs a program instruction by instruction, from its own first on, and writes where each of them is, as 8 bytes.
 *
 * usage: step FILE PROGRAM [ARGUMENT]...   then it prints the program's process id and its maps, at its end
 */
#include <elf.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_maps(pid_t pid)
{
    char name[64];
    int letter;

    snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(name, "r");
    printf("%d\n", (int)pid);
    while (maps && (letter = getc(maps)) != EOF)
        putchar(letter);
    if (maps)
        fclose(maps);
}

/* Lets the loader do its work at full speed: until a breakpoint at the program's first instruction. */
static void run_to_entry(pid_t pid)
{
    char name[64];
    uint64_t pair[2] = {1, 0};
    struct user_regs_struct registers;

    snprintf(name, sizeof name, "/proc/%d/auxv", (int)pid);
    FILE *auxiliary = fopen(name, "r");
    while (auxiliary && pair[0] != AT_ENTRY && fread(pair, sizeof pair, 1, auxiliary) == 1)
        ;
    if (auxiliary)
        fclose(auxiliary);
    long code = ptrace(PTRACE_PEEKTEXT, pid, pair[1], 0);
    ptrace(PTRACE_POKETEXT, pid, pair[1], (code & ~0xffL) | 0xcc);
    ptrace(PTRACE_CONT, pid, 0, 0);
    waitpid(pid, NULL, 0);
    ptrace(PTRACE_POKETEXT, pid, pair[1], code);
    ptrace(PTRACE_GETREGS, pid, 0, &registers);
    registers.rip = pair[1];
    ptrace(PTRACE_SETREGS, pid, 0, &registers);
}

int main(int count, char **arguments)
{
    FILE *steps = count > 2 ? fopen(arguments[1], "w") : NULL;
    int status;

    if (!steps)
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(arguments[2], arguments + 2);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXIT);
    run_to_entry(pid);
    while (WIFSTOPPED(status)) {
        struct user_regs_struct registers;
        int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);

        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            print_maps(pid);
        ptrace(PTRACE_GETREGS, pid, 0, &registers);
        uint64_t at = registers.rip;
        fwrite(&at, sizeof at, 1, steps);
        if (ptrace(PTRACE_SINGLESTEP, pid, 0, signal) || waitpid(pid, &status, 0) < 0)
            break;
    }
    return fclose(steps) || !WIFEXITED(status) || WEXITSTATUS(status);
}
