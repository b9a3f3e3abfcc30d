"""Estimates with their errors and intervals, of tasks and of composites; human gaps, robustness.

Arrives: scored examples.  Leaves: `Estimate`s, float64.  It deliberately does not know what a
metric means.
"""
