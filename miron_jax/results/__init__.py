"""What a run computed: records, and results.json.

    records       a task's, a suite's and a run's numbers
    details       what only one task kind has
    samples       one example
    document      records <-> JSON, the one converter
    output        the folder that a run writes
    run_folder    that folder, read back
    same_rules    whether numbers of two runs may be compared

Arrives: estimates and counts of the task kinds, costs of the run.  Leaves: `RunResult`,
results.json, samples.  It deliberately does not know how a score is computed.
"""
