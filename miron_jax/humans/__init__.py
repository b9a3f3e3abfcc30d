"""Crowd annotations -> a human baseline: read, filter annotators, vote, measure agreement, compare
with gold.

`annotations` reads files, `votes` decides labels, `agreement` measures agreement, `gold` gives
right answers, `baseline` combines them.  Nothing here knows models.
"""
