"""Memory and threads that a run may have: `ulimit -v`, `ulimit -u`, those of a container.

Arrives: the limits of this process.  Leaves: a sentence where a run cannot start under them.  It
deliberately does not know what the run computes.

XLA aborts the process where a thread or memory is refused, so both are tried first.
"""

import mmap
import os
import resource
import threading
from contextlib import suppress

from miron_jax.errors import InputError

# What the smallest run takes beside what the interpreter has (jaxlib 0.10.2, CPU, 2026-11-28): 2.42
# GB of addresses on one processor, 2.41 on two; 22 threads on one, 26 on two.
ADDRESS_BYTES = 2_300_000_000
THREADS = 16
THREADS_PER_PROCESSOR = 4
_FEW_THREADS = 4096  # machines allow more where nobody has set a limit


def check_limits() -> None:
    """Raises InputError if no run could have the memory or the threads that it needs."""
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        mmap.mmap(-1, ADDRESS_BYTES, flags=flags, prot=mmap.PROT_READ).close()
    except (OSError, MemoryError):
        raise InputError(
            f"this process may not map {ADDRESS_BYTES / 1e9:g} GB more, which the smallest run "
            f"needs{_of_limit(resource.RLIMIT_AS, 1024, ' kB (ulimit -v)')}: raise the limit"
        ) from None
    num_processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        num_processors = len(os.sched_getaffinity(0))
    num_threads = THREADS + THREADS_PER_PROCESSOR * num_processors
    started = _num_threads_that_start(num_threads)
    if started < num_threads:
        raise InputError(
            f"this process may start {started} threads, expected {num_threads}, which the smallest "
            f"run needs{_of_limit(resource.RLIMIT_NPROC, 1, ' processes of this user (ulimit -u)')}"
            ": raise the limit, or those of memory (ulimit -v) or of the container, or run less "
            "beside it"
        )


def are_set() -> bool:
    """Whether somebody has limited memory or threads, so that XLA may abort in the middle of a
    run."""
    memory = resource.getrlimit(resource.RLIMIT_AS)[0]
    threads = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return memory != resource.RLIM_INFINITY or 0 <= threads < _FEW_THREADS


def sentence(what: str) -> str:
    """What ended a run that was refused memory or a thread."""
    return (
        f"this process was refused memory or threads ({what}): raise its limits (ulimit -v, ulimit "
        "-u, those of the container), or run less beside it; what is finished stays, and the same "
        "command goes on"
    )


def _of_limit(which: int, unit: int, name: str) -> str:
    limit = resource.getrlimit(which)[0]
    return "" if limit == resource.RLIM_INFINITY else f", the limit being {limit // unit}{name}"


def _num_threads_that_start(count: int) -> int:
    """How many of so many threads can be there at once."""
    is_over = threading.Event()
    threads: list[threading.Thread] = []
    with suppress(RuntimeError, MemoryError):
        for _ in range(count):
            thread = threading.Thread(target=is_over.wait, daemon=True)
            thread.start()
            threads.append(thread)
    is_over.set()
    for thread in threads:
        thread.join()
    return len(threads)
