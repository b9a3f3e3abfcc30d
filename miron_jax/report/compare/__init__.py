"""Runs side by side: their tasks, single examples, bytes of texts, and training noise.

    runs              paired differences of two runs
    table             on screen and as JSON
    policy, gate      rules of a file, and what becomes of them
    byte_gaps         where two runs differ on texts
    training_noise    how far numbers move between checkpoints

Arrives: `Run`s.  Leaves: differences, or why there are none.  It deliberately does not know how a
score is made.
"""
