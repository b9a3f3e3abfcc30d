"""Joins what the engine computes to the examples that asked for it.

Arrives: sources (tasks with their examples), scores, texts.  Leaves: each task's examples, scored.  It deliberately
does not know how they are averaged or written.
"""
