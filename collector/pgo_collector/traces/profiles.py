"""Traces as profiles: the spans of many requests as one pprof profile, for flame graphs, merges and diffs.

A stack is the path of names from the request to a step, and its value is the self time of the step: its
duration less the union of the steps below it. So the values of a request's stacks add up to what the request
took, and to more only where steps ran at the same time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from pprof_proto import profile_pb2

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.texts import printable
from pgo_collector.traces.trees import paths_of, tree_of


def profile_of_traces(requests: Iterable[RequestTrace]) -> bytes:
    """Return a profile of requests, as bare protobuf, with the values `steps` (count) and `time` (ns).

    Its time is that of the first request, and its duration reaches to the end of the last.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    nanos: Counter[tuple[str, ...]] = Counter()
    begin = end = 0
    traces: defaultdict[str, list[RequestTrace]] = defaultdict(list)
    for request in requests:
        traces[request.trace].append(request)
    for of_one in traces.values():
        steps = tree_of(of_one)
        for step, path in zip(steps, paths_of(steps), strict=True):
            counts[path] += 1
            nanos[path] += max(step.self_nanos, 0)
            begin = min(begin or step.span.start, step.span.start)
            end = max(end, step.span.end)
    profile = profile_pb2.Profile(time_nanos=begin, duration_nanos=end - begin, period=1)
    strings: dict[str, int] = {"": 0}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings))

    for type_, unit in (("steps", "count"), ("time", "nanoseconds")):
        profile.sample_type.add(type=number(type_), unit=number(unit))
    profile.period_type.type, profile.period_type.unit = number("time"), number("nanoseconds")
    profile.default_sample_type = number("time")
    functions: dict[str, int] = {}
    for path, count in sorted(counts.items()):
        for name in path:
            if name not in functions:
                functions[name] = id_ = len(functions) + 1
                profile.function.add(
                    id=id_, name=number(printable(name)), system_name=number(printable(name))
                )
                profile.location.add(id=id_).line.add(function_id=id_)
        stack = [functions[name] for name in reversed(path)]
        profile.sample.add(location_id=stack, value=[count, nanos[path]])
    profile.string_table.extend(text.encode() for text in strings)
    return profile.SerializeToString(deterministic=True)
