"""The decoder of most families: attention, MLP or experts, norms, RoPE, the key/value cache,
shardings of its weights.

Arrives: a `ModelConfig`, weights, a batch.  Leaves: hidden states, `Head`.  It deliberately does
not know files or families.
"""
