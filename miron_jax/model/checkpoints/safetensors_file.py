"""One safetensors file, read from an open descriptor and never mapped.

Arrives: an open file.  Leaves: its tensors by name, which read the rows that a slice names.  It
deliberately does not know names of tensors.

A file that is cut while it is mapped ends the process with SIGBUS; a read that comes short is an
error of one sentence.  Reading costs less than mapping (SmolLM2-135M, 538 MB in the page cache, two
cores, medians of three: 0.66 s and 0.87 s).  The format: eight bytes of the header's length, a JSON
header, then the tensors without gaps.
"""

import io
import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, parse_json, shown

_MOST_HEADER = 100_000_000  # bytes, as in safetensors
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.dtype(jnp.bfloat16)}
# of the tensors that are never read, such as quantized weights
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "F8_E8M0": 8, "C64": 64}


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor in an open file."""

    path: Path
    file: io.FileIO
    start: int  # bytes before its first one
    shape: tuple[int, ...]
    stored_dtype: str  # as safetensors names it

    def __getitem__(self, rows: int | slice) -> np.ndarray:
        """These rows on the host.  Raises InputError if the file has been cut."""
        if isinstance(rows, int):
            return self._read(rows, rows + 1)[0]
        start, stop, _ = rows.indices(self.shape[0])
        return self._read(start, stop)

    def _read(self, start: int, stop: int) -> np.ndarray:
        host = np.empty((stop - start, *self.shape[1:]), _DTYPES[self.stored_dtype])
        left = host.reshape(-1).view(np.uint8).data
        position = self.start + start * math.prod(self.shape[1:]) * host.itemsize
        while left:
            size = os.preadv(self.file.fileno(), [left], position)
            if not size:
                raise InputError(
                    f"{self.path}: is shorter than it was when it was opened, expected a file that "
                    "does not change while it is read; copy or save it again"
                )
            left = left[size:]
            position += size
        return host


def read_header(path: Path, file: io.FileIO) -> dict[str, FileTensor]:
    """The tensors of the file at this path by name.  Raises InputError for a damaged file."""
    size = os.fstat(file.fileno()).st_size
    try:
        length = int.from_bytes(os.pread(file.fileno(), 8, 0), "little")
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise ValueError(f"a header of {length} bytes")
        entries = parse_json(_bytes(file, length), of_records=True)
        if not isinstance(entries, dict):
            raise ValueError(f"the header is {shown(entries)}")
        spans = {
            name: _span(name, each) for name, each in entries.items() if name != "__metadata__"
        }
        ends = [(0, 0), *sorted(spans.values()), (size - 8 - length,) * 2]
        for (_, end), (start, _) in pairwise(ends):
            if end != start:
                raise ValueError(f"tensors that end at {end} and go on at {start}")
    except ValueError as error:
        raise InputError(
            f"{path}: truncated or corrupt ({size} bytes; {error!s:.200}), expected a whole "
            "safetensors file; download it again (a Git LFS pointer needs `git lfs pull`)"
        ) from None
    return {
        name: FileTensor(
            path, file, 8 + length + start, tuple(entries[name]["shape"]), entries[name]["dtype"]
        )
        for name, (start, _) in spans.items()
    }


def _bytes(file: io.FileIO, length: int) -> bytes:
    """The header."""
    content = os.pread(file.fileno(), length, 8)
    if len(content) < length:
        raise ValueError(f"a header of {len(content)} bytes instead of {length}")
    return content


def _span(name: str, entry: Json) -> tuple[int, int]:
    """First byte of a tensor and the one after its last, behind the header.  Raises ValueError for
    an entry that is none, or one whose bytes are not those of its shape."""
    try:
        dtype = str(entry["dtype"])
        shape = [*entry["shape"]]
        start, end = entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{name!r:.80} is {shown(entry)}") from None
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise ValueError(f"{name!r:.80} is {shown(entry)}")
    digits = dtype.lstrip("FIU").partition("_")[0]
    if dtype in _DTYPES:
        bits = 8 * np.dtype(_DTYPES[dtype]).itemsize
    elif dtype in _BITS:
        bits = _BITS[dtype]
    elif digits.isdecimal():  # I8, U64, F8_E4M3
        bits = int(digits)
    else:
        raise ValueError(f"{name!r:.80} holds {dtype!r:.20}")
    if 8 * (end - start) != bits * math.prod(shape):
        raise ValueError(f"{name!r:.80} has {end - start} bytes for {shown(entry)}")
    return start, end
