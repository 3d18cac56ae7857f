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
