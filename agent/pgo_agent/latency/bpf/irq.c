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
