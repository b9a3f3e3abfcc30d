"""Requests for completions, and the completions.

Arrives: nothing.  Leaves: `TextRequest`, `Sampling`, `Generated`, `GenerationSpeed`.  It
deliberately does not know devices.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from miron_jax.errors import InputError
from miron_jax.tokens.detokenize import text_after
from miron_jax.tokens.tokenizers import Tokenizer

if TYPE_CHECKING:
    from miron_jax.model.config import ModelConfig
    from miron_jax.model.network import Network


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn.  Temperature 0 is greedy: the most probable token, the lowest id among
    equals."""

    temperature: float = 0.0
    top_k: int = 0  # only the k most probable tokens, and what equals the last of them; 0: all
    # only the fewest tokens that hold this much of the probability left by top_k
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        fits = 0 <= self.top_k < 2**31 and 0 < self.top_p <= 1 and 0 <= self.seed < 2**32
        if not (fits and 0 <= self.temperature < math.inf):
            raise InputError(
                f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}, seed "
                f"{self.seed}: expected temperature >= 0, top_k >= 0 (0: all tokens), 0 < top_p <= "
                "1 and a seed from 0 to 2**32 - 1"
            )

    @property
    def how(self) -> Literal["greedy", "sampled", "cut"]:
        """What a step computes for it: `cut` sorts the vocabulary."""
        if self.temperature == 0:
            return "greedy"
        return "cut" if self.top_k or self.top_p < 1 else "sampled"


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A prompt to complete.  The completion ends before the first stop string, at EOS, or after
    `max_new_tokens`."""

    token_ids: tuple[int, ...]  # at least one
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()

    @property
    def digest(self) -> str:
        """128 bits, in hex, of all that the completion depends on except the model and its
        tokenizer."""
        content = json.dumps(
            [self.token_ids, self.max_new_tokens, self.stop, astuple(self.sampling)]
        )
        return blake2b(content.encode(), digest_size=16).hexdigest()


# nan: the logits are NaN, and the text means nothing; written: another program wrote the text
Ended = Literal["stop", "eos", "length", "nan", "written"]


class Generated(NamedTuple):
    """One completion."""

    text: str  # without the stop string
    token_ids: tuple[int, ...]  # all drawn tokens, those of the stop string included, EOS not
    ended: Ended


@dataclass(slots=True)
class GenerationSpeed:
    """Counts and times of generation; grows while requests run."""

    slot_steps: int = 0  # slots x steps of all calls
    busy_steps: int = 0  # slot steps of slots in use
    drawn_tokens: int = 0  # a step may draw several
    prompt_tokens: int = 0  # one row per request
    prefilled_tokens: int = 0  # nodes computed, shared prefixes once
    programs: int = 0
    compile_seconds: float = 0.0
    device_seconds: float = 0.0


def plain_text(tokenizer: Tokenizer, prompt: Sequence[int], generated: Generated) -> str:
    """A completion without special tokens; if a stop string ended it, or another program wrote it,
    its text is returned unchanged."""
    if generated.ended in ("stop", "written"):
        return generated.text
    special = set(tokenizer.all_special_ids)
    return text_after(
        tokenizer, prompt, [token for token in generated.token_ids if token not in special]
    )


def why_refused(request: TextRequest, config: "ModelConfig | Network") -> str | None:
    """The reason why a request cannot run, and the remedy; None: it can run."""
    ids = request.token_ids
    if not ids:
        return "has no token: an empty prompt needs a tokenizer with a BOS token"
    if request.max_new_tokens < 1:
        return f"asks for {request.max_new_tokens} new tokens, expected at least 1"
    if isinstance(request.stop, str) or not all(request.stop):
        return f"has stop strings {request.stop!r}: expected a tuple of strings, none of them empty"
    if min(ids) < 0 or max(ids) >= config.vocab_size:
        return (
            f"has token ids from {min(ids)} to {max(ids)}, but the model's vocabulary has "
            f"{config.vocab_size}: name the model's own tokenizer with --tokenizer"
        )
    rope_classes = config.rope_classes
    if rope_classes is not None and len(ids) + request.max_new_tokens > rope_classes.above:
        return (
            f"has {len(ids)} tokens and asks for {request.max_new_tokens} more, but the model's "
            f"rotary frequencies change above {rope_classes.above}, while a text grows: shorten "
            "the prompt or ask for fewer"
        )
    if config.num_positions and len(ids) + request.max_new_tokens - 1 > config.num_positions:
        return (
            f"has {len(ids)} tokens and asks for {request.max_new_tokens} more, but the model has "
            f"{config.num_positions} learned positions: shorten the prompt or ask for fewer"
        )
    return None
