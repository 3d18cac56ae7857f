"""Forms: what a trace can be written as, by the names that `trace show` and the API have for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.texts import chrome_of, dot_of, json_of, text_of
from pgo_collector.traces.waterfall import page_of


class Form(NamedTuple):
    """A form: its media type, and the function that writes a trace's id and requests in it."""

    media_type: str
    write: Callable[[str, Sequence[RequestTrace]], str]


# The first one is the API's default.
FORMS = {
    "json": Form("application/json", lambda _, requests: json_of(requests)),
    "text": Form("text/plain", lambda _, requests: text_of(requests)),
    "html": Form("text/html", page_of),
    "dot": Form("text/vnd.graphviz", lambda _, requests: dot_of(requests)),
    "chrome": Form("application/json", lambda _, requests: chrome_of(requests)),
}
