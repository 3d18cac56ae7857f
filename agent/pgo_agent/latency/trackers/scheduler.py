"""Trackers of the scheduler: off-CPU time and run-queue delay.

Their stacks are those of a thread as it comes back to a CPU, which takes some care: see `_ARRIVAL`.
"""

from __future__ import annotations

from pgo_agent.latency.trackers.tracker import Labels, Tracker

_INTERRUPTS = "irq_vectors:irq_work_entry"
_WAKING = "sched:sched_waking"
_WAITS = {1: "blocked", 2: "preempted"}

_ARRIVAL = """
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
    event->stack.copy = 0;
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
"""

_OFFCPU = """
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
"""

_OFFCPU_SCRIPT = """
// Off-CPU time: from a thread's leaving the CPU until it runs again. The stack is taken when it leaves.

tracepoint:sched:sched_switch /@on == 1/ {
    if (args->prev_pid != 0 && (args->prev_state & 0x30) == 0 && WANTED) {
        if (@start[args->prev_pid] != 0) {
            @missed = count();
        }
        @kept[args->prev_pid] = (pid, kstack(perf), ustack(perf), (args->prev_state & 0xff) != 0 ? 1 : 2,
            PARENT);
        @start[args->prev_pid] = nsecs;
        if (@start[args->prev_pid] == 0) {
            @table_full = count();
        }
    }
    $start = @start[args->next_pid];
    if ($start != 0) {
        MEASURE
        if (REPORTED) {
            printf(EVENT, COUNTED, @kept[args->next_pid].0, @kept[args->next_pid].4, args->next_pid, 0,
                @kept[args->next_pid].3, @kept[args->next_pid].1, @kept[args->next_pid].2, "",
                args->next_comm);
        }
        delete(@start[args->next_pid]);
        delete(@kept[args->next_pid]);
    }
}
"""


def _offcpu_labels(_number: int, _name: str, operation: int) -> Labels:
    return (("operation", _WAITS[operation]),)


_WAKEUP = """
// Run-queue delay: from a thread's wake-up until it runs.
//
// A thread is filtered when it leaves the CPU, since its waker is the current thread when it is woken. What
// is kept of it until then has no start.

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
"""

_WAKEUP_SCRIPT = """
// Run-queue delay: from a thread's wake-up until it runs. A thread is filtered, and its stack is taken, when
// it leaves the CPU; until it is woken, its start is 1.

tracepoint:sched:sched_switch /@on == 1/ {
    if (args->prev_pid != 0 && (args->prev_state & 0xff) != 0 && (args->prev_state & 0x30) == 0 && WANTED) {
        if (@start[args->prev_pid] != 0) {
            @missed = count();
        }
        @kept[args->prev_pid] = (pid, kstack(perf), ustack(perf), PARENT);
        @start[args->prev_pid] = 1;
        if (@start[args->prev_pid] == 0) {
            @table_full = count();
        }
    }
    $start = @start[args->next_pid];
    if ($start > 1) {
        MEASURE
        if (REPORTED) {
            printf(EVENT, COUNTED, @kept[args->next_pid].0, @kept[args->next_pid].3, args->next_pid, 0, 0,
                @kept[args->next_pid].1, @kept[args->next_pid].2, "", args->next_comm);
        }
        delete(@start[args->next_pid]);
        delete(@kept[args->next_pid]);
    }
}

tracepoint:sched:sched_wakeup /@start[args->pid] == 1/ {
    @start[args->pid] = nsecs;
}
"""

TRACKERS = (
    Tracker(
        name="offcpu",
        title="waits off the CPU",
        measures="from a thread's leaving the CPU until it runs again",
        stack="the thread, as it waited",
        tracepoints=("sched:sched_switch", _WAKING, _INTERRUPTS),
        program=_ARRIVAL + _OFFCPU,
        script=_OFFCPU_SCRIPT,
        labels=_offcpu_labels,
        labels_text="`operation`: `blocked`, or `preempted` by another thread",
        uses_interrupts=True,
        waking=_WAKING,
    ),
    Tracker(
        name="wakeup",
        title="waits for a CPU after a wake-up",
        measures="from a thread's wake-up until it runs",
        stack="the thread, as it waited",
        tracepoints=("sched:sched_switch", "sched:sched_wakeup", _INTERRUPTS),
        program=_ARRIVAL + _WAKEUP,
        script=_WAKEUP_SCRIPT,
        uses_interrupts=True,
    ),
)
