"""Push: the contract of a profile that another system's agent sends, whatever its protocol.

`naming` says which series a profile belongs to, `errors` how a refusal is answered as Connect does it, and
`messages` reads and writes Connect's messages.
"""
