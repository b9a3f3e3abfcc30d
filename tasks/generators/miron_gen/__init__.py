"""miron-gen: generated items, one file a category and language; `items` puts them together."""
