// System calls: from the entry to the exit, by number.
//
// There may be millions a second, so these are raw tracepoints: the kernel makes no record of each call for them.
// The arguments of `sys_enter` are the registers and the number.

RAW_TRACEPOINT_PROBE(sys_enter) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = (u32)bpf_get_current_pid_tgid()};
    struct entry *entry = begin_again(ctx, s, &key);
    if (entry) {
        entry->number = ctx->args[1];
        entry->start = bpf_ktime_get_ns();
    }
    return 0;
}

RAW_TRACEPOINT_PROBE(sys_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = (u32)bpf_get_current_pid_tgid()};
    if (s)
        end_again(ctx, s, &key);
    return 0;
}

// The call in which a thread ends has no exit.
TRACEPOINT_PROBE(sched, sched_process_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = (u32)bpf_get_current_pid_tgid()};
    if (s)
        forget(&key, 1);
    return 0;
}
