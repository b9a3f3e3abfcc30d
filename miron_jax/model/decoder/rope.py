"""RoPE (Su et al., 2021, arXiv 2104.09864): rotary frequencies by transformers' rules (linear,
dynamic, YaRN, LongRoPE, Llama 3), and the rotation of queries and keys by their positions.

Arrives: theta, the rotated dimensions of a head, the parameters of a kind of scaling; then
positions of a batch, heads.  Leaves: a `Rope`; rotated heads.  It deliberately does not know layers
or config files.  Letters of shapes as in decoder.py; R: the distinct Ropes of the layers.

Every step of a frequency is float32 as in transformers (modeling_rope_utils.py): at position 8000
the last bit changes an angle by 5e-4 radians, so the rounding that models were trained with is
kept.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.files.readers import Json
from miron_jax.model.config import Dynamic, Rope

Parameters = Mapping[str, Json]  # of a rotation, as config.json has them

# Parameters of each kind, besides theta
KINDS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor", "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow",
        "original_max_position_embeddings", "truncate",
    ),
    "dynamic": ("factor",),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor",
        "original_max_position_embeddings"),
}  # fmt: skip


def rope_of(kind: str, parameters: Parameters, size: int) -> Rope:
    """Frequencies of `size` rotated dimensions of a head, that is size / 2 pairs.

    Raises KeyError, TypeError, ValueError or ArithmeticError for missing or unusable parameters.
    """
    theta = np.float32(parameters["rope_theta"])
    exponent = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    inverse = theta**exponent  # positions per radian
    frequency = np.float32(1) / inverse
    scale = 1.0
    by_length = {}
    if kind == "linear":
        frequency = frequency / np.float32(parameters["factor"])
    elif kind == "llama3":
        frequency = _llama3(frequency, parameters)
    elif kind == "yarn":
        frequency = _yarn(inverse, parameters, size)
        scale = _yarn_scale(parameters)
    elif kind == "longrope":
        short, long = (
            np.asarray(parameters[name], np.float32) for name in ("short_factor", "long_factor")
        )
        frequency = np.float32(1) / (short * inverse)
        scale = _longrope_scale(parameters)
        long_frequencies = tuple((np.float32(1) / (long * inverse)).tolist())
        by_length = {
            "long": long_frequencies,
            "original_length": parameters["original_max_position_embeddings"],
        }
    elif kind == "dynamic":
        dynamic = Dynamic(parameters["rope_theta"], parameters["factor"], size)
        by_length = {"dynamic": dynamic, "original_length": parameters["max_position_embeddings"]}
    return Rope(tuple(frequency.astype(np.float32).tolist()), scale, kind=kind, **by_length)


def _llama3(frequency: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Low frequencies are divided by `factor`, high ones kept, those between interpolated (Llama
    3.1)."""
    factor = np.float32(parameters["factor"])
    original = parameters["original_max_position_embeddings"]
    low = parameters["low_freq_factor"]
    high = parameters["high_freq_factor"]
    wavelength = np.float32(2 * math.pi) / frequency
    scaled = np.where(wavelength > original / low, frequency / factor, frequency)
    weight = (np.float32(original) / wavelength - np.float32(low)) / np.float32(high - low)
    interpolated = (1 - weight) * scaled / factor + weight * scaled
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return np.where(between, interpolated, scaled)


def _yarn(inverse: np.ndarray, parameters: Parameters, size: int) -> np.ndarray:
    """Pairs with many turns within the original length keep their frequency, those with few are
    divided by `factor` (YaRN, section 3)."""
    theta = parameters["rope_theta"]
    original = parameters["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        """Index of the pair with so many turns within the original length."""
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = pair_of(parameters.get("beta_fast") or 32)
    last = pair_of(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        first = math.floor(first)
        last = math.ceil(last)
    first = max(first, 0)
    last = min(last, size - 1)
    width = (last - first) or 0.001
    ramp = np.clip(
        (np.arange(size // 2, dtype=np.float32) - np.float32(first)) / np.float32(width), 0, 1
    )
    kept = np.float32(1) - ramp
    return (
        np.float32(1) / (np.float32(parameters["factor"]) * inverse) * (1 - kept)
        + np.float32(1) / inverse * kept
    )


def _longrope_scale(parameters: Parameters) -> float:
    """Scale of cosines and sines, the same for short and long requests (LongRoPE, section 3)."""
    original = parameters["original_max_position_embeddings"]
    factor = parameters.get("factor") or parameters["max_position_embeddings"] / original
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    return math.sqrt(1 + math.log(max(factor, 1)) / math.log(original))


def _yarn_scale(parameters: Parameters) -> float:
    """Scale of cosines and sines: attention_factor if it is set, else computed from the factor."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])

    def scale_of(weight: float) -> float:
        return 0.1 * weight * math.log(max(parameters["factor"], 1)) + 1.0

    first = parameters.get("mscale")
    second = parameters.get("mscale_all_dim")
    return scale_of(first) / scale_of(second) if first and second else scale_of(1.0)


class Rotation(NamedTuple):
    """Cosines and sines of every slot for each distinct Rope: float32 [R, B, T, 1, pairs]."""

    cos_RBT1H: jax.Array
    sin_RBT1H: jax.Array


def distinct(ropes: tuple[Rope, ...]) -> tuple[Rope, ...]:
    return tuple(dict.fromkeys(ropes))


def rotation_of(
    ropes: tuple[Rope, ...], position_BT: jax.Array, rope_class_BT: jax.Array | None
) -> Rotation:
    """`ropes`: the distinct ones; `rope_class_BT`: the RoPE scaling class of each slot, None where
    no Rope has any."""
    if rope_class_BT is None:
        frequency_RBT1H = jnp.asarray([rope.frequencies for rope in ropes], jnp.float32)[
            :, None, None, None, :
        ]
    else:
        frequency_RBT1H = jnp.stack([_frequencies(rope, rope_class_BT) for rope in ropes])[
            :, :, :, None, :
        ]
    scale_R1111 = np.asarray([rope.scale for rope in ropes], np.float32)[:, None, None, None, None]
    position_1BT11 = position_BT.astype(jnp.float32)[None, :, :, None, None]
    angle_RBT1H = position_1BT11 * frequency_RBT1H
    return Rotation(jnp.cos(angle_RBT1H) * scale_R1111, jnp.sin(angle_RBT1H) * scale_R1111)


def rotate(x_BTNH: jax.Array, rotation: Rotation, rope_idx: jax.Array | None) -> jax.Array:
    """Rotate n pairs of each head; pair i is (x[i], x[i + n]), Hugging Face's half-split order.
    Dimensions from 2n on are not rotated.  `rope_idx`: int32, the layer's row of the tables; None:
    the first."""
    row = 0 if rope_idx is None else rope_idx
    cos_BT1H = rotation.cos_RBT1H[row]
    sin_BT1H = rotation.sin_RBT1H[row]
    pairs = cos_BT1H.shape[-1]
    left = x_BTNH[..., :pairs]
    right = x_BTNH[..., pairs : 2 * pairs]
    rest = x_BTNH[..., 2 * pairs :]
    return jnp.concatenate(
        [left * cos_BT1H - right * sin_BT1H, right * cos_BT1H + left * sin_BT1H, rest], axis=-1
    )


def _frequencies(rope: Rope, rope_class_BT: jax.Array) -> jax.Array:
    """Rotary frequencies of every slot by its RoPE scaling class, float32 [B, T, pairs]."""
    short_11H = jnp.asarray(rope.frequencies, jnp.float32)[None, None]
    if not rope.varies_with_length:
        return jnp.broadcast_to(short_11H, (*rope_class_BT.shape, len(rope.frequencies)))
    if rope.dynamic is None:
        long_BTH = jnp.asarray(rope.long, jnp.float32)[None, None]
    else:
        theta = rope.dynamic.theta
        factor = rope.dynamic.factor
        size = rope.dynamic.size
        longer_BT = factor * rope_class_BT.astype(jnp.float32) / rope.original_length - (factor - 1)
        theta_BT1 = (theta * jnp.maximum(longer_BT, 1.0) ** (size / (size - 2)))[:, :, None]
        exponent_H = jnp.arange(0, size, 2, dtype=jnp.float32) / size
        long_BTH = 1.0 / theta_BT1 ** exponent_H[None, None]
    return jnp.where((rope_class_BT > 0)[:, :, None], long_BTH, short_11H)
