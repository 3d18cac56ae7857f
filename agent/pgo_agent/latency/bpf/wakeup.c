// Run-queue delay: from a thread's wake-up until it runs.
//
// A thread is filtered when it leaves the CPU, since its waker is the current thread when it is woken. What is
// kept of it until then has no start.

#define BLOCKED 1
#define ENDED 0x30 // the states of threads that never come back

TRACEPOINT_PROBE(sched, sched_switch) {
    struct settings *s = get_settings();
    if (!s)
        return 0;
    struct key key = {.id = args->prev_pid};
    if (args->prev_state & ENDED) {
        forget(&key, 1);
    } else if (args->prev_pid && args->prev_state & 0xff && is_wanted(s)) {
        struct entry *entry = begin_again(args, s, &key);
        if (entry)
            entry->operation = BLOCKED;
    }
    if (args->next_pid)
        arrive(args, s, args->next_pid, bpf_ktime_get_ns());
    return 0;
}

// A thread may be woken while it still runs, and then it waits for nothing.
TRACEPOINT_PROBE(sched, sched_wakeup) {
    struct key key = {.id = args->pid};
    struct entry *entry = entries.lookup(&key);
    if (entry && entry->operation && !entry->start)
        entry->start = bpf_ktime_get_ns();
    return 0;
}
