"""Turns the exceptions of a command into one sentence and an exit status.

Arrives: a command that runs.  Leaves: an exit status of errors.py.  It deliberately does not know
which command it is.
"""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from absl import flags, logging

from miron_jax.cli import processes
from miron_jax.errors import BAD_INPUT, FAILED, RUN_AGAIN, RunEnded, printable
from miron_jax.runtime import limits, signals

FLAGS = flags.FLAGS


def guarded(action: Callable[[], None], rest: Sequence[str]) -> int:
    """Run a command; print what it raises as a sentence, and return the exit status."""
    signals.install()
    logging.set_verbosity(logging.WARNING)  # at INFO jax logs which backends it looked for
    if rest[1:]:
        sentence = (
            f"{printable(repr(rest[1]))} is no flag, expected --name=value; lists have commas and "
            "no spaces"
        )
        print(f"miron-jax: {sentence}: --tasks=core,miron-gen", file=sys.stderr)
        return BAD_INPUT
    try:
        is_supervised = processes.wants_others() or limits.are_set()
        if is_supervised and (status := processes.supervised()) is not None:
            return status
        action()
    except RunEnded as error:
        return _failed(error.status, str(error))
    except OSError as error:
        if lacks_resources(error):
            return _failed(FAILED, limits.sentence(str(error)))
        return _failed(BAD_INPUT, _of_system(error))
    except KeyboardInterrupt as interrupt:
        _failed(RUN_AGAIN, signals.SENTENCE)
        # the machine does not wait for threads that prefetch
        if getattr(interrupt, "is_preemption", False):
            sys.stderr.flush()
            os._exit(RUN_AGAIN)
        return RUN_AGAIN
    except (SystemExit, Exception) as error:  # a user's model may exit
        if lacks_resources(error):
            return _failed(FAILED, limits.sentence(str(error) or "out of memory"))
        if processes.joined is None:
            raise
        processes.joined.leave_if_one_is_lost(error)
        traceback.print_exc()
        processes.joined.fail(FAILED, f"{type(error).__name__}: {error}")
    return 0


def lacks_resources(error: BaseException) -> bool:
    """Whether Python was refused memory, a thread or a process; XLA aborts the process where it
    is."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN)
    refusals = ("can't start new thread", "failed to map segment")
    return isinstance(error, MemoryError) or any(text in str(error) for text in refusals)


def _of_system(error: OSError) -> str:
    """What the operating system refused, where, and what to do."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    path = error.filename
    if path is None and is_full and "output" in FLAGS:
        path = f"--output={FLAGS.output}"
    remedy = "check that it is there and may be used"
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "change its permissions for this user, or those of its folder, or name another"
    if is_full:
        remedy = (
            "free space there, or name another --output; what is finished stays, and the same "
            "command goes on"
        )
    return f"{f'{path}: ' if path else ''}{error.strerror or error}: {remedy}"


def _failed(status: int, message: str) -> int:
    """Print the message, end the other processes with it, and return the status."""
    message = printable(message).replace("\n", " ")
    print(f"miron-jax: {message}", file=sys.stderr, flush=True)
    if processes.joined is not None:
        processes.joined.fail(status, message)
    return status
