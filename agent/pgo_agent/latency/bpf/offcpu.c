// Off-CPU time: from a thread's leaving the CPU until it runs again.

#define BLOCKED 1
#define PREEMPTED 2
#define ENDED 0x30 // the states of threads that never come back

TRACEPOINT_PROBE(sched, sched_switch) {
    struct settings *s = get_settings();
    if (!s)
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct key key = {.id = args->prev_pid};
    if (args->prev_state & ENDED) {
        forget(&key, 1);
    } else if (args->prev_pid && is_wanted(s)) {
        struct entry *entry = begin_again(args, s, &key);
        if (entry) {
            entry->operation = args->prev_state & 0xff ? BLOCKED : PREEMPTED;
            entry->start = now;
        }
    }
    if (args->next_pid)
        arrive(args, s, args->next_pid, now);
    return 0;
}

// Attached only while the stacks of wakers are wanted.
int take_waker(struct tracepoint__sched__sched_waking *args) {
    int zero = 0;
    struct settings *s = get_settings();
    if (!s || !s->wakers)
        return 0;
    struct key key = {.id = args->pid};
    struct entry *entry = entries.lookup(&key);
    if (!entry || !entry->start || bpf_ktime_get_ns() - entry->start < s->threshold)
        return 0;
    struct event *event = scratch.lookup(&zero);
    if (!event)
        return 0;
    take_stack(args, &event->waker);
    if (wakers.update(&key, &event->waker))
        count(LOST_STACKS);
    return 0;
}
