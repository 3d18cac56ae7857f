// Soft interrupts: from the entry to the exit of a vector's handler. The stack has what was interrupted.

TRACEPOINT_PROBE(irq, softirq_entry) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = bpf_get_smp_processor_id(), .part = args->vec};
    struct entry entry = {.number = args->vec};
    begin(args, s, &key, &entry, 0);
    return 0;
}

TRACEPOINT_PROBE(irq, softirq_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = bpf_get_smp_processor_id(), .part = args->vec};
    if (s)
        end_here(args, s, &key);
    return 0;
}
