"""A Hugging Face folder (or hub id) -> the decoder's weights, in the device's layout, without torch.

Arrives: a folder with config.json and safetensors or Flax msgpack, single or sharded.  Leaves: `Checkpoint`, the
ModelConfig and a state that fits `decoder.abstract`.  It deliberately does not know tokenizers, meshes or what the model
computes.

All names and shapes are checked against config.json before the first weight is read.  Then one leaf at a time is
filled on the host, a layer after the other, and handed to the device: the host holds one leaf beyond what the device
keeps.  Pickles (.bin) are never opened.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.files.hub import parse_name
from miron_jax.files.places import local_path
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract
from miron_jax.model.families import tensor_names
from miron_jax.model.families.naming import HEADS, PREFIXES, Source
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_files import Stored, opened, stored_tensors

Put = Callable[[str, np.ndarray], jax.Array]  # leaf path, host array -> the same where it belongs


def on_default_device(path: str, host: np.ndarray) -> jax.Array:
    """The `Put` of weights that need no other place."""
    return jax.device_put(host)


class Checkpoint(NamedTuple):
    config: ModelConfig
    state: Any  # nnx.State of jax.Arrays, as nnx.split(Decoder) gives it


# Recomputed: they carry no weights
_BUFFERS = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(bias|masked_bias))")
# Of a multimodal Gemma 3: no text meets them
_VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*")
STRIP = 64  # rows read at a time
_FLOATS = ("F64", "F32", "F16", "BF16")


def load_hf(
    folder: Path | str,
    dtype: DTypeLike,
    put: Put = on_default_device,
    config: ModelConfig | None = None,
) -> Checkpoint:
    """Read a Hugging Face folder.  `put` places each leaf; without it all go to the default device.  `config`:
    of a folder that has weights alone."""
    folder = Path(folder)
    config = config or from_hf_config(folder)
    stored = stored_tensors(folder)
    _, wanted = abstract(config, dtype)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(wanted)
    paths = [jax.tree_util.keystr(path[:-1], simple=True, separator="/") for path, _ in leaves]
    sources = _sources(folder, config, stored, paths)
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        _check_leaf(folder, sources[path], leaf.shape, _is_stacked(path), stored)
    _check_leftovers(folder, config, stored, _used(config, sources))
    arrays = []
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        host = _read_leaf(sources[path], leaf, _is_stacked(path), stored)
        arrays.append(
            jax.block_until_ready(put(path, host))
        )  # else the next leaf is filled while this one's copy still lives
    return Checkpoint(config, jax.tree_util.tree_unflatten(treedef, arrays))


def resolve_model(name: str, weights: bool = True) -> Path:
    """A local folder as it is; owner/name or owner/name@revision through the hub's cache, fetched where needed."""
    local = local_path(name)
    if local.is_dir():
        return local
    if local.exists():
        raise InputError(f"--model={name}: is a file, expected the folder that holds config.json; name the folder")
    return from_hub(name, "--model", weights)


def from_hub(name: str, flag: str, weights: bool) -> Path:
    """The folder of `owner/name` or `owner/name@revision` in the hub's cache, fetched where needed.  Raises InputError."""
    repository = parse_name(name)
    if repository is None:
        raise InputError(
            f"{flag}={name}: no such folder, and not a hub id like owner/name or owner/name@revision; check the path"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    beside = ["*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt"]

    def fetch(*patterns: str) -> Path:
        return Path(
            snapshot_download(
                repository.id,
                revision=repository.revision,
                allow_patterns=[*beside, *patterns],
                ignore_patterns=["*/*", "consolidated*"],
            )
        )

    try:
        if not weights:
            return fetch()
        folder = fetch("*.safetensors")
        return folder if any(folder.glob("*.safetensors")) else fetch("*.msgpack")
    except GatedRepoError:
        why = "the hub wants its licence accepted; accept it on the model's page and log in with `hf auth login`"
    except RevisionNotFoundError:
        why = "the hub has the model, but not this revision; name one of its commits, tags or branches"
    except (RepositoryNotFoundError, HFValidationError):
        why = "no such model on the hub (or it is private), and no such folder here; check the name"
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        why = (
            "no such folder here, not in the hub's cache, and the hub is out of reach; name a local folder or go online"
        )
    except HfHubHTTPError as error:
        why = f"the hub answers: {' '.join(str(error).split())}; try again later or name a local folder"
    raise InputError(f"{flag}={name}: {why}")


def _sources(
    folder: Path, config: ModelConfig, stored: Mapping[str, Stored], paths: Iterable[str]
) -> dict[str, Source]:
    """The table of the config's family, narrowed to its leaves, with the checkpoint's own prefix put in."""
    table = tensor_names(config)
    embedding = table["embedding_VD"].name
    prefix = next((p for p in PREFIXES if p + embedding in stored), None)
    if prefix is None:
        raise _missing(folder, PREFIXES[0] + embedding, stored)
    with_prefix = {path: replace(table[path], name=prefix + table[path].name) for path in paths if path in table}
    head = _head(stored)
    if not config.tied_head:
        with_prefix["head_VD"] = Source(f"{head}.weight")
    if config.head_bias:
        with_prefix["head_bias_V"] = Source(f"{head}.bias")
    return with_prefix


def _head(stored: Mapping[str, Stored]) -> str:
    return next((name for name in HEADS if f"{name}.weight" in stored), HEADS[0])


def _used(config: ModelConfig, sources: Mapping[str, Source]) -> set[str]:
    layers = range(config.num_layers)
    each = [(source, layers if _is_stacked(path) else (0,)) for path, source in sources.items()]
    return {name for source, own in each for layer in own for name in source.names(layer)}


def _is_stacked(path: str) -> bool:
    return path.startswith("layers/")


def _missing(folder: Path, name: str, stored: Mapping[str, Stored]) -> InputError:
    close = difflib.get_close_matches(name, list(stored), n=3, cutoff=0.4) or sorted(stored)[:3]
    return InputError(
        f"{folder}: no tensor {name}, which config.json asks for (closest: {', '.join(close) or 'none'}); "
        "config and weights belong to different models, or a file is missing: download both again"
    )


def _check_leaf(
    folder: Path, source: Source, shape: tuple[int, ...], stacked: bool, stored: Mapping[str, Stored]
) -> None:
    expected = source.stored_shape(shape[1:] if stacked else shape)
    for name in (name for layer in range(shape[0] if stacked else 1) for name in source.names(layer)):
        if name not in stored:
            raise _missing(folder, name, stored)
        found = stored[name]
        if found.shape != expected:
            raise InputError(
                f"{found.file}: tensor {name} has shape {list(found.shape)}, config.json expects {list(expected)}; "
                "use the config.json that belongs to these weights"
            )
        if found.dtype not in _FLOATS:
            raise InputError(
                f"{found.file}: tensor {name} holds {found.dtype}, expected one of {', '.join(_FLOATS)}; "
                "quantized weights are not read: use the unquantized checkpoint"
            )


def _check_leftovers(folder: Path, config: ModelConfig, stored: Mapping[str, Stored], used: set[str]) -> None:
    skipped = [_BUFFERS, _VISION] if config.family == "gemma3_text" else [_BUFFERS]
    left = sorted(name for name in stored if name not in used and not any(own.fullmatch(name) for own in skipped))
    head = f"{_head(stored)}.weight"
    if config.tied_head and head in left:
        embedding = next(name for name in used if name.endswith(tensor_names(config)["embedding_VD"].name))
        _check_tied(head, embedding, stored)
        left.remove(head)
    if left:
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise InputError(
            f"{folder}: tensors that a {config.family} model of this config.json has no place for: {shown}; "
            "they would change the result: use the config.json that belongs to these weights"
        )


def _check_tied(head_name: str, name: str, stored: Mapping[str, Stored]) -> None:
    """A second copy of the embedding is harmless.  Where the two differ transformers 4 ties them and transformers 5
    does not, so the checkpoint has no one meaning and is refused."""
    head, embedding = stored[head_name], stored[name]
    same = (head.shape, head.dtype) == (embedding.shape, embedding.dtype)
    if same:
        with opened(head.file, stored) as left, opened(embedding.file, stored) as right:
            a, b = left(head_name), right(name)
            starts = range(0, head.shape[0], STRIP)  # in strips: neither table is on the host whole
            spans = [slice(start, min(start + STRIP, head.shape[0])) for start in starts]
            same = all(a[span].tobytes() == b[span].tobytes() for span in spans)
    if not same:
        raise InputError(
            f"{head.file}: {head_name} differs from {name}, but config.json says tie_word_embeddings; set it to false to "
            f"score with {head_name}, or remove the tensor to score with the embedding"
        )


def _read_leaf(source: Source, leaf: jax.ShapeDtypeStruct, stacked: bool, stored: Mapping[str, Stored]) -> np.ndarray:
    """All layers of one leaf.  Shards are opened anew for each leaf, so that no more of them than it stays mapped."""
    host = np.empty(leaf.shape, leaf.dtype)
    by_file: dict[Path, list[tuple[str, np.ndarray]]] = {}
    slots: Any = host if stacked else host[None]
    for layer, slot in enumerate(slots):
        for name, part in zip(source.names(layer), slot if source.parts else slot[None], strict=True):
            by_file.setdefault(stored[name].file, []).append((name, part))
    for path, wanted in by_file.items():
        with opened(path, stored) as tensor:
            for name, part in wanted:
                _fill(part, source, tensor(name), stored[name].shape[0])
    return host


def _fill(slot: np.ndarray, source: Source, stored: Any, num_rows: int) -> None:
    """In strips of stored rows: the host never holds a second whole table, and a transposition stays in the cache
    (three times faster at 4096 x 4096 than all at once, measured)."""
    rows = slot.T if source.transposed else slot
    columns = None if source.columns is None else np.asarray(source.columns)
    if rows.ndim == 1:  # its columns lie along the only axis
        rows[:] = stored[:] if columns is None else stored[:][columns]
        return
    for start in range(0, num_rows, STRIP):
        stop = min(start + STRIP, num_rows)  # safetensors refuses a slice that runs past the end
        if columns is None:
            rows[start:stop] = stored[start:stop].astype(slot.dtype, copy=False)
        elif not source.transposed:
            rows[start:stop] = stored[start:stop][:, columns].astype(slot.dtype, copy=False)
        else:  # the columns are rows of the stored tensor
            here = np.flatnonzero((columns >= start) & (columns < stop))
            if len(here):
                rows[here] = stored[start:stop][columns[here] - start].astype(slot.dtype, copy=False)
