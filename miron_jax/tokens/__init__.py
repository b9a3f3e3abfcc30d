"""Prompts + tokenizer -> requests: token ids and scored spans; BOS, boundary, truncation and
token-healing rules.

Truncation: truncation.  BOS (`Wording.bos`): tokenizers.first_tokens; where segments are tokenized
apart, as the tokenizer adds it (requests), and so for cloze items (cloze_requests).

Arrives: `Prompt`s, problems and cloze items.  Leaves: `Requests`, flat NumPy arrays.  It
deliberately does not know models, devices or data files.
"""
