"""Task kinds, each with its prompts and scores: choices, dialogues, generation, programs, cloze
items.

Arrives: a `Task` with its examples, a tokenizer; then scores and completions.  Leaves: the rows of
`TaskScores`, one an example; from these a `TaskResult` and an `ExampleResult` for each row.  It
deliberately does not know plans, devices, JSON or files.

A file with a dict `KINDS`, by the names of `Task.kind`, defines kinds (kinds.py collects them); the
rest of the program uses only `TaskKind` and `TaskScores` (interface.py).
"""
