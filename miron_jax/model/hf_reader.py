"""A Hugging Face folder (or hub id) -> the decoder's weights, in the device's layout, without torch.

Arrives: a folder with config.json and safetensors, single or sharded.  Leaves: `Checkpoint`, the ModelConfig and a
state that fits `decoder.abstract`.  It deliberately does not know tokenizers, meshes or what the model computes.

All names and shapes are checked against config.json before the first weight is read.  Then one leaf at a time is
filled on the host, a layer after the other, and handed to the device: the host holds one leaf beyond what the device
keeps.  Pickles (.bin) are never opened.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open

from miron_jax.errors import InputError
from miron_jax.model.config import ModelConfig, from_hf_config
from miron_jax.model.decoder import abstract

Placement = Callable[[str, jax.ShapeDtypeStruct], Any]  # leaf path, shape -> Device or Sharding that holds the leaf


class Checkpoint(NamedTuple):
    config: ModelConfig
    state: Any  # nnx.State of jax.Arrays, as nnx.split(Decoder) gives it


@dataclass(frozen=True, slots=True)
class Source:
    """Where a leaf lies in a checkpoint."""

    name: str  # below the checkpoint's prefix; {} stands for the layer
    transposed: bool = False  # torch's Linear keeps (out, in), the decoder (in, out)
    part: int = 0  # which of `parts` leaves, side by side on the last axis (GPT-2 keeps q, k and v in one)
    parts: int = 1

    def stored_shape(self, leaf: tuple[int, ...]) -> tuple[int, ...]:
        shape = (*leaf[:-1], leaf[-1] * self.parts)
        return shape[::-1] if self.transposed else shape

    def take(self, rows: np.ndarray) -> np.ndarray:
        """This leaf's columns of stored rows."""
        width = rows.shape[-1] // self.parts
        return rows[..., self.part * width : (self.part + 1) * width]


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as the shard's header describes it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # safetensors' own word: F32, BF16, ...


def _linear(ours: str, theirs: str, transposed: bool = True, part: int = 0, parts: int = 1) -> dict[str, Source]:
    return {
        f"{ours}/kernel_IO": Source(f"{theirs}.weight", transposed, part, parts),
        f"{ours}/bias_O": Source(f"{theirs}.bias", False, part, parts),
    }


def _norm(ours: str, theirs: str) -> dict[str, Source]:
    return {f"{ours}/weight": Source(f"{theirs}.weight"), f"{ours}/bias": Source(f"{theirs}.bias")}


# Leaf -> source.  A table lists every leaf that its families can have; a config uses those that its decoder has.
_LLAMA = {
    "embedding_VD": Source("embed_tokens.weight"),
    **_norm("final_norm", "norm"),
    **_norm("layers/attn_norm", "layers.{}.input_layernorm"),
    **_linear("layers/attn/q", "layers.{}.self_attn.q_proj"),
    **_linear("layers/attn/k", "layers.{}.self_attn.k_proj"),
    **_linear("layers/attn/v", "layers.{}.self_attn.v_proj"),
    **_linear("layers/attn/out", "layers.{}.self_attn.o_proj"),
    **_norm("layers/attn/q_norm", "layers.{}.self_attn.q_norm"),
    **_norm("layers/attn/k_norm", "layers.{}.self_attn.k_norm"),
    **_norm("layers/mlp_norm", "layers.{}.post_attention_layernorm"),
    **_linear("layers/mlp/gate", "layers.{}.mlp.gate_proj"),
    **_linear("layers/mlp/up", "layers.{}.mlp.up_proj"),
    **_linear("layers/mlp/down", "layers.{}.mlp.down_proj"),
}
_GEMMA = _LLAMA | {
    **_norm("layers/attn_post_norm", "layers.{}.post_attention_layernorm"),
    **_norm("layers/mlp_norm", "layers.{}.pre_feedforward_layernorm"),
    **_norm("layers/mlp_post_norm", "layers.{}.post_feedforward_layernorm"),
}
_GPT2 = {  # Conv1D keeps (in, out)
    "embedding_VD": Source("wte.weight"),
    "position_PD": Source("wpe.weight"),
    **_norm("final_norm", "ln_f"),
    **_norm("layers/attn_norm", "h.{}.ln_1"),
    **_linear("layers/attn/q", "h.{}.attn.c_attn", False, 0, 3),
    **_linear("layers/attn/k", "h.{}.attn.c_attn", False, 1, 3),
    **_linear("layers/attn/v", "h.{}.attn.c_attn", False, 2, 3),
    **_linear("layers/attn/out", "h.{}.attn.c_proj", False),
    **_norm("layers/mlp_norm", "h.{}.ln_2"),
    **_linear("layers/mlp/up", "h.{}.mlp.c_fc", False),
    **_linear("layers/mlp/down", "h.{}.mlp.c_proj", False),
}
_TABLES: Mapping[str, Mapping[str, Source]] = {"llama": _LLAMA, "gemma3_text": _GEMMA, "gpt2": _GPT2}
_PREFIXES = ("model.", "transformer.", "")  # of everything but the head; the bare model is saved without one
_HEAD = "lm_head.weight"
_BUFFERS = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.(masked_)?bias)")  # recomputed: they carry no weights
STRIP = 64  # rows read at a time
_FLOATS = ("F64", "F32", "F16", "BF16")


def load_hf(folder: Path | str, dtype: DTypeLike, sharding_for: Placement | None = None) -> Checkpoint:
    """Read a Hugging Face folder.  `sharding_for` places each leaf; without it all go to the default device."""
    folder = Path(folder)
    config = from_hf_config(folder)
    stored = _index(folder)
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
        placed = jax.device_put(host, None if sharding_for is None else sharding_for(path, leaf))
        arrays.append(jax.block_until_ready(placed))  # else the next leaf is filled while this one's copy still lives
    return Checkpoint(config, jax.tree_util.tree_unflatten(treedef, arrays))


def resolve_model(name: str, weights: bool = True) -> Path:
    """A local folder as it is; anything shaped like owner/name through the hub's cache, fetched where needed."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    if local.exists():
        raise InputError(f"--model={name}: is a file, expected the folder that holds config.json; name the folder")
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise InputError(f"--model={name}: no such folder, and not a hub id like owner/name; check the path")
    return _from_hub(name, weights)


def _from_hub(name: str, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    wanted = ["*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt", *(["*.safetensors"] if weights else [])]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except GatedRepoError:
        why = "the hub wants its licence accepted; accept it on the model's page and log in with `hf auth login`"
    except (RepositoryNotFoundError, HFValidationError):
        why = "no such model on the hub (or it is private), and no such folder here; check the name"
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        why = (
            "no such folder here, not in the hub's cache, and the hub is out of reach; name a local folder or go online"
        )
    except HfHubHTTPError as error:
        why = f"the hub answers: {' '.join(str(error).split())}; try again later or name a local folder"
    raise InputError(f"--model={name}: {why}")


def _index(folder: Path) -> dict[str, Stored]:
    """Every tensor of the checkpoint, from the shards' headers alone."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return _header(single)
    if not index.is_file():
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        seen = f" ({', '.join(pickles)} present, but pickles are never read)" if pickles else ""
        raise InputError(
            f"{folder}: no model.safetensors and no model.safetensors.index.json{seen}; "
            "save the model with save_pretrained(safe_serialization=True)"
        )
    weight_map = _weight_map(index)
    headers = {name: _header(_shard(index, name)) for name in sorted(set(weight_map.values()))}
    for tensor, name in weight_map.items():
        if tensor not in headers[name]:
            raise InputError(
                f"{folder / name}: no tensor {tensor}, which {index.name} places there; download both again"
            )
    return {tensor: headers[name][tensor] for tensor, name in weight_map.items()}


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if weight_map and all(isinstance(name, str) for name in weight_map.values()):
            return weight_map
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"{index}: expected a JSON object with weight_map, tensor name to file; download the file again")


def _shard(index: Path, name: str) -> Path:
    path = index.parent / name
    if Path(name).name != name or not path.is_file():
        raise InputError(f"{path}: no such file, but {index.name} lists it; download the missing shard")
    return path


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return {name: Stored(path, tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except SafetensorError as error:
        raise InputError(
            f"{path}: truncated or corrupt ({path.stat().st_size} bytes; {error}), expected a whole safetensors file; "
            "download it again (a Git LFS pointer needs `git lfs pull`)"
        ) from None


def _sources(
    folder: Path, config: ModelConfig, stored: Mapping[str, Stored], paths: Iterable[str]
) -> dict[str, Source]:
    """The table of the config's family, narrowed to its leaves, with the checkpoint's own prefix put in."""
    table = _TABLES[config.family]
    embedding = table["embedding_VD"].name
    prefix = next((p for p in _PREFIXES if p + embedding in stored), None)
    if prefix is None:
        raise _missing(folder, _PREFIXES[0] + embedding, stored)
    with_prefix = {path: replace(table[path], name=prefix + table[path].name) for path in paths if path in table}
    if not config.tied_head:
        with_prefix["head_VD"] = Source(_HEAD)
    return with_prefix


def _used(config: ModelConfig, sources: Mapping[str, Source]) -> set[str]:
    layers = range(config.num_layers)
    return {source.name.format(i) for path, source in sources.items() for i in (layers if _is_stacked(path) else (0,))}


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
    for layer in range(shape[0] if stacked else 1):
        name = source.name.format(layer)
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
    left = sorted(name for name in stored if name not in used and not _BUFFERS.fullmatch(name))
    if config.tied_head and _HEAD in left:
        embedding = next(name for name in used if name.endswith(_TABLES[config.family]["embedding_VD"].name))
        _check_tied(stored[_HEAD], stored[embedding], embedding)
        left.remove(_HEAD)
    if left:
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise InputError(
            f"{folder}: tensors that a {config.family} model of this config.json has no place for: {shown}; "
            "they would change the result: use the config.json that belongs to these weights"
        )


def _check_tied(head: Stored, embedding: Stored, name: str) -> None:
    """A second copy of the embedding is harmless.  Where the two differ transformers 4 ties them and transformers 5
    does not, so the checkpoint has no one meaning and is refused."""
    same = (head.shape, head.dtype) == (embedding.shape, embedding.dtype)
    if same:
        with safe_open(head.file, framework="numpy") as left, safe_open(embedding.file, framework="numpy") as right:
            a, b = left.get_slice(_HEAD), right.get_slice(name)
            starts = range(0, head.shape[0], STRIP)  # in strips: neither table is on the host whole
            spans = [slice(start, min(start + STRIP, head.shape[0])) for start in starts]
            same = all(a[span].tobytes() == b[span].tobytes() for span in spans)
    if not same:
        raise InputError(
            f"{head.file}: {_HEAD} differs from {name}, but config.json says tie_word_embeddings; set it to false to "
            f"score with {_HEAD}, or remove the tensor to score with the embedding"
        )


def _read_leaf(source: Source, leaf: jax.ShapeDtypeStruct, stacked: bool, stored: Mapping[str, Stored]) -> np.ndarray:
    """All layers of one leaf.  Shards are opened anew for each leaf, so that no more of them than it stays mapped."""
    host = np.empty(leaf.shape, leaf.dtype)
    slots = host if stacked else host[None]
    by_file: dict[Path, list[int]] = {}
    for layer in range(len(slots)):
        by_file.setdefault(stored[source.name.format(layer)].file, []).append(layer)
    for path, layers in by_file.items():
        with safe_open(path, framework="numpy") as file:
            for layer in layers:
                _fill(slots[layer], source, file.get_slice(source.name.format(layer)))
    return host


def _fill(slot: np.ndarray, source: Source, stored: Any) -> None:
    """In strips of stored rows: the host never holds a second whole table, and a transposition stays in the cache
    (three times faster at 4096 x 4096 than all at once, measured)."""
    rows = slot.T if source.transposed else slot
    if rows.ndim == 1:  # its parts lie along the only axis
        rows[:] = source.take(stored[:])
        return
    for start in range(0, len(rows), STRIP):
        stop = min(start + STRIP, len(rows))  # safetensors refuses a slice that runs past the end
        rows[start:stop] = source.take(stored[start:stop].astype(slot.dtype, copy=False))
