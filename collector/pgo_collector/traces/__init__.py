"""Traces: where the time of one request goes, for those who hold a trace key.

`gate` is the outermost layer: it lets a signed request be traced (`signing`, `keys`), and passes all others
on. When a client has its answer it may tell how long all took (`reports`). Inside, `spans.span` times a step;
it does nothing unless the request that it works for is traced.
`tracing` has the queue between requests and the `outlets`: `trace_store` keeps traces in a file of its own,
and `exporter` sends them on by OTLP.
`trees`, `texts`, `waterfall` and `profiles` turn what was kept into what people and tools read; `forms` lists
the forms of one trace, and `saved` reads a file of them back.
"""
