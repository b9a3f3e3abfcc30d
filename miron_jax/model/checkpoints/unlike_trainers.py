"""Where a trainer's own forward computes otherwise than the config.json beside its checkpoint says.

Arrives: the trainer, a ModelConfig.  Leaves: sentences.  It deliberately does not read files, and
changes no score: those follow config.json.

The trainers are levanter 0.2.20, EasyDeL 0.3.0 and Tunix 0.1.7; docs/checkpoints.md says what to
write into config.json to score as they train.
"""

import numpy as np

from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.rope import rope_of

_WITHOUT_WINDOWS = ("mistral", "gemma2", "gemma3_text")  # of levanter's
_ROTATED_ALIKE = ("llama", "qwen3")  # of Tunix's: whatever their own config says
_TUNIX_THETA = 1e6


def unlike_trainer(trainer: str, config: ModelConfig) -> list[str]:
    """What the trainer (levanter, EasyDeL or tunix) computes, and config.json does not say."""
    family = config.family
    windows = [window for window in config.layer_windows if window is not None]
    reached = [window for window in windows if window < config.trained_length]
    others: list[str] = []
    if trainer == "levanter":
        if family in _WITHOUT_WINDOWS and reached:
            others.append(f"has no windows, where config.json has one of {min(reached)} tokens")
        if family == "gemma2" and config.final_softcap is not None:
            others.append(f"has no final soft cap, where config.json has {config.final_softcap:g}")
    elif trainer == "EasyDeL":
        if any(rope.kind == "llama3" for rope in config.layer_ropes):
            others.append("turns tokens beyond original_max_position_embeddings as the last before")
        if reached:
            others.append("lets a token see one token more than its own sliding_window")
    elif trainer == "tunix" and family in _ROTATED_ALIKE:
        plain = rope_of("default", {"rope_theta": _TUNIX_THETA}, config.head_dim).frequencies
        if any(not np.allclose(rope.frequencies, plain, rtol=1e-5) for rope in config.layer_ropes):
            others.append("rotates by rope_theta 1000000, unscaled, where config.json says another")
    return others
