"""Attention in which key k is visible to query q exactly when k <= q < subtree_end[k] (and lies inside the window).

`reference` is the definition.  `xla` runs on every device; `choose` uses `tpu` or `cudnn` on a device on which it agrees
with the definition.  Tests and benchmarks share `cases`.
"""

from typing import Literal

Name = Literal["xla", "cudnn", "tpu"]
