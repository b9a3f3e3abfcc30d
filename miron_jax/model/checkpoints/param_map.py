"""Mappings from the decoder's leaves to arrays of other names: MaxText's, and the user's own.

Arrives: the names on disk, a ModelConfig or the user's mapping.  Leaves: `Mapped` for each leaf.
It deliberately does not read arrays.

A user's mapping is JSON, or the result of a function `mapping(shapes)`, with one entry for each
leaf of the model:

    {"embedding_VD": "wte/embedding",
     "layers/attn/q/kernel_IO": "h_{}/attn/query/kernel",
     "layers/mlp/up/kernel_IO": {"name": "blocks/fc", "layer_axis": 1, "transposed": true}}

The first is one array; the second one for each layer, where (D, N, H) counts as (D, N * H); the
third has all layers in one array.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.files.readers import Json, parse_json, parse_yaml
from miron_jax.model.checkpoints.presets import PRESETS, MapEntries
from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family_model import Shapes

Change = Callable[[np.ndarray], np.ndarray]


class LayerArray(NamedTuple):
    """The array, or the part of one, that holds one layer of a leaf or a leaf without layers."""

    name: str
    axis: int | None = None  # the axis of layers, if the array holds several
    index: int = 0  # of this layer along that axis


class Mapped(NamedTuple):
    """The arrays that hold a leaf."""

    arrays: tuple[LayerArray, ...]  # one for each layer
    change: Change  # applied to each array before it is reshaped to the leaf


def _same(x: np.ndarray) -> np.ndarray:
    return x


# MaxText: AI-Hypercomputer/maxtext 0.2.5, checkpoint_conversion/utils/param_mapping.py and models/


def is_maxtext(names: Collection[str]) -> bool:
    """Whether these are the names of a MaxText tree."""
    suffixes = ("token_embedder/embedding", "decoder/decoder_norm/scale")
    return all(any(f"/{name}".endswith(f"/{suffix}") for name in names) for suffix in suffixes)


def is_maxtext_config(param_map: str | None) -> bool:
    """Whether --param_map names a MaxText config file, which says what a MaxText tree does not."""
    return param_map is not None and Path(param_map).suffix in (".yml", ".yaml")


def divides_logits(param_map: str) -> bool:
    """Whether MaxText divides the logits of a tied head by sqrt(embed), as its config file says.

    Raises InputError for a file that does not say it.
    """
    path = local_path(param_map)
    try:
        fields = parse_yaml(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"--param_map={param_map}: cannot be read ({error}), expected MaxText's config file"
        ) from None
    if not isinstance(fields, Mapping):
        fields = {}
    expected = {"logits_via_embedding": (True,), "normalize_embedding_logits": (True, False)}
    for name, values in expected.items():
        if fields.get(name) not in values or not isinstance(fields[name], bool):
            raise InputError(
                f"--param_map={param_map}: {name} is {fields.get(name)!r}, expected "
                f"{' or '.join(map(str, values))} in the config file with which MaxText trained "
                "this model with a tied head: name that file, with all its fields"
            )
    return bool(fields["normalize_embedding_logits"])


def maxtext_map(
    folder: Path,
    config: ModelConfig,
    names: Collection[str],
    scale: float,
    config_file: str | None = None,
) -> dict[str, Mapped]:
    """The mapping of a Llama or Gemma; `scale` is the decoder's embedding scale in the run's dtype,
    `config_file` that of MaxText, which a Llama with a tied head needs.

    MaxText stores kernels as (embed, heads, head), stacks layers along axis 1 or numbers them, and
    multiplies the attention scale into the query kernel, except for Gemma 3.  With rope_type
    llama3.1 the rotated pairs of q and k are neighbours, else halves as in Hugging Face's order.
    Its Gemma embedding includes the embedding scale, and its Gemma norms hold 1 + weight.
    Vocabularies may be padded.  Raises InputError for another family.
    """
    _check_maxtext(folder, config, config_file)
    family = config.family
    is_llama = not config.family.startswith("gemma")
    is_divided = (
        config_file is not None and is_llama and config.tied_head and divides_logits(config_file)
    )
    root = _maxtext_root(folder, names)
    layer = _LayerNames(
        config, {name.removeprefix(root) for name in names if name.startswith(root)}, root
    )

    def norm(x: np.ndarray) -> np.ndarray:
        return x - config.norm_offset

    # what divides the logits divides the norm before them
    def final_norm(x: np.ndarray) -> np.ndarray:
        return norm(x) / np.float32(config.d_model**0.5) if is_divided else norm(x)

    def rotated(x: np.ndarray) -> np.ndarray:  # [.., head]
        if not any(rope.kind == "llama3" for rope in config.layer_ropes):
            return x
        return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)

    def query(x: np.ndarray) -> np.ndarray:
        if family == "gemma3_text":
            return rotated(x)
        return rotated(x.astype(np.float32) / np.float32(config.attn_scale))

    mapped = {
        "embedding_VD": Mapped(
            (LayerArray(f"{root}token_embedder/embedding"),),
            lambda x: x[: config.vocab_size] / np.float32(scale),
        ),
        "final_norm/weight": Mapped((LayerArray(f"{root}decoder/decoder_norm/scale"),), final_norm),
        "head_VD": Mapped(
            (LayerArray(f"{root}decoder/logits_dense/kernel"),), lambda x: x.T[: config.vocab_size]
        ),
        "layers/attn/q/kernel_IO": layer("self_attention{}/query/kernel", query),
        "layers/attn/k/kernel_IO": layer("self_attention{}/key/kernel", rotated),
        "layers/attn/v/kernel_IO": layer("self_attention{}/value/kernel", _same),
        "layers/attn/out/kernel_IO": layer("self_attention{}/out/kernel", _same),
        "layers/attn/q_norm/weight": layer("self_attention{}/query_norm/scale", norm),
        "layers/attn/k_norm/weight": layer("self_attention{}/key_norm/scale", norm),
        "layers/mlp/gate/kernel_IO": layer("mlp{}/wi_0/kernel", _same),
        "layers/mlp/up/kernel_IO": layer("mlp{}/wi_1/kernel", _same),
        "layers/mlp/down/kernel_IO": layer("mlp{}/wo/kernel", _same),
    }
    if is_llama:
        mapped["layers/attn_norm/weight"] = layer("pre_self_attention_layer_norm/scale", norm)
        mapped["layers/mlp_norm/weight"] = layer("post_self_attention_layer_norm/scale", norm)
    else:
        mapped["layers/attn_norm/weight"] = layer("pre_self_attention_norm{}/scale", norm)
        mapped["layers/attn_post_norm/weight"] = layer("post_self_attention_norm{}/scale", norm)
        mapped["layers/mlp_norm/weight"] = layer("pre_ffw_norm{}/scale", norm)
        mapped["layers/mlp_post_norm/weight"] = layer("post_ffw_norm{}/scale", norm)
    return mapped


def _check_maxtext(folder: Path, config: ModelConfig, config_file: str | None) -> None:
    """Raises InputError for a family, or a head, that is not read from MaxText's trees."""
    family = config.family
    if family not in ("llama", "mistral", "gemma", "gemma2", "gemma3_text"):
        raise InputError(
            f"{folder}: a MaxText tree of a {family} model is not read, expected Llama, Mistral or "
            "Gemma: convert it with MaxText's to_huggingface.py, or name its arrays with "
            "--param_map"
        )
    if config.tied_head and not family.startswith("gemma") and config_file is None:
        raise InputError(
            f"{folder}: a MaxText tree of a {family} model with a tied head (tie_word_embeddings): "
            "whether its logits are divided by sqrt(embed) stands in MaxText's own config: name "
            "that file, such as --param_map=config.yml"
        )


def _maxtext_root(folder: Path, names: Iterable[str]) -> str:
    """The prefix of the weights' names; an optimizer's moments have the same names after another
    prefix.

    Raises InputError if several prefixes may be that of the weights.
    """
    suffix = "token_embedder/embedding"
    roots = {name.removesuffix(suffix) for name in names if f"/{name}".endswith(f"/{suffix}")}
    for root in ("params/params/", "params/", ""):
        if root in roots:
            return root
    if len(roots) != 1:
        raise InputError(
            f"{folder}: holds MaxText's names below {', '.join(sorted(roots))}, expected them "
            "once, or below params; save the weights alone"
        )
    return next(iter(roots))


class _LayerNames(NamedTuple):
    """Names of a layer's arrays in MaxText: Gemma 2 pairs layers (local, global), Gemma 3 scans
    blocks of six."""

    config: ModelConfig
    names: set[str]  # without the root
    root: str

    def __call__(self, name: str, change: Change) -> Mapped:
        return Mapped(
            tuple(self._array(name, layer) for layer in range(self.config.num_layers)), change
        )

    def _array(self, name: str, layer: int) -> LayerArray:
        suffix = name.format("")
        index = layer
        if self.config.family == "gemma2":
            suffix = name.format("_global" if layer % 2 else "_local")
            index = layer // 2
        stacked = f"decoder/layers/{suffix}"
        if stacked in self.names:
            return LayerArray(self.root + stacked, 1, index)
        block, layer_of_block = divmod(layer, 6)
        in_block = f"decoder/layers/layers_{layer_of_block}/{suffix}"
        in_remainder = f"decoder/layers_remainder/layers_{layer_of_block}/{suffix}"
        if in_block in self.names and layer < self.config.num_layers - self.config.num_layers % 6:
            return LayerArray(self.root + in_block, 1, block)
        if in_remainder in self.names:
            return LayerArray(self.root + in_remainder)
        return LayerArray(f"{self.root}decoder/layers_{index}/{suffix}")


# The user's own names


def users_map(
    param_map: str,
    shapes: Shapes,
    leaves: Shapes,
    config: ModelConfig | None,
    optional: Collection[str] = (),
) -> dict[str, Mapped]:
    """The mapping that --param_map names: another library, a JSON file, or package.module:function,
    which is called with the stored `shapes`.

    `leaves`: shapes of the model's leaves, of which the `optional` ones may have no entry.  With a
    `config` the first axis of those below layers/ is that of layers.  Raises InputError for a
    mapping that is malformed, incomplete or names an unknown leaf.
    """
    if param_map in PRESETS:
        entries = _preset(param_map, shapes, leaves, config)
    else:
        entries = _entries(param_map, shapes)
    unknown = sorted(set(entries) - set(leaves))
    faults = [f"names {leaf}, which the model does not have" for leaf in unknown]
    missing = sorted(set(leaves) - set(entries) - set(optional))
    faults += [f"lacks {leaf}" for leaf in missing]
    if faults:
        raise InputError(
            f"--param_map={param_map}: {faults[0]}, expected an entry for each of "
            f"{', '.join(sorted(leaves))}"
        )
    mapped = {}
    for leaf, entry in entries.items():
        is_stacked = config is not None and leaf.startswith("layers/")
        mapped[leaf] = _mapped(param_map, leaf, entry, leaves[leaf][0] if is_stacked else None)
    return mapped


def _preset(
    name: str,
    shapes: Shapes,
    leaves: Collection[str],
    config: ModelConfig | None,
) -> MapEntries:
    """The names of another library, of the leaves that this model has."""
    if config is None:
        raise InputError(
            f"--param_map={name}: names a library's tree of a known architecture, expected the "
            "names of a model of your own: give a JSON file or package.module:function"
        )
    entries = PRESETS[name](config, shapes)
    missing = sorted(set(leaves) - set(entries))
    if missing:
        raise InputError(
            f"--param_map={name}: such a tree has no place for {missing[0]}, which a "
            f"{config.family} model of this config.json has; use the config.json of this checkpoint"
        )
    return {leaf: entries[leaf] for leaf in leaves}


def _entries(param_map: str, shapes: Shapes) -> MapEntries:
    from miron_jax.model.own import import_from, is_factory

    if is_factory(param_map) and not Path(param_map).exists():
        entries = import_from(param_map, "--param_map", 1)(dict(shapes))
    else:
        path = local_path(param_map)
        if not path.is_file():
            raise InputError(
                f"--param_map={param_map}: no such file, no package.module:function, "
                f"and none of {', '.join(PRESETS)}; check the path"
            )
        try:
            entries = parse_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(
                f"--param_map={param_map}: not JSON ({error}), expected an object: leaf to name"
            ) from None
    if not isinstance(entries, Mapping):
        raise InputError(
            f"--param_map={param_map}: holds a {type(entries).__name__}, expected an object: leaf "
            "to name"
        )
    return dict(entries)


_DEFAULTS: MapEntries = {"layer_axis": 0, "transposed": False, "change": _same}  # beside the name


def _mapped(param_map: str, leaf: str, entry: Json, num_layers: int | None) -> Mapped:
    """One entry of a user's mapping.  Raises InputError for an entry of the wrong form."""
    if isinstance(entry, str):
        entry = {"name": entry}
    rules: MapEntries = {**_DEFAULTS, **entry} if isinstance(entry, Mapping) else {}
    axis = rules.get("layer_axis")
    if not (
        rules.keys() == {"name", *_DEFAULTS}
        and isinstance(rules["name"], str)
        and type(axis) is int
        and axis >= 0
        and isinstance(rules["transposed"], bool)
        and callable(rules.get("change"))
    ):
        raise InputError(
            f"--param_map={param_map}: {leaf} is {entry!r}, expected a name, or an object of name, "
            "layer_axis (a number from 0), transposed (true or false) and, in a function's result, "
            "change (array to array)"
        )
    name = rules["name"]
    transposed = rules["transposed"]
    change: Change = rules["change"]

    def changed(x: np.ndarray) -> np.ndarray:
        x = change(x)
        if transposed and x.ndim != 2:
            raise InputError(
                f"--param_map={param_map}: {leaf} is to be transposed, but {name} has shape "
                f"{list(x.shape)}, expected two axes: turn it with a function's `change`"
            )
        return x.T if transposed else x

    if num_layers is None:
        return Mapped((LayerArray(name),), changed)
    if "{}" in name:
        return Mapped(
            tuple(LayerArray(name.replace("{}", str(i))) for i in range(num_layers)), changed
        )
    return Mapped(tuple(LayerArray(name, axis, i) for i in range(num_layers)), changed)
