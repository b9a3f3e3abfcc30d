"""Access to the machine: XLA flags, devices, hosts, signals, the journal of finished work, the
sandbox for programs.

Arrives: flags, arrays, finished scores and texts, programs.  Leaves: `Placement`, `Hosts`,
`Journal`, `Sandbox`.  It deliberately does not know models or benchmarks.
"""
