"""Start-up of a process of a run: jax's settings, the connection to the other processes, a
supervisor of this one.

Arrives: the flags of hosts.  Leaves: a connected `Hosts`; jax ready to compile.  It deliberately
does not know what the run computes.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.config import RunConfig
from miron_jax.errors import FAILED, GOES_ON, RUN_AGAIN, InputError, printable
from miron_jax.files.places import home_cache, is_url, local_path
from miron_jax.runtime import limits
from miron_jax.runtime.backend import set_backend_flags
from miron_jax.runtime.timeline import spent_on

if TYPE_CHECKING:
    from miron_jax.evaluation.helpers import Helped
    from miron_jax.files.kept import KeptArrays
    from miron_jax.runtime.hosts import Hosts

FLAGS = flags.FLAGS
# how a process ends whose libraries are refused memory or a thread, and seldom otherwise
_OF_LIMITS = (-signal.SIGABRT, -signal.SIGSEGV)
joined: "Hosts | None" = None  # the processes, once this one is connected to them
LEAST_TASKS = 8  # of a run that is likely to be worth helpers; its data say later whether it is
MOST_NAMED = 64  # helpers that a user may ask for
_met: int | None = None  # descriptor of a pipe that tells the supervisor so


def supervised() -> int | None:
    """Fork: the child, where this returns None, does the work; the parent waits for it and returns
    its exit status.

    When the coordinator's process dies, or the machine refuses memory or a thread, jax ends the
    process by a signal without running its handlers, so the parent prints what has happened.  Call
    it before jax is imported, while the process has only one thread.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        global _met
        os.close(read_end)
        _met = write_end
        # absl's: its walk through running threads may turn jax's SIGABRT into SIGSEGV
        faulthandler.disable()
        if sys.platform == "linux":
            # PR_SET_PDEATHSIG: the child dies with its supervisor
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return None
    os.close(write_end)
    os.set_blocking(read_end, False)
    killed_early = False
    has_met = not wants_others()

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal has_met, killed_early
        with contextlib.suppress(BlockingIOError):
            has_met = has_met or bool(os.read(read_end, 1))
        # the child waits in jax, where its handlers do not run
        killed_early = killed_early or not has_met
        os.kill(child, number if has_met else signal.SIGKILL)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if killed_early:
        print(
            "miron-jax: interrupted before all processes had met; run the same command again",
            file=sys.stderr,
        )
        return RUN_AGAIN
    if status in _OF_LIMITS and not wants_others():
        print(f"miron-jax: {limits.sentence(signal.Signals(-status).name)}", file=sys.stderr)
        return FAILED
    if status == -signal.SIGABRT:
        print(
            "miron-jax: this process has lost process 0, which coordinates the run: it was killed, "
            f"or its machine is gone; {GOES_ON}",
            file=sys.stderr,
        )
        return RUN_AGAIN
    return status if status >= 0 else 128 - status


def join_others() -> "Hosts":
    """Connect to the other processes of this run.  Call it before jax starts its backend."""
    global joined
    from miron_jax.runtime.hosts import Hosts, join

    if not wants_others():
        return Hosts()
    _check_processes()
    joined = join(FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id, FLAGS.peer_timeout)
    if _met is not None:
        os.write(_met, b"met")
    if not joined.is_first:
        os.environ["HF_HUB_OFFLINE"] = "1"  # process 0 fetches into the cache that the hosts share
    return joined


def _check_processes() -> None:
    address = FLAGS.coordinator
    count = FLAGS.num_processes
    index = FLAGS.process_id
    if not 5 <= FLAGS.peer_timeout <= 86400:
        raise InputError(
            f"--peer_timeout is {FLAGS.peer_timeout:g}, expected seconds from 5 to 86400"
        )
    if FLAGS.distributed and (address, count, index) == (None, None, None):
        return
    if None in (address, count, index):
        raise InputError(
            "--coordinator, --num_processes and --process_id go together: give all three to each "
            "process, or --distributed where the cluster tells of them"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(
            f"--coordinator={address}, expected host:port of process 0, such as 10.0.0.2:8476"
        )
    if count < 1 or not 0 <= index < count:
        raise InputError(
            f"--process_id={index} of --num_processes={count}: expected one of 0 to "
            f"{max(count, 1) - 1}, each of its own"
        )
    print(
        f"miron-jax: process {index} meets the others ({count} in all) at {printable(address)}",
        file=sys.stderr,
        flush=True,
    )


def wants_others() -> bool:
    """Whether the flags name other processes; a command that has no flags of hosts runs alone."""
    return "distributed" in FLAGS and (
        FLAGS.distributed
        or (FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id) != (None, None, None)
    )


def start_jax() -> None:
    """Set XLA flags, matmul precision and the compilation cache.  Call it before the first program
    is compiled.  Raises InputError if the machine refuses what any run needs."""
    limits.check_limits()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    set_backend_flags()
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    folder = _cache_folder()
    if folder is None:
        print(
            "miron-jax: this user has no home folder, so compiled programs are not kept for the "
            "next run: set HOME, or name a folder with --compilation_cache",
            file=sys.stderr,
            flush=True,
        )
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@spent_on("import")
def leave_out_torch(config: RunConfig) -> None:
    """Import transformers as on a machine without torch: its config classes import torch where it
    is there, which takes more than a second, and no command needs it.

    A user's Python beside the run may want torch's models: then nothing is left out, nor where this
    process has imported transformers.  Call it after `join_others`.
    """
    from miron_jax.model.own import is_factory

    named = (config.model, config.param_map, config.detox_scorer)
    if config.task_path or any(is_factory(name or "") for name in named):
        return
    if not sys.modules.keys().isdisjoint({"torch", "transformers"}):
        return
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType] - Python: there is none
    try:
        from transformers.utils.import_utils import is_torch_available

        is_torch_available()  # which remembers its answer
    finally:
        del sys.modules["torch"]


def helped_plans(
    config: RunConfig, num_tasks: int, say: Callable[[str], None], is_idle: bool = True
) -> "Helped | None":
    """`kept_plans`, with helpers that start now; None: the run wants none.  `is_idle`: the devices
    are no processors of this machine.  Raises InputError."""
    from miron_jax.evaluation.helpers import MOST_HELPERS, Helped
    from miron_jax.runtime.processors import usable_processors

    count = FLAGS.planner_processes
    if count is not None and not 0 <= count <= MOST_NAMED:
        raise InputError(f"--planner_processes is {count}, expected 0 to {MOST_NAMED}")
    if count is None and is_idle and config.limit is None and num_tasks >= LEAST_TASKS:
        count = min(usable_processors() - 1, MOST_HELPERS)
    if not count or config.is_sampled or config.generated is not None or wants_others():
        return None
    with contextlib.suppress(OSError):
        return Helped(config, kept_plans(say), count, say)
    return None


def kept_plans(say: Callable[[str], None]) -> "KeptArrays | None":
    """What earlier runs have planned; None: nothing is kept.  `say`: gets a line about what cannot
    be."""
    from miron_jax.files.kept import KeptArrays

    folder = _cache_folder()
    if not FLAGS.plan_cache or not folder or is_url(folder):
        return None
    return KeptArrays(local_path(folder) / "plans", say)


def _cache_folder() -> str | None:
    """The folder of compiled programs; "": none is wanted, None: the user has no home for it."""
    if FLAGS.compilation_cache is not None:
        return FLAGS.compilation_cache
    cache = home_cache()
    return None if cache is None else str(cache / "programs")
