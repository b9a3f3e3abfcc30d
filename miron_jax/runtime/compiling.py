"""Programs that threads compile.

Arrives: a function that traces and compiles.  Leaves: a future of its result.  It deliberately does
not know programs.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import jax

from miron_jax.runtime import timeline

_Result = TypeVar("_Result")


def in_thread(make: Callable[[], _Result]) -> Future[_Result]:
    """Call it in a thread with this thread's matmul precision, which a trace hangs on.

    The process ends after it: an interpreter that ends while XLA compiles aborts.
    """
    precision = jax.config.values["jax_default_matmul_precision"]
    future = Future[_Result]()
    count = timeline.counted_in_thread()

    def work() -> None:
        count()
        try:
            with jax.default_matmul_precision(precision), timeline.spent_on("compile"):
                future.set_result(make())
        except BaseException as error:  # the caller raises it
            future.set_exception(error)

    threading.Thread(target=work).start()
    return future
