"""What holds for all tests: hypothesis times nothing, since a busy machine is no fault of the code's."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# For hours in which there is time for more: `make test ARGS="--hypothesis-profile campaign …"`.
settings.register_profile("campaign", max_examples=4000)
