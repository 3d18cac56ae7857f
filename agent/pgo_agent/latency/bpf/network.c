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
    struct entry entry = {.operation = RECEIVE};
    TP_DATA_LOC_READ_CONST(entry.name, name, 15);
    entries.delete(&key); // of a packet that was freed without a trace
    begin(args, s, &key, &entry, 0);
    return 0;
}

TRACEPOINT_PROBE(skb, skb_copy_datagram_iovec) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skbaddr, .part = RECEIVE};
    if (!s)
        return 0;
    if (is_wanted(s))
        end_here(args, s, &key);
    else
        forget(&key, 1);
    return 0;
}

// A packet that no program reads ends here, or when the agent finds it too old. (The tracepoint kfree_skb would
// tell of more, but has a type that older headers don't know.)
TRACEPOINT_PROBE(skb, consume_skb) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skbaddr, .part = RECEIVE};
    if (s)
        forget(&key, 1);
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

TRACEPOINT_PROBE(net, net_dev_xmit) {
    struct settings *s = get_settings();
    struct key key = {.id = (u64)args->skbaddr, .part = SEND};
    if (s)
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
