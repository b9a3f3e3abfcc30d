"""Figures of runs, by matplotlib: for the page, and for papers.

Arrives: `Run`s, comparisons.  Leaves: figures with captions.  It deliberately does not know where
they are shown.
"""
