"""How each kind of task is asked and scored: choices, dialogues, generated answers, programs, cloze items.

Arrives: a `Task` with its examples, a tokenizer; then scores and texts.  Leaves: `TaskScores`, which know their estimates,
their samples and their part of results.json.  It deliberately does not know plans, devices or files of results.

A file here that has `KINDS`, by the names that tasks call them, is a kind (kinds.py finds it); the rest of the program knows
`TaskKind` and `TaskScores` alone (interface.py).
"""
