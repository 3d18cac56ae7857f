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

// A packet that no program reads ends here, or when the agent finds it too old. (The tracepoint kfree_skb would
// tell of more, but has a type that older headers don't know.)
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

// A packet that has to wait in the device's queue is taken from there by any thread, so its sender's stack is kept.
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
