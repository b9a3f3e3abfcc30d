"""A process that tokenizes tasks beside another one (evaluation/helpers.py).

Arrives: a run's configuration and keys of jobs, by standard input.  Leaves: their arrays in a
folder.  It deliberately has no flags: a user does not start it.
"""

import gc
import os
import signal
from contextlib import suppress
from pathlib import Path

from miron_jax.cli.processes import leave_out_torch
from miron_jax.errors import RunEnded
from miron_jax.evaluation.helpers import Helping, receive
from miron_jax.results.document import config_of
from miron_jax.runtime.processors import NEW_OBJECTS


def main() -> None:
    """Help until the input ends."""
    gc.set_threshold(NEW_OBJECTS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    with suppress(EOFError, BrokenPipeError, RunEnded):
        entry, folder = receive(requests)
        config = config_of(entry)
        leave_out_torch(config)
        from miron_jax.evaluation.inputs import find_inputs
        from miron_jax.evaluation.run_tasks import RunTasks
        from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
        from miron_jax.planning.request_batches import Totals

        receive(requests)  # the data files are there
        inputs = find_inputs(config, fetch=False, runs=False)
        architecture = architecture_of(config, find_model(config, weights=False))
        helping = Helping(Path(folder), requests, replies)
        tasks = RunTasks.of(config, inputs._replace(kept=helping), architecture)
        helping.ready()
        for _ in tasks.request_batches(Totals()):
            pass
