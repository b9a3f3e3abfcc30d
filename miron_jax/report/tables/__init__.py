"""Tables and lines that the commands print.

Arrives: `RunResult`s; plans, benches, progress.  Leaves: rich tables and lines.  It deliberately
computes no score.
"""
