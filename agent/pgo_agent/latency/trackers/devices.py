"""Trackers of devices: requests to disks, interrupts and soft interrupts, packets and connections."""

from __future__ import annotations

from pathlib import Path

from pgo_agent.latency.trackers.tracker import Labels, Tracker

_BLOCK = """
// Requests to block devices: from the issue to a device until its completion.
//
// A flush is issued for sector 0, and completed for sector -1.

static inline struct key request(u32 device, u64 sector, const char *kind) {
    struct key key = {.id = sector + 1 ? sector : 0, .part = device};
    key.part |= (u64)kind[0] << 32 | (u64)kind[1] << 40;
    return key;
}

TRACEPOINT_PROBE(block, block_rq_issue) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    char kind[10] = {};
    bpf_probe_read_kernel(kind, sizeof(kind), (void *)args->rwbs);
    struct key key = request(args->dev, args->sector, kind);
    struct entry entry = {.number = args->dev};
    __builtin_memcpy(entry.name, kind, 8);
    begin(args, s, &key, &entry, 1);
    return 0;
}

TRACEPOINT_PROBE(block, block_rq_complete) {
    struct settings *s = get_settings();
    if (!s)
        return 0;
    char kind[10] = {};
    bpf_probe_read_kernel(kind, sizeof(kind), (void *)args->rwbs);
    struct key key = request(args->dev, args->sector, kind);
    end_elsewhere(s, &key);
    return 0;
}
"""

_BLOCK_SCRIPT = """
// Requests to block devices: from the issue to a device until its completion. A flush is issued for sector 0,
// and completed for sector -1.

tracepoint:block:block_rq_issue /@on == 1 && WANTED/ {
    if (@start[args->dev, args->sector, args->rwbs] != 0) {
        @missed = count();
    }
    @kept[args->dev, args->sector, args->rwbs] = (pid, kstack(perf), ustack(perf), tid, comm, PARENT);
    @start[args->dev, args->sector, args->rwbs] = nsecs;
    if (@start[args->dev, args->sector, args->rwbs] == 0) {
        @table_full = count();
    }
}

tracepoint:block:block_rq_complete {
    $sector = args->sector + 1 == 0 ? (uint64)0 : args->sector;
    $start = @start[args->dev, $sector, args->rwbs];
    if ($start != 0) {
        MEASURE
        if (REPORTED) {
            printf(EVENT, COUNTED, @kept[args->dev, $sector, args->rwbs].0,
                @kept[args->dev, $sector, args->rwbs].5, @kept[args->dev, $sector, args->rwbs].3,
                args->dev, 0,
                @kept[args->dev, $sector, args->rwbs].1, @kept[args->dev, $sector, args->rwbs].2,
                args->rwbs, @kept[args->dev, $sector, args->rwbs].4);
        }
        delete(@start[args->dev, $sector, args->rwbs]);
        delete(@kept[args->dev, $sector, args->rwbs]);
    }
}
"""

_REQUESTS = {"R": "read", "W": "write", "D": "discard", "F": "flush"}
_MINOR_BITS = 20  # of a device number in the kernel


def _block_labels(number: int, name: str, _operation: int) -> Labels:
    operation = next((_REQUESTS[letter] for letter in name if letter in _REQUESTS), "other")
    return ("device", _device(number)), ("operation", operation)


def _device(number: int) -> str:
    """Return the name of a block device, or its numbers if it is gone."""
    numbers = f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}"
    try:
        return Path(f"/sys/dev/block/{numbers}").resolve(strict=True).name
    except OSError:
        return numbers


_IRQ = """
// Interrupt handlers: from the entry to the exit, by number and name. The stack has what was interrupted.

TRACEPOINT_PROBE(irq, irq_handler_entry) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = bpf_get_smp_processor_id(), .part = args->irq};
    struct entry *entry = begin_again(args, s, &key);
    if (entry) {
        TP_DATA_LOC_READ_CONST(entry->name, name, 15);
        entry->number = args->irq;
        entry->start = bpf_ktime_get_ns();
    }
    return 0;
}

TRACEPOINT_PROBE(irq, irq_handler_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = bpf_get_smp_processor_id(), .part = args->irq};
    if (s)
        end_again(args, s, &key);
    return 0;
}
"""

_IRQ_SCRIPT = """
// Interrupt handlers: from the entry to the exit, by number and name. The stack has what was interrupted.

tracepoint:irq:irq_handler_entry /@on == 1 && WANTED/ {
    if (@start[cpu, args->irq] != 0) {
        @missed = count();
    }
    @kept[cpu, args->irq] = str(args->name);
    @start[cpu, args->irq] = nsecs;
    if (@start[cpu, args->irq] == 0) {
        @table_full = count();
    }
}

tracepoint:irq:irq_handler_exit {
    $start = @start[cpu, args->irq];
    if ($start != 0) {
        MEASURE
        if (REPORTED) {
            printf(EVENT, COUNTED, pid, PARENT, tid, args->irq, 0, kstack(perf), ustack(perf),
                @kept[cpu, args->irq], comm);
        }
        delete(@start[cpu, args->irq]);
    }
}
"""


def _irq_labels(number: int, name: str, _operation: int) -> Labels:
    return (("vector", name or str(number)),)


_SOFTIRQ = """
// Soft interrupts: from the entry to the exit of a vector's handler. The stack has what was interrupted.
//
// The argument of these raw tracepoints is the vector.

RAW_TRACEPOINT_PROBE(softirq_entry) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = bpf_get_smp_processor_id(), .part = ctx->args[0]};
    struct entry *entry = begin_again(ctx, s, &key);
    if (entry) {
        entry->number = ctx->args[0];
        entry->start = bpf_ktime_get_ns();
    }
    return 0;
}

RAW_TRACEPOINT_PROBE(softirq_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = bpf_get_smp_processor_id(), .part = ctx->args[0]};
    if (s)
        end_again(ctx, s, &key);
    return 0;
}
"""

_SOFTIRQ_SCRIPT = """
// Soft interrupts: from the entry to the exit of a vector's handler. The stack has what was interrupted.

tracepoint:irq:softirq_entry /@on == 1 && WANTED/ {
    if (@start[cpu, args->vec] != 0) {
        @missed = count();
    }
    @start[cpu, args->vec] = nsecs;
    if (@start[cpu, args->vec] == 0) {
        @table_full = count();
    }
}

tracepoint:irq:softirq_exit {
    $start = @start[cpu, args->vec];
    if ($start != 0) {
        MEASURE
        if (REPORTED) {
            printf(EVENT, COUNTED, pid, PARENT, tid, args->vec, 0, kstack(perf), ustack(perf), "", comm);
        }
        delete(@start[cpu, args->vec]);
    }
}
"""

_SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")


def _softirq_labels(number: int, _name: str, _operation: int) -> Labels:
    return (("vector", _SOFTIRQS[number] if number < len(_SOFTIRQS) else str(number)),)


_NETWORK = """
// Packets and connections: receive, from the device until a program reads it; send, from the queue until the
// driver has it; connect, from the first packet until the connection is established.

#define RECEIVE 3
#define SEND 4
#define CONNECT 5
#define ESTABLISHED 1
#define SYN_SENT 2

TRACEPOINT_PROBE(net, netif_receive_skb) {
    struct settings *s = get_settings();
    if (!s)
        return 0;
    // Which process will read it isn't known yet, so it is filtered when it is read.
    struct key key = {.id = (u64)args->skbaddr, .part = RECEIVE};
    struct entry entry = {.operation = RECEIVE, .has_stack = s->at_entry};
    TP_DATA_LOC_READ_CONST(entry.name, name, 15);
    set_current(&entry);
    entry.start = bpf_ktime_get_ns();
    // If there is one already, it is of a packet that was freed without a trace.
    if (entries.update(&key, &entry)) {
        count(SEEN);
        count(TABLE_FULL);
    } else if (entry.has_stack) {
        keep_stack(args, &key);
    }
    return 0;
}

static inline void forget_received(struct key *key) {
    struct entry *entry = entries.lookup(key);
    if (entry)
        forget(key, entry->has_stack);
}

// The first argument of these two raw tracepoints is the packet.
RAW_TRACEPOINT_PROBE(skb_copy_datagram_iovec) {
    struct settings *s = get_settings();
    struct key key = {.id = ctx->args[0], .part = RECEIVE};
    if (!s)
        return 0;
    if (is_wanted(s))
        end_here(ctx, s, &key);
    else
        forget_received(&key);
    return 0;
}

// A packet that no program reads ends here, or when the agent finds it too old. (The tracepoint kfree_skb
// would tell of more, but has a type that older headers don't know.)
RAW_TRACEPOINT_PROBE(consume_skb) {
    struct settings *s = get_settings();
    struct key key = {.id = ctx->args[0], .part = RECEIVE};
    if (s)
        forget_received(&key);
    return 0;
}

TRACEPOINT_PROBE(net, net_dev_queue) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = (u64)args->skbaddr, .part = SEND};
    struct entry entry = {.operation = SEND};
    TP_DATA_LOC_READ_CONST(entry.name, name, 15);
    begin(args, s, &key, &entry, 0);
    return 0;
}

// A packet that has to wait in the device's queue is taken from there by any thread, so its sender's stack is
// kept.
TRACEPOINT_PROBE(qdisc, qdisc_enqueue) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skbaddr, .part = SEND};
    if (!s)
        return 0;
    struct entry *entry = entries.lookup(&key);
    if (entry && !entry->has_stack) {
        entry->has_stack = 1;
        keep_stack(args, &key);
    }
    return 0;
}

TRACEPOINT_PROBE(net, net_dev_xmit) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skbaddr, .part = SEND};
    if (!s)
        return 0;
    struct entry *entry = entries.lookup(&key);
    if (entry && entry->has_stack)
        end_elsewhere(s, &key);
    else
        end_here(args, s, &key);
    return 0;
}

TRACEPOINT_PROBE(sock, inet_sock_set_state) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skaddr, .part = CONNECT};
    if (!s)
        return 0;
    if (args->newstate == SYN_SENT && is_wanted(s)) {
        struct entry entry = {.operation = CONNECT};
        begin(args, s, &key, &entry, 1);
    } else if (args->oldstate == SYN_SENT) {
        if (args->newstate == ESTABLISHED)
            end_elsewhere(s, &key);
        else
            forget(&key, 1);
    }
    return 0;
}
"""

_RECEIVE, _SEND, _CONNECT = 3, 4, 5
_TRANSFERS = {_RECEIVE: "receive", _SEND: "send", _CONNECT: "connect"}


def _network_labels(_number: int, name: str, operation: int) -> Labels:
    device = (("device", name),) if name else ()
    return (*device, ("operation", _TRANSFERS[operation]))


TRACKERS = (
    Tracker(
        name="block",
        title="requests to disks",
        measures="from the issue of a request to a block device until its completion",
        stack="the thread that issued it",
        tracepoints=("block:block_rq_issue", "block:block_rq_complete"),
        program=_BLOCK,
        script=_BLOCK_SCRIPT,
        labels=_block_labels,
        labels_text="`device`; `operation`: `read`, `write`, `discard`, `flush`",
        sent_as="blockio",  # `block` is Go's profile of other waits
    ),
    Tracker(
        name="irq",
        title="interrupts",
        measures="from the entry of an interrupt handler until its exit",
        stack="what it interrupted",
        tracepoints=("irq:irq_handler_entry", "irq:irq_handler_exit"),
        program=_IRQ,
        script=_IRQ_SCRIPT,
        labels=_irq_labels,
        labels_text="`vector`: the handler's name",
    ),
    Tracker(
        name="softirq",
        title="soft interrupts",
        measures="from the entry of a soft interrupt's handler until its exit",
        stack="what it interrupted",
        tracepoints=("irq:softirq_entry", "irq:softirq_exit"),
        program=_SOFTIRQ,
        script=_SOFTIRQ_SCRIPT,
        labels=_softirq_labels,
        labels_text="`vector`: `NET_RX`, `TIMER`, …",
    ),
    Tracker(
        name="network",
        title="the network",
        measures="packets from the device until they are read, and from the queue until the driver has them; "
        "connections until they are established",
        stack="the reader, the sender, or who connects",
        tracepoints=(
            "net:netif_receive_skb",
            "skb:skb_copy_datagram_iovec",
            "skb:consume_skb",
            "net:net_dev_queue",
            "qdisc:qdisc_enqueue",
            "net:net_dev_xmit",
            "sock:inet_sock_set_state",
        ),
        program=_NETWORK,
        labels=_network_labels,
        labels_text="`device`; `operation`: `receive`, `send`, `connect`",
        filtered_at_end=(_RECEIVE,),
        # Packets of these sockets came from no device: a buffer at the same address was freed unseen.
        not_counted=("unix_", "netlink_"),
        # A packet in flight for longer isn't read by any program.
        forgotten_after=30_000_000_000,
    ),
)
