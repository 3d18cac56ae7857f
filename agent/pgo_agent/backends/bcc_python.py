"""Read in the kernel, at a sample, which Python functions the sampled thread runs: C for `bcc_program`.

The agent finds the interpreter of a process, and says where it keeps its frames (the table `pythons`); their
names it reads afterwards (`native.python_stacks`). Like `bcc_parts`, this is imported without its package.
"""

from __future__ import annotations

import re

MOST_FRAMES, FRAME_BYTES = 256, 32  # that are told, and of each
_MOST_THREADS = 1024
_MOST_PASSED = 1024  # further frames, in which the next entry from C is looked for
_TEXT = """
struct item {
    u64 code;        // the code object, or 0
    u64 instruction;
    u64 fingerprint; // of the code
    u64 entry;       // if C was entered for this frame, an address in the stack frame of that C function
};
// native.interpreters.FrameLayout says what each is.
enum layout {
    INTERPRETERS, NEXT_INTERPRETER, THREADS, NEXT_THREAD, THREAD_ID, CURRENT, THROUGH, FRAME, OUTER, CODE,
    INSTRUCTION, PREVIOUS, ENTRY, ENTRY_VALUE, HAS_CODE, QUALNAME, LINETABLE, HASH, PYTHON_WORDS
};
struct python {
    u64 words[PYTHON_WORDS];
};
BPF_TABLE("lru_hash", u32, struct python, pythons, 4096);

static inline u64 word(u64 address) {
    u64 found = 0;
    bpf_probe_read_user(&found, sizeof(found), (void *)address);
    return found;
}

static inline u8 byte(u64 address) {
    u8 found = 0;
    bpf_probe_read_user(&found, sizeof(found), (void *)address);
    return found;
}

// Return the interpreter's structure for the running thread; 0 if it has none. Python's number of a thread is
// the address where libc keeps it, to which the register fs points.
static inline u64 python_thread(u64 *of) {
    u64 own = 0;
    bpf_probe_read_kernel(&own, sizeof(own), (void *)copied_thread() + FSBASE);
    u64 interpreter = word(of[INTERPRETERS]);
    u64 thread = interpreter ? word(interpreter + of[THREADS]) : 0;
    #pragma clang loop unroll(disable)
    for (u32 at = 0; at < MOST_THREADS && interpreter; at++) {
        if (!thread) {
            interpreter = word(interpreter + of[NEXT_INTERPRETER]);
            thread = interpreter ? word(interpreter + of[THREADS]) : 0;
        } else if (word(thread + of[THREAD_ID]) == own) {
            return thread;
        } else {
            thread = word(thread + of[NEXT_THREAD]);
        }
    }
    return 0;
}

// Write the Python frames of the running thread, innermost first, and how many there are. If these are too
// many, an item without code says where the C function is that runs the last of them. The count is kept in
// memory, of which the kernel's verifier assumes nothing: else it would check what follows for each count.
static inline void python_frames(u64 *of, struct item *items, volatile u64 *count) {
    u64 thread = python_thread(of);
    u64 current = thread ? word(thread + of[CURRENT]) : 0, frame = current, is_entry = 0;
    if (of[THROUGH])
        frame = word(current + of[FRAME]);
    #pragma clang loop unroll(disable)
    for (u32 at = 0; at < MOST_FRAMES - 1 && frame; at++) {
        struct item *item = items + at;
        is_entry = byte(frame + of[ENTRY]) == of[ENTRY_VALUE];
        item->code = is_entry && !of[HAS_CODE] ? 0 : word(frame + of[CODE]);
        item->instruction = word(frame + of[INSTRUCTION]);
        item->fingerprint = word(item->code + of[LINETABLE]) * 31
                          + word(word(item->code + of[QUALNAME]) + of[HASH]);
        item->entry = is_entry ? (of[HAS_CODE] ? current : frame) : 0;
        if (is_entry && of[HAS_CODE])
            current = word(current + of[OUTER]);
        frame = word(frame + of[PREVIOUS]);
        *count = at + 1;
    }
    if (*count < MOST_FRAMES - 1 || is_entry)
        return;
    #pragma clang loop unroll(disable)
    for (u32 at = 0; at < MOST_PASSED && frame && !is_entry; at++) {
        is_entry = byte(frame + of[ENTRY]) == of[ENTRY_VALUE];
        if (is_entry) {
            struct item *item = items + MOST_FRAMES - 1;
            item->code = item->instruction = item->fingerprint = 0;
            item->entry = of[HAS_CODE] ? current : frame;
            *count = MOST_FRAMES;
        }
        frame = word(frame + of[PREVIOUS]);
    }
}
"""
_NONE = """
struct item { u64 code; };
struct python { u64 words[1]; };
BPF_TABLE("lru_hash", u32, struct python, pythons, 1);
static inline void python_frames(u64 *of, struct item *items, volatile u64 *count) { }
"""


def python_program(fsbase: int | None) -> str:
    """Return C that defines `struct item`, the table `pythons` and `python_frames`.

    It follows the C of copies. `fsbase` is where the kernel has the register fs of a thread (bytes from its
    structure). Without it, no frames are found.
    """
    if fsbase is None:
        return _NONE
    words = {"MOST_FRAMES": MOST_FRAMES, "MOST_THREADS": _MOST_THREADS, "MOST_PASSED": _MOST_PASSED}
    words["FSBASE"] = fsbase
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: str(words[found[0]]), _TEXT)
