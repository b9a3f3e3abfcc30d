"""lm-eval's arguments of generation -> a request for a completion, and back to a text.

Arrives: a prompt's token ids, `gen_kwargs`.  Leaves: a `TextRequest` with its stop strings; a text.  It deliberately does
not know models.
"""

import copy
from collections.abc import Sequence
from typing import Any

from lm_eval.models.utils import normalize_gen_kwargs

from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.tokens.tokenizers import Tokenizer

KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "seed")
# Of other engines, and what they mean when they say nothing.
NEUTRAL = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "typical_p": 1.0, "min_p": 0.0}


def text_request(
    prompt: Sequence[int], options: dict[str, Any], max_length: int, max_gen_toks: int, seed: int
) -> tuple[TextRequest | None, list[str]]:
    """The request, and its stop strings; None: no token is asked for.  A long prompt loses its first tokens.

    `max_length`: tokens of prompt and completion; `max_gen_toks`: of a completion, where `options` does not say.  Raises
    InputError for an option that is not known.
    """
    if not isinstance(options, dict):
        raise InputError(f"generate_until: its arguments are {options!r}, expected a mapping")
    named: dict[str, Any] = dict(normalize_gen_kwargs(copy.deepcopy(options), max_gen_toks))
    for name, value in named.items():
        if name not in KNOWN and not (name in NEUTRAL and value in (None, NEUTRAL[name])):
            raise InputError(
                f"generation_kwargs: {name}={value!r} is not done here, expected {', '.join(KNOWN)}: leave it out"
            )
    until = [] if named["until"] is None else [stop for stop in named["until"] if stop is not None]
    if not all(isinstance(stop, str) for stop in until):
        raise InputError(f"generation_kwargs: until is {named['until']!r}, expected a text or a list of them")
    temperature = float(named.get("temperature") or 0.0)
    if named["do_sample"] and temperature == 0:
        raise InputError(
            "generation_kwargs: do_sample=true with temperature 0 draws nothing: give a temperature above 0, or leave "
            "do_sample out"
        )
    new = int(named["max_gen_toks"])
    if new < 1:
        return None, until
    if new >= max_length:
        raise InputError(
            f"generation_kwargs: max_gen_toks is {new}, but prompt and completion together have {max_length} tokens "
            "(max_length): ask for fewer"
        )
    sampling = Sampling()
    if temperature > 0:
        top_k, top_p = int(named.get("top_k") or 0), float(named.get("top_p") or 1.0)
        sampling = Sampling(temperature, top_k, top_p, int(named.get("seed") or 0) + seed)
    kept = tuple(prompt)[-(max_length - new) :]
    return TextRequest(kept, new, tuple(filter(None, until)), sampling), until


def completion_of(tokenizer: Tokenizer, generated: Generated) -> str:
    """The tokens of a completion as text, alone and without special tokens, as HFLM decodes them."""
    return tokenizer.decode(list(generated.token_ids), skip_special_tokens=True)
