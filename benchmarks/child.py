"""A call in a process of its own, with a time limit: some engines keep a GPU's memory."""

import multiprocessing
import os
from collections.abc import Callable
from typing import Any


def in_a_child(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns there; {"failed": ...} where it raises, dies or takes longer than `seconds`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # this process has taken the GPU's memory
    child = context.Process(target=_call, args=(sender, function, *arguments))
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else {"failed": f"no answer within {seconds:g} s"}
    except EOFError:
        return {"failed": "its process ended without an answer"}
    finally:
        child.kill()
        child.join()


def _call(sender: Any, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        sender.send(function(*arguments))
    except Exception as error:  # told, not raised: the suite goes on
        sender.send({"failed": f"{type(error).__name__}: {str(error)[:300]}"})
