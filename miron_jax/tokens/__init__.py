"""Prompts + tokenizer -> requests: token ids and scored spans; BOS, boundary, truncation and token-healing rules.

Arrives: `Prompt`s, problems and cloze items.  Leaves: `Requests`, flat NumPy arrays.  It deliberately does not know models,
devices or data files.
"""
