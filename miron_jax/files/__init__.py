"""Files and their names: guarded readers of JSON and YAML, paths and URLs, data sets of the hub,
the output store.

Arrives: paths, URLs, bytes of files that may be damaged.  Leaves: values within stated bounds, or
an error of one sentence; a `Store` that writes whole files.  It deliberately does not know what the
files mean.
"""
