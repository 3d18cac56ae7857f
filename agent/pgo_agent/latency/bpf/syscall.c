// System calls: from the entry to the exit, by number.

TRACEPOINT_PROBE(raw_syscalls, sys_enter) {
    struct settings *s = get_settings();
    if (!s || !is_wanted(s))
        return 0;
    struct key key = {.id = (u32)bpf_get_current_pid_tgid()};
    struct entry entry = {.number = args->id};
    begin(args, s, &key, &entry, 0);
    return 0;
}

TRACEPOINT_PROBE(raw_syscalls, sys_exit) {
    struct settings *s = get_settings();
    struct key key = {.id = (u32)bpf_get_current_pid_tgid()};
    if (s)
        end_here(args, s, &key);
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
