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
