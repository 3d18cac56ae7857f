// What all trackers share: settings and filters, entries in flight, histograms, stacks and events.
//
// What comes back under the same key, such as a thread or an interrupt of a CPU, keeps its entry while nothing
// is in flight: a tracker calls `begin_again` where it starts, and `end_again` where it ends. What has a key of
// its own, such as a packet, is inserted by `begin`, and deleted by `end_here` or `end_elsewhere`. Reads only
// tracepoint arguments and helpers, so it works with the headers of another kernel.

#include <uapi/linux/errno.h>
#include <uapi/linux/ptrace.h>

#define BY_PROCESS 1
#define BY_COMM 2
#define BY_CGROUP 4

#define BUCKETS 65

enum counter { SEEN, REPORTED, TABLE_FULL, RING_FULL, LOST_STACKS, MISSED, COUNTERS };

struct settings {
    u64 threshold;  // ns
    u32 filters;
    u32 at_entry;   // entries keep their stack, for those that take longer than the timeout
    u32 wakers;     // reported waits have the waker's stack
    u32 generation; // another in each tick; its parity says which of the two extremes are written
    u32 own[2];     // the processes of the agent, which aren't tracked
    u32 is_on;      // 0 before the first settings are written, and after the last event is counted
    u32 pause;      // ns between two events of a CPU that are shown, though they are added up
};

struct key {
    u64 id;
    u64 part;
};

struct entry {
    u64 start; // ns of CLOCK_MONOTONIC; 0 while nothing is in flight
    u64 number;
    u64 comm[2];
    char name[16];
    u32 pid;
    u32 thread;
    u32 operation; // 0 while nothing is in flight
    u32 has_stack; // the stack of its beginning is kept
};

struct stack {
    s64 kernel_bytes;
    s64 user_bytes;
    u64 comm[2];
    u32 pid;
    u32 unused;
    u64 copy; // the id of what was copied of a stack like this; 0 for none
    u64 kernel[KERNEL_DEPTH];
    u64 user[USER_DEPTH];
};

struct event {
    u64 delay; // ns
    u64 sum;   // what it is added to; 0 if there is no room, and it counts by itself
    struct entry entry;
    struct stack stack;
    struct stack waker;
};

// What is sent to be unwound.
struct copied {
    u64 id;
    u32 pid;
    u32 unused;
    struct copy copy;
};

struct bucket {
    u64 count;
    u64 total; // ns
};

// Events that have all but their delays in common, and those in one bucket.
struct sum {
    u64 count;
    u64 total; // ns
    u64 max;   // ns
    u64 is_told; // an event has told what they have in common
};

struct extremes {
    u64 generation; // in which these were found
    u64 min;        // ns
    u64 max;
};

// All that is counted at each event, so that it takes one look into one table. Only programs write it.
struct counted {
    u64 counters[COUNTERS];
    struct extremes extremes[2];
    struct bucket below[BUCKETS];
    struct bucket dropped[BUCKETS];
    u64 shown; // when an event that is added up was shown, in ns of CLOCK_MONOTONIC
};

BPF_ARRAY(settings, struct settings, 1);
BPF_HASH(processes, u32, u8, 16384);
BPF_HASH(comms, struct key, u8, 64);
BPF_HASH(cgroups, u64, u8, 4096);
BPF_HASH(entries, struct key, struct entry, ENTRIES);
BPF_HASH(stacks, struct key, struct stack, STACKS);
BPF_HASH(sums, u64, struct sum, SUMS);
BPF_PERCPU_ARRAY(counted, struct counted, 1);
BPF_PERCPU_ARRAY(scratch, struct event, 1);
BPF_RINGBUF_OUTPUT(events, RING_PAGES);
BPF_PERCPU_ARRAY(copying, struct copied, 1);
BPF_RINGBUF_OUTPUT(copies, COPIES_PAGES);
BPF_TABLE("lru_hash", u64, u64, copied_at, COPIES); // ns of CLOCK_MONOTONIC, by id
BPF_ARRAY(copied_bytes, u64, 1);                    // since the agent has read the copies

static inline void count(int which) {
    int zero = 0;
    struct counted *counts = counted.lookup(&zero);
    if (counts)
        counts->counters[which]++;
}

// Add to a bucket: 0 is for 0 ns; i is for 2^(i-1) up to 2^i ns.
static inline void add_to(struct bucket *buckets, u64 delay) {
    u32 index = delay ? bpf_log2l(delay) : 0;
    if (index >= BUCKETS)
        return;
    buckets[index].count++;
    buckets[index].total += delay;
}

// Return the settings, or 0 while nothing is to be counted.
static inline struct settings *get_settings(void) {
    int zero = 0;
    struct settings *s = settings.lookup(&zero);
    return s && s->is_on ? s : 0;
}

// Return whether the current thread passes the filters.
static inline int is_wanted(struct settings *s) {
    u32 pid = bpf_get_current_pid_tgid() >> 32;
    if (pid == s->own[0] || pid == s->own[1])
        return 0;
    if (s->filters & BY_PROCESS && !processes.lookup(&pid))
        return 0;
    if (s->filters & BY_COMM) {
        struct key comm = {};
        bpf_get_current_comm(&comm, sizeof(comm));
        if (!comms.lookup(&comm))
            return 0;
    }
    if (s->filters & BY_CGROUP) {
        u64 cgroup = bpf_get_current_cgroup_id();
        if (!cgroups.lookup(&cgroup))
            return 0;
    }
    return 1;
}

static inline void set_current(struct entry *entry) {
    u64 id = bpf_get_current_pid_tgid();
    entry->pid = id >> 32;
    entry->thread = id;
    bpf_get_current_comm(&entry->comm, sizeof(entry->comm));
}

static inline u64 mixed(u64 id, u64 number) {
    id = (id ^ number) * 0x9e3779b97f4a7c15;
    return id ^ id >> 32;
}

// Return the id of a copy of the current thread's registers and stack. There may be many events a second, so a
// stack with the same pointers and frames isn't copied again for some seconds, and the bytes are bounded.
static inline u64 copy_of(struct stack *stack) {
    int zero = 0;
    struct copied *copied = copying.lookup(&zero);
    u64 *bytes = copied_bytes.lookup(&zero);
    if (!copied || !bytes || !copy_registers(&copied->copy))
        return 0;
    u64 *registers = copied->copy.registers;
    u64 id = mixed(mixed(stack->pid, registers[IP_PLACE]), registers[SP_PLACE]) | 1;
    if (stack->user_bytes > 3 * sizeof(u64))
        id = mixed(mixed(mixed(id, stack->user[1]), stack->user[2]), stack->user[3]) | 1;
    u64 now = bpf_ktime_get_ns();
    u64 *known = copied_at.lookup(&id);
    if (known && now - *known < COPY_NS)
        return id;
    u32 size = *bytes < COPIES_BYTES ? copy_stack(&copied->copy) : 0;
    if (!size)
        return known ? id : 0;
    __sync_fetch_and_add(bytes, size);
    copied->id = id;
    copied->pid = stack->pid;
    size += sizeof(*copied) - sizeof(copied->copy.stack);
    if (copies.ringbuf_output(copied, size, BPF_RB_NO_WAKEUP))
        return known ? id : 0;
    copied_at.update(&id, &now);
    return id;
}

static inline void take_stack(void *context, struct stack *stack) {
    stack->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(&stack->comm, sizeof(stack->comm));
    stack->kernel_bytes = bpf_get_stack(context, stack->kernel, sizeof(stack->kernel), 0);
    stack->user_bytes = bpf_get_stack(context, stack->user, sizeof(stack->user), BPF_F_USER_STACK);
    stack->copy = stack->user_bytes > 0 ? copy_of(stack) : 0;
}

static inline void keep_stack(void *context, struct key *key) {
    int zero = 0;
    struct event *event = scratch.lookup(&zero);
    if (!event)
        return;
    take_stack(context, &event->waker);
    if (stacks.update(key, &event->waker))
        count(LOST_STACKS);
}

// Note that something begins in the current thread. With `stack`, its stack is kept until it ends. If there is
// an entry already, the kernel didn't tell of its end.
static inline void begin(void *context, struct settings *s, struct key *key, struct entry *entry, int stack) {
    set_current(entry);
    entry->start = bpf_ktime_get_ns();
    entry->has_stack = stack || s->at_entry;
    int failed = entries.insert(key, entry);
    if (failed == -EEXIST) {
        count(SEEN);
        count(MISSED);
        stacks.delete(key);
        failed = entries.update(key, entry);
    }
    if (failed) {
        count(SEEN);
        count(TABLE_FULL);
    } else if (entry->has_stack) {
        keep_stack(context, key);
    }
}

// Note that what comes back under this key begins in the current thread; return its entry, still without a
// start, or 0 if there is no room for it.
static inline struct entry *begin_again(void *context, struct settings *s, struct key *key) {
    struct entry *entry = entries.lookup(key);
    if (!entry) {
        struct entry empty = {};
        entries.insert(key, &empty);
        entry = entries.lookup(key);
        if (!entry) {
            count(SEEN);
            count(TABLE_FULL);
            return 0;
        }
    } else if (entry->start || entry->operation) { // the kernel didn't tell of its end
        count(SEEN);
        count(MISSED);
        if (entry->has_stack)
            stacks.delete(key);
        entry->start = 0;
    }
    set_current(entry);
    entry->has_stack = s->at_entry;
    if (s->at_entry)
        keep_stack(context, key);
    return entry;
}

static inline void rest(struct key *key, struct entry *entry) {
    if (entry->has_stack)
        stacks.delete(key);
    entry->start = 0;
    entry->operation = 0;
}

static inline void forget(struct key *key, int has_stack) {
    entries.delete(key);
    if (has_stack)
        stacks.delete(key);
}

// Count a delay; return whether it is over the threshold, and so to be reported.
static inline int measure(struct settings *s, u64 delay) {
    int zero = 0;
    u32 generation = s->generation;
    struct counted *counts = counted.lookup(&zero);
    if (!counts)
        return 0;
    struct extremes *found = &counts->extremes[generation & 1];
    if (found->generation != generation) {
        found->generation = generation;
        found->min = found->max = delay;
    } else if (delay < found->min) {
        found->min = delay;
    } else if (delay > found->max) {
        found->max = delay;
    }
    counts->counters[SEEN]++;
    if (delay >= s->threshold)
        return 1;
    add_to(counts->below, delay);
    return 0;
}

static inline u64 mixed_stack(u64 hash, struct stack *stack) {
    s64 kernel = stack->kernel_bytes >> 3, user = stack->user_bytes >> 3;
    hash = mixed(mixed(hash, stack->copy), kernel);
    for (int i = 0; i < KERNEL_DEPTH && i < kernel; i++)
        hash = mixed(hash, stack->kernel[i]);
    for (int i = 0; i < USER_DEPTH && i < user; i++)
        hash = mixed(hash, stack->user[i]);
    return hash;
}

// Return a number for all that an event has in common with others, which isn't 0.
static inline u64 kind_of(struct event *event, int waker) {
    struct entry *entry = &event->entry;
    u64 *name = (u64 *)entry->name, bucket = event->delay ? bpf_log2l(event->delay) : 0;
    u64 hash = mixed(bucket, (u64)entry->pid << 32 | entry->operation);
    hash = mixed(mixed(hash, entry->comm[0]), entry->comm[1]);
    hash = mixed(mixed(hash, name[0]), name[1]);
    hash = mixed_stack(mixed(hash, entry->number), &event->stack);
    if (waker) {
        hash = mixed(hash, event->waker.pid);
        hash = mixed(mixed(hash, event->waker.comm[0]), event->waker.comm[1]);
        hash = mixed_stack(hash, &event->waker);
    }
    return hash | 1;
}

// Add an event to those of its kind. The first one of a kind is sent, and tells what they have in common; so is
// each for which there is no room, and one from time to time, to be shown.
static inline void report(struct event *event, int waker) {
    int zero = 0, failed = 0;
    struct counted *counts = counted.lookup(&zero);
    struct settings *s = settings.lookup(&zero);
    if (!counts || !s)
        return;
    if (event->stack.kernel_bytes < 0 && event->stack.user_bytes <= 0)
        count(LOST_STACKS);
    u64 kind = kind_of(event, waker), now = bpf_ktime_get_ns();
    struct sum *sum = sums.lookup(&kind);
    if (!sum) {
        struct sum empty = {};
        sums.insert(&kind, &empty);
        sum = sums.lookup(&kind);
    }
    int is_told = sum && sum->is_told;
    if (!is_told || now - counts->shown >= s->pause) {
        event->sum = sum ? kind : 0;
        failed = waker ? events.ringbuf_output(event, sizeof(*event), BPF_RB_NO_WAKEUP)
                       : events.ringbuf_output(event, sizeof(*event) - sizeof(event->waker), BPF_RB_NO_WAKEUP);
        if (is_told)
            counts->shown = now;
    }
    if (failed && !is_told) {
        counts->counters[RING_FULL]++;
        add_to(counts->dropped, event->delay);
        return;
    }
    counts->counters[REPORTED]++;
    if (!sum)
        return;
    sum->is_told = 1;
    __sync_fetch_and_add(&sum->count, 1);
    __sync_fetch_and_add(&sum->total, event->delay);
    if (event->delay > sum->max)
        sum->max = event->delay;
}

// Report what has just ended in the thread whose stack is wanted.
static inline void report_here(void *context, struct entry *entry, u64 delay) {
    int zero = 0;
    struct event *event = scratch.lookup(&zero);
    if (!event)
        return;
    event->delay = delay;
    event->entry = *entry;
    set_current(&event->entry);
    take_stack(context, &event->stack);
    report(event, 0);
}

// Report what has just ended with the stack that was kept when it began.
static inline void report_kept(struct key *key, struct entry *entry, u64 delay) {
    int zero = 0;
    struct event *event = scratch.lookup(&zero);
    struct stack *kept = stacks.lookup(key);
    if (!event)
        return;
    event->delay = delay;
    event->entry = *entry;
    event->stack.kernel_bytes = -1;
    event->stack.user_bytes = -1;
    event->stack.copy = 0;
    if (kept)
        bpf_probe_read_kernel(&event->stack, sizeof(event->stack), kept);
    report(event, 0);
}

// End what comes back under `key`, in the thread whose stack is reported.
static inline void end_again(void *context, struct settings *s, struct key *key) {
    struct entry *entry = entries.lookup(key);
    if (!entry || !entry->start)
        return;
    u64 delay = bpf_ktime_get_ns() - entry->start;
    if (measure(s, delay))
        report_here(context, entry, delay);
    rest(key, entry);
}

// End what began under `key`, in the thread whose stack is reported.
static inline void end_here(void *context, struct settings *s, struct key *key) {
    struct entry *entry = entries.lookup(key);
    if (!entry)
        return;
    int has_stack = entry->has_stack;
    u64 delay = bpf_ktime_get_ns() - entry->start;
    if (measure(s, delay))
        report_here(context, entry, delay);
    forget(key, has_stack);
}

// End what began under `key`, and report the stack that was kept when it began.
static inline void end_elsewhere(struct settings *s, struct key *key) {
    struct entry *entry = entries.lookup(key);
    if (!entry)
        return;
    int has_stack = entry->has_stack;
    u64 delay = bpf_ktime_get_ns() - entry->start;
    if (measure(s, delay))
        report_kept(key, entry, delay);
    forget(key, has_stack);
}

// Processes that a wanted process forks are wanted from their first moment.
TRACEPOINT_PROBE(sched, sched_process_fork) {
    u32 parent = bpf_get_current_pid_tgid() >> 32, child = args->child_pid;
    u8 one = 1;
    if (processes.lookup(&parent))
        processes.update(&child, &one);
    return 0;
}
