"""Recognizing other formats: what bytes that aren't a pprof profile are, and how to get a profile from them.

The merge engine and the agent's scraper ask after they failed to read a profile, so valid ones pay nothing.
Only the first 4 KiB are read.
"""

from __future__ import annotations

import re

_HEAD_BYTES = 4096
_CONVERT = "convert it with `go tool pprof -proto PROGRAM FILE > profile.pb.gz`"
_MAGICS = (
    (b"PERFILE2", "a recording of perf; convert it with `pgo-agent convert FILE -o cpu.pb.gz`"),
    (
        b"FLR\0",
        "a recording of Java Flight Recorder; convert it with async-profiler's `jfrconv FILE cpu.pb.gz`",
    ),
    (b"\x7fELF", "a program (ELF); send a profile of it"),
    (b"GO PREPROFILE V1", "what `go tool preprofile` makes of a profile; send the profile itself"),
    (b"PK\x03\x04", "a zip archive; send the profiles in it one by one"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; send it with gzip, or uncompressed"),
    (b"\xfd7zXZ\0", "compressed with xz; send it with gzip, or uncompressed"),
    (b"BZh", "compressed with bzip2; send it with gzip, or uncompressed"),
)
# The beginning of Go's profiles with debug=1, and of profiles of gperftools and other C++ and Java servers,
# after empty lines and comments. See google/pprof, profile/legacy_profile.go.
_OLD_TEXT = (
    rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*"
    rb"(?:heap profile: *\d|\S+ profile: total \d|--- (?:contentionz?|mutex|heapz|threadz|Thread)\b)"
)
_OLD_TEXT_ADVICE = f"a profile in pprof's old text format; {_CONVERT}, or fetch it without `debug=1`"
_TRACE_ADVICE = (
    "an execution trace of Go; send a profile, from /debug/pprof/profile or by "
    "`go tool trace -pprof=sched FILE > sched.pb.gz`"
)
_PAGE_ADVICE = "HTML or XML, such as a login or error page; check what its URL returns"
_FOLDED_ADVICE = (
    "folded stacks, which lack most of a profile; send the profile or recording that they were made from"
)
_FORM_ADVICE = "a form, as `curl -F` sends it; send the profile alone, with `curl --data-binary @FILE`"
# The marshalled dictionary of pstats, whose keys are file, line and function.
_CPROFILE_ADVICE = (
    "a profile of Python's cProfile, which has no stacks; take one with pgo-agent's `StackSampler`"
)
_SPEEDSCOPE_ADVICE = "a file of speedscope, which lacks most of a profile; set the profiler to write pprof"
_V8_ADVICE = (
    "a .cpuprofile of V8 (Node, browsers); take a profile with `npx pprof-it PROGRAM.js`, which writes pprof"
)
_TEXTS = (
    (rb"--[^\r\n]{1,200}\r\n(?i:content-disposition:)", _FORM_ADVICE),
    (rb"[{\xfb][)\xa9]\x03", _CPROFILE_ADVICE),
    (_OLD_TEXT, _OLD_TEXT_ADVICE),
    (rb"goroutine \d+ [^\n]*\[", "a dump of goroutines; fetch it without `debug=2`"),
    (rb"go 1\.\d+ trace\0", _TRACE_ADVICE),
    (rb"(?i)\s*<(?:!doctype|!--|html|head|body|\?xml|svg)", _PAGE_ADVICE),
    (rb"\s*\{[^\0]*speedscope\.app/file-format-schema", _SPEEDSCOPE_ADVICE),
    (rb"\s*\{[^\0]*\"callFrame\"\s*:\s*\{", _V8_ADVICE),
    (rb"\s*[\[{]\s*[\"\[{}\]\d-]", "JSON, as browsers write it; set the profiler to write pprof"),
    (rb"[^\s;][^\n;]*;[^\n]* \d+(?:\.\d+)?\r?(?:\n|\Z)", _FOLDED_ADVICE),
)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def other_format(data: bytes) -> str | None:
    """Return what the uncompressed bytes are, and what to do with them, in words; None if they are unknown.

    Never raises. A valid profile may be mistaken for another format, so try to decode the bytes first.
    """
    head = data[:_HEAD_BYTES]
    for magic, advice in _MAGICS:
        if head.startswith(magic):
            return advice
    if _is_binary_cpu_profile(head):
        return f"a CPU profile in gperftools' own format; {_CONVERT}"
    for pattern, advice in _TEXTS:
        if re.match(pattern, head):
            return advice
    if _is_text(head):
        return "text, in no format that is known here; send pprof's protobuf, gzip or bare"
    return None


def _is_binary_cpu_profile(head: bytes) -> bool:
    """Return whether the bytes begin with gperftools' header: words 0, 3, 0 (1 in Java), the period, 0."""
    for size in (4, 8):
        for order in ("little", "big"):
            words = [int.from_bytes(head[at : at + size], order) for at in range(0, 5 * size, size)]
            zero, length, kind, period, padding = words
            if (zero, length, padding) == (0, 3, 0) and kind in {0, 1} and period and len(head) >= 5 * size:
                return True
    return False


def _is_text(head: bytes) -> bool:
    text = head.decode(errors="replace").rstrip(
        "\N{REPLACEMENT CHARACTER}"
    )  # the head may end within a character
    return bool(text.strip()) and not _UNPRINTABLE.search(text) and "\N{REPLACEMENT CHARACTER}" not in text
