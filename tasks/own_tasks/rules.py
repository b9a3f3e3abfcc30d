"""Whose rules a user's task follows: all that makes a prompt and scores its choices, by one name,
or each by its own.

Arrives: a name of RULES and what a task's file says itself.  Leaves: a profile.  It deliberately
does not know data.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from miron_jax.definitions.records import AnswerProfile, Profile
from miron_jax.definitions.rules import GREEDY, Rule
from miron_jax.files.readers import Json, shown
from miron_jax.metrics import answers, choices
from miron_jax.metrics.choices import EXP_MEAN, FIRST, MEAN, SUM
from miron_jax.prompting.draws import (
    FILE_ORDER,
    PER_ITEM_1234,
    SHUFFLE_1337,
    STREAM_1234,
    STREAM_LM_EVAL,
    draw_named,
    order_named,
    other_draw_named,
)
from miron_jax.tokens import spans
from miron_jax.tokens.spans import (
    AFTER_COMMON_PREFIX,
    AFTER_CONTEXT,
    AFTER_CONTEXT_OR_DIFFERENCE,
    AFTER_STRIPPED_CONTEXT,
    CONTINUATION,
)

_CORE: dict[str, Any] = {
    "protocol": "core (nanochat)", "question_delimiter": "whole", "shot_separator": "\n\n",
    "strip": "nothing",
    "item_order": SHUFFLE_1337, "fewshot_draw": PER_ITEM_1234, "fewshot_pool": "limited_items",
    "bos": "always",
    "boundary": "joint", "max_length": None,
}  # fmt: skip
_GAUNTLET: dict[str, Any] = {
    "protocol": "gauntlet-v0.1.0", "question_delimiter": "right_stripped", "shot_separator": "\n",
    "strip": "fields",
    "item_order": FILE_ORDER, "fewshot_draw": STREAM_1234, "fewshot_pool": "whole_file",
    "bos": "as_tokenizer",
    "boundary": "segments", "max_length": 1024,
}  # fmt: skip
_LM_EVAL: dict[str, Any] = {
    "protocol": "lm-eval 0.4.13", "question_delimiter": "whole", "shot_separator": "\n\n",
    "strip": "nothing",
    "item_order": FILE_ORDER, "fewshot_draw": STREAM_LM_EVAL, "fewshot_pool": "whole_file",
    "bos": "as_tokenizer",
    "boundary": "joint", "max_length": None,
}  # fmt: skip
_WORDING = {"core": _CORE, "gauntlet": _GAUNTLET, "lm_eval": _LM_EVAL}
_CHOICE: dict[str, dict[str, Any]] = {
    "core": {
        "continuation_space": "as_written",
        "normalizer": MEAN,
        "empty_span": "nan_first_wins",
    },
    "gauntlet": {
        "continuation_space": "where_one_token",
        "normalizer": EXP_MEAN,
        "empty_span": "error",
    },
    "lm_eval": {
        "continuation_space": "as_written",
        "normalizer": SUM,
        "empty_span": "error", "boundary": "context_kept", "bos": "as_tokenizer_or_prefix",
        "truncation": "keep_last_inputs",
    },
}  # fmt: skip
_SCORED = ("choice", "schema", "continuation")  # kinds of tasks whose texts are scored
_SPANS = {
    "core": {
        "choice": AFTER_COMMON_PREFIX,
        "schema": spans.COMMON_SUFFIX,
        "continuation": AFTER_STRIPPED_CONTEXT,
    },
    "gauntlet": dict.fromkeys(_SCORED, CONTINUATION),
    "lm_eval": dict.fromkeys(_SCORED, AFTER_CONTEXT_OR_DIFFERENCE),
}
RULES = tuple(_WORDING)
Named = Callable[[str], Rule[Any] | None]


def _among(*rules: Rule[Any]) -> dict[str, Rule[Any]]:
    return {rule.name: rule for rule in rules}


_TABLES = {
    "normalizer": _among(MEAN, EXP_MEAN, SUM, choices.CHAR),
    "tie": _among(FIRST, choices.LAST),
    "span": _among(
        AFTER_STRIPPED_CONTEXT, AFTER_CONTEXT, AFTER_CONTEXT_OR_DIFFERENCE, AFTER_COMMON_PREFIX,
        spans.COMMON_SUFFIX,
        CONTINUATION,
    ),
    "answer_normalizer": _among(answers.GAUNTLET, answers.SQUAD, answers.STRIP),
    "match": _among(answers.EQUAL, answers.NORMALIZED, answers.WORDS, answers.PREFIX,
                    answers.PREFIX_WORDS),
}  # fmt: skip
_PATTERNS: dict[str, tuple[Named, str]] = {
    "item_order": (order_named, "file or shuffle_SEED"),
    "fewshot_draw": (draw_named, "per_item_SEED, stream_SEED or stream_lm_eval"),
}
_OTHER_DRAW = (other_draw_named, "first, per_item_SEED, stream_SEED or stream_lm_eval")
_OF_OTHERS = {"core": "per_item_1234", "gauntlet": "stream_1234", "lm_eval": "stream_lm_eval"}
_NOT_OF_FILES = {"protocol", "decoding", "over_all", "truncation", "chat", "answer_start"}


def rules_of(kind: str) -> dict[str, tuple[str, ...]]:
    """Names of the rules that a task of this kind may choose itself, each with its values; ():
    free."""
    profile = AnswerProfile if kind == "generation" else Profile
    values: dict[str, tuple[str, ...]] = {}
    for name, hint in get_type_hints(profile).items():
        if name in _TABLES:
            values[name] = tuple(_TABLES[name])
        elif name in _PATTERNS:
            values[name] = ()
        elif get_origin(hint) is Literal and name not in _NOT_OF_FILES:
            values[name] = get_args(hint)
    return values


def rule_named(kind: str, name: str, value: Json, of_other_file: bool) -> Any:
    """The rule, or the value of a rule that has but a name.  Raises ValueError for one that is not
    there."""
    if name in _PATTERNS:
        find, expected = (
            _OTHER_DRAW if name == "fewshot_draw" and of_other_file else _PATTERNS[name]
        )
        rule = find(value) if isinstance(value, str) else None
        if rule is None:
            raise ValueError(f"{name} is {shown(value)}, expected {expected}")
        return rule
    values = rules_of(kind)[name]
    if value not in values:
        raise ValueError(f"{name} is {shown(value)}, expected one of {', '.join(values)}")
    return _TABLES[name][value] if name in _TABLES else value


def profile_of(
    rules: str,
    kind: str,
    stated: dict[str, Any],
    stop: tuple[str, ...],
    extra: int,
    of_other_file: bool,
) -> Profile | AnswerProfile:
    """`stated`: fields of the profile that the task's file gives; `stop`, `extra`: of a completion;
    `of_other_file`: its few-shot examples come from another file.  Raises ValueError for rules that
    do not go together."""
    others: dict[str, Any] = {}
    if of_other_file:
        others = {"fewshot_pool": "other_file", "fewshot_draw": other_draw_named(_OF_OTHERS[rules])}
    wording = {**_WORDING[rules], "categories": "pooled", "truncation": "keep_last", **others}
    pool = stated.get("fewshot_pool", wording["fewshot_pool"])
    if (pool == "other_file") != of_other_file:  # results would name another draw than the task's
        source = "fewshot_data" if of_other_file else "the task's own examples"
        raise ValueError(f"fewshot_pool is {pool}, but shots come from {source}: leave it out")
    if kind == "generation":
        of_answers: dict[str, Any] = {
            "answer_after": "", "answer_normalizer": answers.GAUNTLET, "match": answers.PREFIX
        }  # fmt: skip
        if wording["question_delimiter"] == "whole":
            of_answers |= {"question_delimiter": "spaces_stripped", "match": answers.PREFIX_WORDS}
        return AnswerProfile(
            **{**wording, **of_answers, **stated}, decoding=GREEDY, extra_tokens=extra, stop=stop
        )  # fmt: skip
    strip = {"strip": "context"} if (rules, kind) == ("core", "continuation") else {}
    of_choices = {**_CHOICE[rules], "span": _SPANS[rules][kind], "tie": FIRST}
    profile = Profile(**{**wording, **strip, **of_choices, **stated})
    _check_span(profile)
    return profile


def _check_span(profile: Profile) -> None:
    if profile.boundary != "segments" and profile.span is CONTINUATION:
        raise ValueError(
            "span is continuation, which goes with boundary: segments; expected another one of both"
        )
    if profile.boundary == "context_kept" and profile.span not in (
        AFTER_CONTEXT,
        AFTER_CONTEXT_OR_DIFFERENCE,
    ):
        raise ValueError(
            f"span is {profile.span.name} and boundary is context_kept, expected span "
            "after_context or after_context_or_difference, or boundary: joint"
        )
