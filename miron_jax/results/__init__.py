"""What a run computed: records, results.json and samples.

    records       a task's, a suite's and a run's numbers
    details       what only one task kind has
    samples       one example
    document      records <-> JSON, the one converter
    output        the folder that a run writes: what is there already
    writing       a finished run -> samples, results.json
    whole         these files, replaced together
    run_folder    that folder, read back
    same_rules    whether numbers of two runs may be compared

Arrives: `RunResult`s and `ExampleResult`s that evaluation made, or a folder of an earlier run.
Leaves: results.json and samples, or these records again.  It deliberately does not know how a
score is computed.
"""
