"""Joins the engine's scores and completions with the examples of the tasks.

Arrives: sources (tasks with their examples), scores, completions.  Leaves: each task's scored examples.  It deliberately
does not know how they are averaged or written.  `composites` hands a suite its tasks' means, and takes intervals from
statistics/estimate.
"""
