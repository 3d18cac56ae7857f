"""The paths of source files without where they were built, as `go tool pprof -trim_path` shows them.

The rule is google/pprof's (`internal/report/source.go`): the first of some folders that a path is in is cut
off. Views always cut off `/proc/self/cwd`, where Bazel builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pprof_merge.merging.batch import merge
from pprof_merge.profile import Profile

# What pprof cuts off without being asked to.
_USUAL = (b"/proc/self/cwd/./", b"/proc/self/cwd/")


def with_trimmed_paths(profile: Profile, folders: Sequence[str]) -> Profile:
    """Return a profile whose functions' files are without the first of these folders that each is in.

    Functions and stacks that have become equal are one. Without folders it is the profile itself.
    """
    if not folders:
        return profile
    cut = tuple(folder.encode(errors="surrogateescape") for folder in folders)
    functions, texts = profile.functions, list(profile.strings)
    files, of_function = np.unique(functions.filename, return_inverse=True)
    for number, row in enumerate(files.tolist()):
        if (short := _trimmed(texts[row], cut)) != texts[row]:
            files[number] = len(texts)
            texts.append(short)
    return merge([profile.replace(functions=replace(functions, filename=files[of_function]), strings=texts)])


def usually_trimmed(path: str) -> str:
    """Return a path as views show it if nothing else is to be cut off."""
    return path if not path.startswith("/proc/") else _trimmed(path.encode(), ()).decode()


def _trimmed(path: bytes, folders: Sequence[bytes]) -> bytes:
    for folder in (*folders, *_USUAL):
        beginning = folder if folder.endswith(b"/") else folder + b"/"
        if path.startswith(beginning):
            return path[len(beginning) :]
    return path
