"""Hooks: the webhook that is called when a profile is stored.

`deliveries` makes the event, which the store puts into the catalog's outbox, and delivers it from there.
`endpoint` posts it to the receiver's URL, signed.
"""
