"""miron-gen: generated items in the manner of MIRON; `items` makes all of them."""
