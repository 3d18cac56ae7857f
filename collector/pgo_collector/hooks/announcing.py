"""Announcing: the event of a profile that was stored, with the payload that Standard Webhooks recommends."""

from __future__ import annotations

import json
import secrets
import time

from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.facts import Event, Facts
from pgo_collector.model.times import written

_TYPE = "profile.stored"


def announce(name: BlobName, facts: Facts) -> list[Event]:
    """The one event of a profile that is stored now; what it says of the profile, /v1/profiles says too."""
    now = time.time_ns()
    id_ = f"evt_{secrets.token_hex(16)}"
    stored_at = written(now)
    body = {
        "type": _TYPE,
        "id": id_,
        "timestamp": stored_at,
        "data": {
            "id": str(name),
            "service": name.series.service,
            "type": name.series.type,
            "labels": dict(name.series.labels),
            "time": written(name.identity.time_nanos),
            "duration_seconds": facts.duration_nanos / 10**9,
            "bytes": facts.size,
            "samples": facts.samples,
            "stored_at": stored_at,
        },
    }
    return [Event(id_, now, json.dumps(body))]
