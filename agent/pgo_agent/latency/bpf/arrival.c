// Report a thread's stack when it arrives on a CPU after a wait, for the trackers of the scheduler.
//
// At sched_switch the current thread is still the one that leaves, and the stack of another thread can't be
// taken. So a thread whose wait was over the threshold is noted for its CPU, and an interrupt to this CPU is
// asked for: one byte into a perf event that wakes its reader on every record. The interrupt comes as soon as
// the switch is done, with the arrived thread as the current one, its stack still as it waited.

struct arrival {
    u64 delay;
    struct entry entry;
    u32 thread; // 0 if none is noted
    u32 unused;
};

BPF_PERCPU_ARRAY(arrivals, struct arrival, 1);
BPF_PERF_OUTPUT(interrupts);
BPF_HASH(wakers, struct key, struct stack, STACKS);

static inline void report_arrival(void *context, struct settings *s, struct arrival *arrival, int here) {
    int zero = 0, waker = 0;
    struct event *event = scratch.lookup(&zero);
    struct key key = {.id = arrival->thread};
    arrival->thread = 0;
    if (!event)
        return;
    event->delay = arrival->delay;
    event->entry = arrival->entry;
    event->stack.kernel_bytes = -1;
    event->stack.user_bytes = -1;
    if (here) {
        set_current(&event->entry);
        take_stack(context, &event->stack);
    }
    if (s->wakers) {
        struct stack *kept = wakers.lookup(&key);
        if (kept) {
            bpf_probe_read_kernel(&event->waker, sizeof(event->waker), kept);
            waker = 1;
            wakers.delete(&key);
        }
    }
    report(event, waker);
}

static inline void arrive(void *context, struct settings *s, u32 thread, u64 now) {
    int zero = 0;
    struct key key = {.id = thread};
    struct entry *entry = entries.lookup(&key);
    if (!entry || !entry->start)
        return;
    u64 delay = now - entry->start;
    if (measure(s, delay)) {
        struct arrival *arrival = arrivals.lookup(&zero);
        if (arrival) {
            if (arrival->thread)
                report_arrival(context, s, arrival, 0);
            arrival->delay = delay;
            arrival->entry = *entry;
            arrival->thread = thread;
            if (interrupts.perf_submit(context, &zero, sizeof(zero)))
                report_arrival(context, s, arrival, 0);
        }
    } else if (s->wakers) {
        wakers.delete(&key);
    }
    rest(&key, entry);
}

TRACEPOINT_PROBE(irq_vectors, irq_work_entry) {
    int zero = 0;
    struct settings *s = settings.lookup(&zero);
    struct arrival *arrival = arrivals.lookup(&zero);
    if (s && arrival && arrival->thread)
        report_arrival(args, s, arrival, arrival->thread == (u32)bpf_get_current_pid_tgid());
    return 0;
}
