"""Frozen request sets: (context, continuation) pairs that another program dumped -> the suite
`requests` (docs/requests.md).

Arrives: a folder.  Leaves: a `Suite`.  It deliberately does not know how the pairs were made.
"""
