"""Task + few-shot sampling -> prompts.

Arrives: a task and its examples.  Leaves: one `Prompt` per example, in the suite's own order.  It
deliberately does not know tokens.
"""
