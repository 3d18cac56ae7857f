"""Settings for all tests: how hypothesis runs, and which signals programs get."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# Nothing is timed: a busy machine is no fault of the code's.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# For hours in which there is time for more: `make test ARGS="--hypothesis-profile campaign …"`.
settings.register_profile("campaign", max_examples=4000)

# A shell has what it starts in the background ignore Ctrl-C, and the programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
