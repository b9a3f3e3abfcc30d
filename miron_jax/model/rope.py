"""Rotary positions: rope parameters of a config -> frequencies, by transformers' rules and roundings.

Arrives: theta, the rotated part of a head, and what a way of scaling takes.  Leaves: `Rope`.  It deliberately does not
know layers, positions or config files.

Every step is float32 as in transformers (modeling_rope_utils.py): at place 8000 a frequency's last bit is worth 5e-4
radians, so the rounding that models were trained with is kept.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from miron_jax.model.config import Dynamic, Rope

# Parameters of each kind beside theta
KINDS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor", "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow",
        "original_max_position_embeddings", "truncate",
    ),
    "dynamic": ("factor",),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor", "original_max_position_embeddings"),
}  # fmt: skip


def rope_of(kind: str, parameters: Mapping[str, Any], size: int) -> Rope:
    """Rotation of `size` numbers of a head, size / 2 pairs."""
    theta = np.float32(parameters["rope_theta"])
    exponent = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    wide = theta**exponent  # radians of one turn, over 2 pi: the wavelength in places
    scale, more = 1.0, {}
    if kind == "linear":
        frequency = (np.float32(1) / wide) / np.float32(parameters["factor"])
    elif kind == "llama3":
        frequency = _llama3(np.float32(1) / wide, parameters)
    elif kind == "yarn":
        frequency, scale = _yarn(wide, parameters, size), _yarn_scale(parameters)
    elif kind == "longrope":
        short, long = (np.asarray(parameters[name], np.float32) for name in ("short_factor", "long_factor"))
        frequency, scale = np.float32(1) / (short * wide), _longrope_scale(parameters)
        more = {
            "long": tuple((np.float32(1) / (long * wide)).tolist()),
            "original_length": parameters["original_max_position_embeddings"],
        }
    else:
        frequency = np.float32(1) / wide
    if kind == "dynamic":
        dynamic = Dynamic(parameters["rope_theta"], parameters["factor"], size)
        more = {"dynamic": dynamic, "original_length": parameters["max_position_embeddings"]}
    return Rope(tuple(frequency.astype(np.float32).tolist()), scale, kind=kind, **more)


def _llama3(frequency: np.ndarray, parameters: Mapping[str, Any]) -> np.ndarray:
    """Slow turns are slowed by `factor`, fast ones stay, those between are mixed (Llama 3.1)."""
    factor, original = np.float32(parameters["factor"]), parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    wavelength = np.float32(2 * math.pi) / frequency
    slowed = np.where(wavelength > original / low, frequency / factor, frequency)
    share = (np.float32(original) / wavelength - np.float32(low)) / np.float32(high - low)
    mixed = (1 - share) * slowed / factor + share * slowed
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return np.where(between, mixed, slowed)


def _yarn(wide: np.ndarray, parameters: Mapping[str, Any], size: int) -> np.ndarray:
    """Pairs that turn often within the original length keep their frequency, rare ones are slowed (YaRN, section 3)."""
    theta, original = parameters["rope_theta"], parameters["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        """Where a pair turns this often within the original length."""
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_of(parameters.get("beta_fast") or 32), pair_of(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    width = last - first if last != first else 0.001
    ramp = np.clip((np.arange(size // 2, dtype=np.float32) - np.float32(first)) / np.float32(width), 0, 1)
    kept = np.float32(1) - ramp
    return np.float32(1) / (np.float32(parameters["factor"]) * wide) * (1 - kept) + np.float32(1) / wide * kept


def _longrope_scale(parameters: Mapping[str, Any]) -> float:
    """Of cosines and sines, for short and long requests alike (LongRoPE, section 3)."""
    original = parameters["original_max_position_embeddings"]
    factor = parameters.get("factor") or parameters["max_position_embeddings"] / original
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _yarn_scale(parameters: Mapping[str, Any]) -> float:
    """Of cosines and sines: attention_factor where it is given, else from the factor."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])

    def grown(weight: float) -> float:
        return 1.0 if parameters["factor"] <= 1 else 0.1 * weight * math.log(parameters["factor"]) + 1.0

    first, second = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return grown(first) / grown(second) if first and second else grown(1.0)
