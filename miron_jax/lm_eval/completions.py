"""lm-eval's arguments of generation -> a request for a completion.

Arrives: a prompt's token ids, `generation_kwargs`.  Leaves: a `TextRequest`, its stop strings.  It
deliberately does not know models.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from lm_eval.models.utils import normalize_gen_kwargs

from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_text

KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "seed")
# Of other engines, and what they mean when they say nothing.
NEUTRAL = {
    "num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "typical_p": 1.0,
    "min_p": 0.0,
    "no_repeat_ngram_size": 0, "length_penalty": 1.0,
}  # fmt: skip


def text_request(
    prompt: Sequence[int], options: JsonObject, max_length: int, max_gen_toks: int, seed: int
) -> tuple[TextRequest | None, list[str]]:
    """The request without stop strings, and these; None: no token is asked for.  A long prompt
    loses its first tokens.

    `max_length`: tokens of prompt and completion; `max_gen_toks`: of a completion, where `options`
    does not say.  Raises InputError for an option that is not known, or a value that it does not
    take.
    """
    named = _named(options, max_gen_toks)
    max_new_tokens, sampling = _numbers(named, options, seed)
    if named["do_sample"] and sampling.temperature == 0:
        raise InputError(
            "generation_kwargs: do_sample=true with temperature 0 draws nothing: give a "
            "temperature above 0, or leave do_sample out"
        )
    if not 0 <= max_new_tokens < max_length:
        raise InputError(
            f"generation_kwargs: max_gen_toks is {max_new_tokens}, expected 0 or more, and less "
            f"than the {max_length} tokens that prompt and completion have together (max_length)"
        )
    if max_new_tokens == 0:
        return None, named["until"]
    kept = tuple(prompt[-(max_length - max_new_tokens) :])
    return TextRequest(kept, max_new_tokens, (), sampling), named["until"]


def _named(options: JsonObject, max_gen_toks: int) -> JsonObject:
    """The options by lm-eval's own names and with its defaults.  Raises InputError for one that is
    not known, and for stop strings that are none."""
    if not isinstance(options, dict):
        raise InputError(f"generate_until: its arguments are {options!r}, expected a mapping")
    given = {name: value for name, value in options.items() if value is not None}
    if not isinstance(given.get("do_sample", False), bool):
        raise InputError(
            f"generation_kwargs: do_sample is {given['do_sample']!r}, expected true or false"
        )
    try:
        named: JsonObject = dict(normalize_gen_kwargs(given, max_gen_toks))
    except (TypeError, ValueError) as error:
        raise _no_number(options, error) from None
    for name, value in named.items():
        if name not in KNOWN and not (name in NEUTRAL and value == NEUTRAL[name]):
            raise InputError(
                f"generation_kwargs: {name}={value!r} is not done here, expected "
                f"{', '.join(KNOWN)}: leave it out"
            )
    if not all(isinstance(stop, str) for stop in named["until"]):
        raise InputError(
            f"generation_kwargs: until is {named['until']!r}, expected a text or a list of them"
        )
    return named


def _numbers(named: JsonObject, options: JsonObject, seed: int) -> tuple[int, Sampling]:
    """How many tokens to write at most, and how they are drawn.  `seed`: the options' own is added.
    Raises InputError."""
    try:
        max_new_tokens = int(named["max_gen_toks"])
        temperature = float(named.get("temperature", 0.0))
        top_k = int(named.get("top_k", 0))
        top_p = float(named.get("top_p", 1.0))
        seed += int(named.get("seed", 0))
    except (TypeError, ValueError) as error:
        raise _no_number(options, error) from None
    if temperature > 0:
        return max_new_tokens, Sampling(temperature, top_k, top_p, seed)
    return max_new_tokens, Sampling()


def _no_number(options: JsonObject, error: Exception) -> InputError:
    return InputError(f"generation_kwargs: {options!r} has a value that is no number ({error})")


def ignored_settings(folder: Path | None) -> Iterator[str]:
    """A sentence if generation_config.json has a setting that HFLM's texts follow, and these do
    not."""
    file = None if folder is None else folder / "generation_config.json"
    if file is None or not file.is_file():
        return
    settings = json.loads(read_text(file))
    not_neutral = {
        name: settings[name] for name in NEUTRAL if settings.get(name) not in (None, NEUTRAL[name])
    }
    if not_neutral:
        yield (
            f"{file} has {not_neutral}, which HFLM applies to all texts; these texts are made "
            "without"
        )
