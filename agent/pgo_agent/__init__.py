"""The client of a collector, small enough to live in other people's programs."""

from pgo_agent.collector import Collector
from pgo_agent.errors import AgentError, CollectorUnavailable, SubmitRefused

__all__ = ["AgentError", "Collector", "CollectorUnavailable", "SubmitRefused"]
