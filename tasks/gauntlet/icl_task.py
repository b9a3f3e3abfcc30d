"""One entry of a gauntlet's task list -> the task that scores it.

Arrives: an `IclTask`, from the published table or from a yaml file.  Leaves: a `Task` with every
rule of MosaicML's composer 0.17.2 and llm-foundry v0.4.0 spelled out.  It deliberately does not
know the folders of data files.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from miron_jax.definitions.records import (
    AnswerProfile,
    DataFile,
    Example,
    Profile,
    PromptedTask,
    Question,
    Task,
)
from miron_jax.definitions.rules import GREEDY
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.answers import GAUNTLET, PREFIX
from miron_jax.metrics.choices import EXP_MEAN, FIRST
from miron_jax.prompting.draws import FILE_ORDER, STREAM_1234
from miron_jax.tasks.icl_rows import PARSE, IclKind, answer_text, checked_text, text_field
from miron_jax.tokens.spans import CONTINUATION

CITATION = (
    "Mosaic Eval Gauntlet v0.1.0, MosaicML llm-foundry v0.4.0, "
    "scripts/eval/local_data/EVAL_GAUNTLET.md"
)
PROTOCOL = "gauntlet-v0.1.0"
MAX_LENGTH = 1024  # max_seq_len of llm-foundry v0.4.0's hf_eval.yaml
REASONING_ROOM = 10  # extra tokens of completions that contain reasoning


@dataclass(frozen=True, slots=True)
class IclTask:
    """A benchmark's entry in a task list, under this program's names."""

    label: str
    kind: IclKind | Literal["generation"]
    num_fewshot: int
    baseline: float | None  # accuracy of random answers, a share of 1
    file: str
    rows: int | None = None  # None, like the hash: a file of the user's
    git_blob_sha1: str | None = None
    delimiter: str = " "
    prelimiter: str = ""
    answer_after: str = ""  # cot_delimiter
    prompt_string: str = ""
    shot_separator: str = "\n"
    has_categories: bool = False
    documented_num_fewshot: int | None = None


def task_of(
    entry: IclTask, name: str, section: str | None, stop: tuple[str, ...] = ()
) -> PromptedTask:
    """The task of an entry; `stop` ends its completions, if it generates any."""
    file = DataFile(entry.file, entry.rows, entry.git_blob_sha1)
    baselines = {"random": entry.baseline, "human": None}
    if entry.kind == "generation":
        profile = _answers(entry, stop)
        parse = partial(_parse_question, entry)
    else:
        profile = _options(entry)
        parse = partial(_parse, entry)
    return Task(name, entry.kind, profile, file, baselines, parse, CITATION, section)


def _wording(entry: IclTask) -> dict[str, Any]:  # keywords of Profile and AnswerProfile
    return {
        "protocol": PROTOCOL,
        "num_fewshot": entry.num_fewshot,
        "documented_num_fewshot": entry.documented_num_fewshot,
        "prompt_string": entry.prompt_string,
        "prelimiter": entry.prelimiter,
        "delimiter": entry.delimiter,
        "question_delimiter": "right_stripped",
        "shot_separator": entry.shot_separator,
        "strip": "fields",
        "item_order": FILE_ORDER,
        "fewshot_draw": STREAM_1234,
        "fewshot_pool": "whole_file",
        "categories": "macro" if entry.has_categories else "pooled",
        "bos": "as_tokenizer",
        "boundary": "segments",
        "truncation": "keep_last",
        "max_length": MAX_LENGTH,
    }


def _options(entry: IclTask) -> Profile:
    return Profile(
        **_wording(entry),
        continuation_space="where_one_token",
        span=CONTINUATION,
        normalizer=EXP_MEAN,
        tie=FIRST,
        empty_span="error",
    )


def _answers(entry: IclTask, stop: tuple[str, ...]) -> AnswerProfile:
    return AnswerProfile(
        **_wording(entry),
        decoding=GREEDY,
        extra_tokens=REASONING_ROOM if entry.answer_after else 0,
        stop=stop,
        answer_after=entry.answer_after,
        answer_normalizer=GAUNTLET,
        match=PREFIX,
    )


def _parse(entry: IclTask, fields: JsonObject, row: int) -> Example:
    assert entry.kind != "generation"
    return replace(PARSE[entry.kind](_stripped(fields), row), category=_category(entry, fields))


def _stripped(fields: JsonObject) -> JsonObject:
    """The fields with white space at both ends of texts removed, except of texts in lists."""
    stripped = dict(fields)
    for key, value in fields.items():
        if isinstance(value, str):
            stripped[key] = value.strip()
    return stripped


def _category(entry: IclTask, fields: JsonObject) -> str | None:
    if not entry.has_categories:
        return None
    if "category" not in fields:
        raise ValueError(
            "field 'category' is missing, expected a text, as the task's has_categories asks for "
            "one"
        )
    return answer_text(_stripped(fields)["category"], "field 'category'")


def _parse_question(entry: IclTask, fields: JsonObject, row: int) -> Question:
    stripped = _stripped(fields)
    answer = answer_text(text_field(stripped, "answer"), "field 'answer'")
    aliases = _aliases(stripped)
    reasoning = checked_text(stripped.get("chain_of_thought", ""), "field 'chain_of_thought'")
    if reasoning and not entry.answer_after:
        raise ValueError(
            "field 'chain_of_thought' holds a text, but the task has no cot_delimiter to tell the "
            "answer from it: expected a cot_delimiter, such as ' #### '"
        )
    before = reasoning and f"{reasoning}{entry.answer_after}"
    return Question(
        row,
        (text_field(stripped, "context"),),
        (before + answer,),
        0,
        _category(entry, fields),
        accepted=tuple(dict.fromkeys([text_field(fields, "answer"), *aliases])),
        room_for=tuple(before + text for text in (answer, *aliases)),
    )


def _aliases(fields: JsonObject) -> list[str]:
    aliases = fields.get("aliases", [])
    if not isinstance(aliases, list):
        raise ValueError(f"field 'aliases' holds {aliases!r:.40}, expected a list of texts")
    return [checked_text(alias, f"aliases[{i}]") for i, alias in enumerate(aliases)]
