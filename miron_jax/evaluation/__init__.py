"""A run: finds tasks and data, plans requests, joins the engine's scores with the examples, sums
them up as a `FinishedRun`.

Arrives: a RunConfig; scores and completions of the engine.  Leaves: a `FinishedRun`, whose
`RunResult` has the numbers of tasks and composites.  It deliberately does not know how results are
written or shown.

inputs, session                     the tasks of a run and their data; a model with its programs
run                                 composes the stages
parts, sampling, texts, earlier     what is scored next, and what was
task_kinds/                         what differs from kind to kind
run_result, composites              sums
"""
