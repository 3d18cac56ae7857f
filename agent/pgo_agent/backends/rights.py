"""Name the rights over the kernel that this process lacks."""

from __future__ import annotations

import re
from pathlib import Path

# The bits of https://man7.org/linux/man-pages/man7/capabilities.7.html.
_BITS = {"CAP_IPC_LOCK": 14, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
_PARTS = {"CAP_PERFMON", "CAP_BPF"}  # of CAP_SYS_ADMIN, until Linux 5.8
_ALL_USERS = "0 0 4294967295"


def missing_rights(*capabilities: str, proc: Path = Path("/proc/self")) -> list[str]:
    """Return what keeps this process from having these capabilities, with the fix; nothing if it has them."""
    if _in_user_namespace(proc):
        reason = "it runs in a user namespace, whose root has no rights over the kernel"
        return [f"{reason}: run it as the machine's root, not in a rootless container or by unshare --user"]
    missing = lacking(*capabilities, proc=proc)
    if not missing:
        return []
    named = f"capabilities {' and '.join(missing)} are" if missing[1:] else f"capability {missing[0]} is"
    added = " ".join(f"--cap-add {name}" for name in missing)
    return [f"the {named} missing: run it as root, and in a container with {added}"]


def lacking(*capabilities: str, proc: Path = Path("/proc/self")) -> list[str]:
    """Return which of these capabilities this process lacks. CAP_SYS_ADMIN brings its parts."""
    found = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", (proc / "status").read_text(), re.MULTILINE)
    effective = int(found[1], 16) if found else 0
    had = {name for name, bit in _BITS.items() if effective >> bit & 1}
    if "CAP_SYS_ADMIN" in had:
        had |= _PARTS
    return [name for name in capabilities if name not in had]


def _in_user_namespace(proc: Path) -> bool:
    return " ".join((proc / "uid_map").read_text().split()) != _ALL_USERS
