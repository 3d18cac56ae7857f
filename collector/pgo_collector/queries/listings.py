"""Listings: answers with the stored services or profiles, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pgo_collector.catalog.inventory import StoredProfile, StoredService
from pgo_collector.model.ids import uuid_of
from pgo_collector.model.times import format_time
from pgo_collector.queries import answers


def services_of(page: Sequence[StoredService], following: str | None) -> answers.Services:
    """Return the answer with a page of services; `following` is the cursor of the next page."""
    return answers.Services(services=[_service(service) for service in page], next=following)


def profiles_of(page: Sequence[StoredProfile], following: str | None) -> answers.StoredProfiles:
    """Return the answer with a page of stored profiles; `following` is the cursor of the next page."""
    return answers.StoredProfiles(profiles=[_profile(stored) for stored in page], next=following)


def _service(stored: StoredService) -> answers.Service:
    types = [
        answers.ServiceType(
            type=of_type.type,
            profiles=of_type.profiles,
            combined=of_type.combined,
            oldest=format_time(of_type.begin_nanos),
            newest=format_time(of_type.end_nanos),
            bytes=of_type.size,
        )
        for of_type in stored.types
    ]
    return answers.Service(service=stored.service, types=types, labels=stored.labels)


def _profile(stored: StoredProfile) -> answers.StoredProfile:
    series, identity = stored.name.series, stored.name.identity
    return answers.StoredProfile(
        id=str(stored.name),
        profile_id=uuid_of(identity.digest),
        service=series.service,
        time=format_time(identity.time_nanos),
        end_time=format_time(stored.end_nanos) if stored.is_combined else None,
        duration_seconds=stored.duration_nanos / 10**9,
        labels=dict(series.labels),
        dropped_labels=list(series.dropped),
        bytes=stored.size,
        samples=stored.samples,
        combined=stored.is_combined,
    )
