"""A profile as views show it, as `go tool pprof` makes one ready when it reads it."""

from __future__ import annotations

from pprof_merge.analysis.demangling import with_demangled_names
from pprof_merge.analysis.dropped_frames import without_dropped_frames
from pprof_merge.profile import Profile


def as_shown(profile: Profile) -> Profile:
    """Return a profile with demangled names and without the frames that it drops, by these names.

    One that is so already is returned as it is.
    """
    return without_dropped_frames(with_demangled_names(profile))
