"""Plan + weights -> log-probabilities and ranks; generation; texts that grow; the self-check.

Arrives: plans, token ids, a `Model`.  Leaves: `Scores` and generated texts.  It deliberately does
not know tasks or words.
"""
