"""Crowd annotations -> a human baseline: read, filter annotators, vote, measure agreement, compare with gold.

`annotations` reads files, `votes` decides labels, `agreement` says how far annotators agree, `gold` knows right answers,
`baseline` puts them together.  Nothing here knows models.
"""
