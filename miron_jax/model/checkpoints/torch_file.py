"""Tensors of a file that torch.save wrote, such as pytorch_model.bin, without torch.

Arrives: a path.  Leaves: tensor name -> `Stored`.  It deliberately does not know models.  Nothing
that the file's pickle names is called (files/pickles.py).  The weights of --model are never read
from such a file; classifiers that score answers are published in no other.

The format since torch 1.6: a zip without compression, in which data.pkl describes the tensors as
strided views of storages, each a member data/KEY.
"""

import io
import math
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.pickles import Pickled, read_pickle
from miron_jax.files.readers import Json, shown
from miron_jax.files.regular import open_regular
from miron_jax.model.checkpoints.hf_files import Stored

_DTYPES = {
    "torch.DoubleStorage": ("F64", np.dtype(np.float64)),
    "torch.FloatStorage": ("F32", np.dtype(np.float32)),
    "torch.HalfStorage": ("F16", np.dtype(np.float16)),
    "torch.BFloat16Storage": ("BF16", np.dtype(jnp.bfloat16)),
    "torch.LongStorage": ("I64", np.dtype(np.int64)),
}


class _View(NamedTuple):
    """A tensor as a view of a storage; offset and strides in elements."""

    member: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TorchTensor:
    """A tensor in an open file."""

    path: Path
    archive: zipfile.ZipFile
    view: _View

    def __getitem__(self, rows: int | slice) -> np.ndarray:
        """These rows on the host.  Raises InputError for a damaged file."""
        view = self.view
        try:
            storage = np.frombuffer(self.archive.read(view.member), view.dtype)[view.offset :]
        except Exception as error:  # as in `torch_tensors`
            raise _damaged(self.path, error) from None
        strides = [stride * view.dtype.itemsize for stride in view.strides]
        return np.lib.stride_tricks.as_strided(storage, view.shape, strides)[rows]


def torch_tensors(path: Path, files: ExitStack) -> dict[str, Stored]:
    """The tensors of the file by name; `files` closes it.  Raises InputError for a file that is
    damaged or holds anything but a dict of tensors."""
    try:
        archive = files.enter_context(zipfile.ZipFile(files.enter_context(open_regular(path))))
        members = {member.filename: member for member in archive.infolist()}
        described = next((name for name in members if name.endswith("/data.pkl")), None)
        if described is None or not _is_plain(members[described]):
            raise ValueError("no data.pkl in it")
        folder = described.removesuffix("data.pkl")
        order = members.get(f"{folder}byteorder")
        is_short = order is None or (_is_plain(order) and order.file_size <= 16)
        if not is_short or (order and archive.read(order) != b"little"):
            raise ValueError("its byte order is not little-endian")
        content = read_pickle(io.BytesIO(archive.read(described)))
        tensors = content.items if isinstance(content, Pickled) else content
        return {
            str(name): _stored(path, archive, _view(str(name), value, folder, members))
            for name, value in tensors.items()
        }
    except Exception as error:  # a wrong byte may raise an error of any class
        raise _damaged(path, error) from None


def _is_plain(member: zipfile.ZipInfo) -> bool:
    """Whether the member is as many bytes of the file as it says, without compression."""
    is_stored = member.compress_type == zipfile.ZIP_STORED
    return is_stored and member.file_size == member.compress_size


def _stored(path: Path, archive: zipfile.ZipFile, view: _View) -> Stored:
    names = dict(_DTYPES.values())
    dtype = next(name for name in names if names[name] == view.dtype)
    return Stored(path, view.shape, dtype, TorchTensor(path, archive, view))


def _view(name: str, value: Json, folder: str, members: dict[str, zipfile.ZipInfo]) -> _View:
    """The tensor that the pickle describes.  Raises ValueError for one outside its storage."""
    if not isinstance(value, Pickled) or value.name != "torch._utils._rebuild_tensor_v2":
        raise ValueError(f"{name} is {shown(value)}, expected a tensor")
    (_, kind, key, *_), offset, shape, strides, *_ = value.args
    if kind.name not in _DTYPES:
        raise ValueError(f"{name} is of {kind.name}, expected one of {', '.join(_DTYPES)}")
    view = _View(f"{folder}data/{key}", _DTYPES[kind.name][1], offset, shape, strides)
    member = members.get(view.member)
    if member is None or not _is_plain(member):
        raise ValueError(f"{name} has no storage {view.member}")
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"{name} has the shape {shown(shape)} and strides {shown(strides)}")
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if math.prod(shape) and (offset + last + 1) * view.dtype.itemsize > member.file_size:
        raise ValueError(f"{name} ends beyond its storage")
    return view


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path}: {' '.join(str(error).split()) or type(error).__name__:.200}, expected a dict of "
        "tensors as torch.save writes it since torch 1.6: download it again, or save the model "
        "with transformers' save_pretrained"
    )
