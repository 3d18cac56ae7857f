// Run-queue delay: from a thread's wake-up until it runs.
//
// A thread is filtered when it leaves the CPU, since its waker is the current thread when it is woken. What is
// kept of it until then has no start.

#define ENDED 0x30

TRACEPOINT_PROBE(sched, sched_switch) {
    struct settings *s = get_settings();
    if (!s)
        return 0;
    if (args->prev_pid && args->prev_state & 0xff && !(args->prev_state & ENDED) && is_wanted(s)) {
        struct key key = {.id = args->prev_pid};
        struct entry entry = {.has_stack = s->at_entry};
        set_current(&entry);
        if (keep(&key, &entry) && s->at_entry)
            keep_stack(args, &key);
    }
    if (args->next_pid)
        arrive(args, s, args->next_pid);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup) {
    struct key key = {.id = args->pid};
    struct entry *entry = entries.lookup(&key);
    if (entry && !entry->start)
        entry->start = bpf_ktime_get_ns();
    return 0;
}
