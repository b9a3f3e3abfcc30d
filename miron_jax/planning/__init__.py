"""Requests -> plan: every unique token in a row once, as a forest of token tries.  NumPy only, no
JAX.

Arrives: `Requests` and the cost of a row.  Leaves: a `Plan`.  It deliberately does not know models
or devices.
"""
