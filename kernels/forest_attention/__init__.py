"""Attention in which key k is visible to query q exactly when k <= q < until[k] (and lies inside the window).

`reference` is the definition, `xla` runs everywhere, `tpu` and `cudnn` where `choose` finds that they agree with it,
`hopper` where it is asked for besides; `cases` are shared by tests and benchmarks.
"""

from typing import Literal

Name = Literal["xla", "cudnn", "hopper", "tpu"]
