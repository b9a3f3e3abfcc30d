"""What one run may take, and where its folder is.

Arrives: nothing.  Leaves: `Limits`.  It deliberately does not know what enforces them.
"""

from dataclasses import dataclass

FOLDER = "/box"  # the run's folder, as it sees it


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take."""

    seconds: float = 10.0  # wall-clock, from the program's first instruction
    cpu_seconds: float = 40.0  # of processors, of the whole process tree
    memory_bytes: int = 2 << 30  # of the whole process tree
    processes: int = 64
    output_bytes: int = 1 << 20  # of standard output, and of the value
    folder_bytes: int = 256 << 20
    files: int = 4096  # in its folder, subfolders included
    # That many runs one after another: its clocks start again, so many times less one, when there
    # is more of the value.
    rounds: int = 1
