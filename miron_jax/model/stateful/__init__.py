"""Networks that carry a state from token to token: their parts, and rows with branches through
them.

Arrives: a network with `state` and `step`, a batch.  Leaves: hidden states.  It deliberately does
not know families.
"""
