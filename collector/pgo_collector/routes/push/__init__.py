"""Push: the contract of a profile that another system's agent sends, whatever its protocol.

`naming` says who sends a profile and which series it belongs to, `series` takes requests with many series
apart, and `connect` has the messages and errors of Connect, by which Pyroscope and Parca are called.
`uploads` says which programs their agents should upload. No protocol uses another one's folder; what several
need stands here.
"""
