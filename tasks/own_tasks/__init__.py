"""Tasks of a user's own: a YAML file beside a data file -> a task of the suite `own`
(docs/own_tasks.md).

Arrives: YAML files.  Leaves: a `Suite`.  It deliberately does not know models; no template or file
can run code.
"""
