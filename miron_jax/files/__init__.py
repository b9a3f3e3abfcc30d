"""Files and their names: guarded readers of JSON and YAML, places on disk and in object stores, the hub's commits.

Arrives: paths, URLs, bytes of files that may be damaged.  Leaves: values within stated bounds, or one sentence; a
`Store` that writes whole files.  It deliberately does not know what the files mean.
"""
