"""A call in a new process with a time limit, for code that may hang on a GPU or keep its memory."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection

from miron_jax.files.readers import JsonObject


def in_a_child(
    seconds: float, function: Callable[..., JsonObject], *arguments: object
) -> JsonObject:
    """What the function returns; {"failed": ...} when it raises, dies or takes longer than
    `seconds`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # the parent holds most of the GPU's memory
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    child = context.Process(target=_call, args=(sender, function, *arguments))
    child.start()
    sender.close()
    try:
        return (
            receiver.recv()
            if receiver.poll(seconds)
            else {"failed": f"no answer within {seconds:g} s"}
        )
    except EOFError:
        return {"failed": "its process ended without an answer"}
    finally:
        child.kill()
        child.join()


def _call(sender: Connection, function: Callable[..., JsonObject], *arguments: object) -> None:
    try:
        sender.send(function(*arguments))
    except Exception as error:  # sent, not raised: the suite continues
        sender.send({"failed": f"{type(error).__name__}: {str(error)[:300]}"})
