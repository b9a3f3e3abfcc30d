"""Whose rules a user's task follows: all that makes a prompt and scores its choices, by one name.

Arrives: a name of RULES and what a task's file says itself.  Leaves: a `Profile` or an `AnswerProfile`.  It deliberately
does not know data.
"""

from typing import Any

from miron_jax.definitions.records import AnswerProfile, Profile
from miron_jax.definitions.rules import GREEDY
from miron_jax.metrics.answers import GAUNTLET, PREFIX
from miron_jax.metrics.choices import EXP_MEAN, FIRST, MEAN, SUM
from miron_jax.prompting.draws import FILE_ORDER, PER_ITEM_1234, SHUFFLE_1337, STREAM_1234, STREAM_LM_EVAL
from miron_jax.tokens.spans import AFTER_COMMON_PREFIX, AFTER_CONTEXT, AFTER_STRIPPED_CONTEXT, CONTINUATION

_CORE: dict[str, Any] = {
    "protocol": "core (nanochat)", "question_delimiter": "whole", "shot_separator": "\n\n", "strip": "nothing",
    "item_order": SHUFFLE_1337, "fewshot_draw": PER_ITEM_1234, "fewshot_pool": "limited_items", "bos": "always",
    "boundary": "joint", "max_length": None,
}  # fmt: skip
_GAUNTLET: dict[str, Any] = {
    "protocol": "gauntlet-v0.1.0", "question_delimiter": "right_stripped", "shot_separator": "\n", "strip": "fields",
    "item_order": FILE_ORDER, "fewshot_draw": STREAM_1234, "fewshot_pool": "whole_file", "bos": "as_tokenizer",
    "boundary": "segments", "max_length": 1024,
}  # fmt: skip
_LM_EVAL: dict[str, Any] = {
    "protocol": "lm-eval 0.4.13", "question_delimiter": "whole", "shot_separator": "\n\n", "strip": "nothing",
    "item_order": FILE_ORDER, "fewshot_draw": STREAM_LM_EVAL, "fewshot_pool": "whole_file", "bos": "as_tokenizer",
    "boundary": "joint", "max_length": None,
}  # fmt: skip
_WORDING = {"core": _CORE, "gauntlet": _GAUNTLET, "lm_eval": _LM_EVAL}
_CHOICE: dict[str, dict[str, Any]] = {
    "core": {"continuation_space": "as_written", "normalizer": MEAN, "empty_span": "nan_first_wins"},
    "gauntlet": {"continuation_space": "where_one_token", "normalizer": EXP_MEAN, "empty_span": "error"},
    "lm_eval": {"continuation_space": "as_written", "normalizer": SUM, "empty_span": "error"},
}
_SPANS = {
    "core": {"choice": AFTER_COMMON_PREFIX, "continuation": AFTER_STRIPPED_CONTEXT},
    "gauntlet": {"choice": CONTINUATION, "continuation": CONTINUATION},
    "lm_eval": {"choice": AFTER_CONTEXT, "continuation": AFTER_CONTEXT},
}
RULES = tuple(_WORDING)


def profile_of(
    rules: str, kind: str, said: dict[str, Any], stop: tuple[str, ...], extra: int
) -> Profile | AnswerProfile:
    """`said`: fields of `Wording` that the task's file gives; `stop`, `extra`: of a completion."""
    wording = {**_WORDING[rules], "categories": "pooled", "truncation": "keep_last", **said}
    if kind == "generation":
        return AnswerProfile(
            **wording,
            decoding=GREEDY,
            extra_tokens=extra,
            stop=stop,
            answer_after="",
            answer_normalizer=GAUNTLET,
            match=PREFIX,
        )
    strip = {"strip": "context"} if (rules, kind) == ("core", "continuation") else {}
    return Profile(**{**wording, **strip, **_CHOICE[rules]}, span=_SPANS[rules][kind], tie=FIRST)
