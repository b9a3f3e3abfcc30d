"""Attention in which key k is visible to query q exactly when k <= q < until[k] (and lies inside the window).

`reference` is the definition, `xla` runs everywhere; `cases` are shared by tests and benchmarks.
"""
