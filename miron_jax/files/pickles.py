"""Pickles that others wrote, read as data: what they name is neither imported nor called.

Arrives: an open file.  Leaves: numbers, texts, lists and dicts, with a `Pickled` for every function
or class that the pickle names.  It deliberately does not know what these mean.
"""

import io
import pickle
import pickletools
from typing import BinaryIO, Self

from miron_jax.files.readers import Json


class Pickled:
    """What a pickle says of an object: the name of its class or function, and what that was called
    with, was given as its state and as its items."""

    name = ""  # module.name, of the subclass that stands for it
    args: tuple[Json, ...]
    state: Json
    items: dict[Json, Json]

    def __new__(cls, *args: Json) -> Self:
        made = super().__new__(cls)
        made.args = args
        made.state = None
        made.items = {}
        return made

    def __setstate__(self, state: Json) -> None:
        self.state = state

    def __setitem__(self, key: Json, value: Json) -> None:
        self.items[key] = value


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> type[Pickled]:
        return type("Pickled", (Pickled,), {"name": f"{module_name}.{global_name}"})

    def persistent_load(self, pid: Json) -> Json:
        return pid


def read_pickle(file: BinaryIO) -> Json:
    """The next pickle of the file.  Raises ValueError for bytes that are none.

    It is first written anew: a place of pickle's memo takes memory for all places before it, and
    `optimize` numbers them from 0.  Frames, which C's reader and this one cut differently, go too.
    """
    try:
        start = file.tell()
        for _ in pickletools.genops(file):
            pass
        size = file.tell() - start
        file.seek(start)
        return _Reader(io.BytesIO(pickletools.optimize(file.read(size)))).load()
    except Exception as error:  # a wrong byte may raise an error of any class
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"no pickle: {reason:.160}") from None
