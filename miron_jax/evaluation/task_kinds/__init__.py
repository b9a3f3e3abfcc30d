"""Task kinds, each with its prompts and scores: choices, dialogues, generation, programs, cloze
items.

Arrives: a `Task` with its examples, a tokenizer; then scores and completions.  Leaves:
`TaskScores`, which give estimates, samples and a part of results.json.  It deliberately does not
know plans, devices or files of results.

A file with a dict `KINDS`, by the names of `Task.kind`, defines kinds (kinds.py collects them); the
rest of the program uses only `TaskKind` and `TaskScores` (interface.py).
"""
