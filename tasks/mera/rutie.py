"""ruTiE, a dialogue: the prompt of each question contains the earlier questions and the answers to
them.

Arrives: its records.  Leaves: turns in the order of evaluation, and the text of a turn's prompt.
It deliberately does not know models.

v1: all turns use the instruction of the first one; "{context}" in it becomes the earlier turns,
each

    {question}
    1. {choice1}
    2. {choice2}
    Ответ: {the number that was answered}

with a line feed between them.  v1.2: the text begins with what precedes "{context}" in the turn's
instruction, then come the earlier turns, each followed by an empty line, then what follows
"{context}".  The dataset card speaks of the texts of the answers; the code of both versions inserts
their numbers.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from miron_jax.definitions.records import Example, TurnPrompt
from miron_jax.definitions.rules import Rule
from miron_jax.files.readers import Json, JsonObject, are_texts
from miron_jax.tasks.mera.records import SEPARATOR, check_keys, check_record, filled
from miron_jax.tasks.mera.table import BY_NAME, DataSet, Version

_TURN = "{question}\n1. {choice1}\n2. {choice2}\nОтвет:"
_CONTEXT = "{context}"
_FIELDS = ("question", "choice1", "choice2")
_FIELD = re.compile(r"\{(question|choice1|choice2)\}")


def parse_turn(dataset: DataSet, fields: JsonObject, row: int) -> Example:
    """One record, which is one turn."""
    check_record(fields, dataset)
    inputs = fields["inputs"]
    if not isinstance(inputs, dict) or not are_texts(list(map(inputs.get, _FIELDS))):
        raise ValueError(
            f"field 'inputs' is {inputs!r:.40}, expected the texts {', '.join(_FIELDS)}"
        )
    if fields["instruction"].count(_CONTEXT) != 1:
        raise ValueError(
            f"its instruction {fields['instruction']!r:.60} has no {_CONTEXT}, expected it once"
        )
    gold = dataset.choices.index(fields["outputs"]) if fields["outputs"] else None
    options = tuple(f" {choice}" for choice in dataset.choices)
    return Example(
        row, ("",), options, gold, shots=(), published=fields, dialogue=fields["meta"]["dialog_id"]
    )


def _in_order(turns: list[Example], folder: Path, _: object) -> list[Example]:
    """Turns sorted by dialogue, then by question."""
    check_keys(BY_NAME["ruTiE"], list(map(_published, turns)))

    def key(turn: Example) -> tuple[int, int]:
        meta = _published(turn)["meta"]
        return meta["dialog_id"], meta["question_id"]

    return sorted(turns, key=key)


IN_ORDER = Rule("dialogue_and_turn", _in_order)


def _ask_v1(turns: Sequence[Example], answers: Sequence[str]) -> str:
    *earlier, record = map(_published, turns)
    context = "\n".join(map(_exchange, earlier, answers))
    first = _published(turns[0])
    text = filled(first["instruction"], {**record["inputs"], "context": context})
    if len(turns) == 1:
        text = text.replace("\n\n", "\n")  # the first turn has no context
    return text + "\nОтвет:"


def _ask_v12(turns: Sequence[Example], answers: Sequence[str]) -> str:
    *earlier, record = map(_published, turns)
    before, _, wording = record["instruction"].partition(_CONTEXT)
    exchanges = [*map(str.lstrip, map(_exchange, earlier, answers))]
    if not exchanges:
        wording = before + wording
        before = ""
    # Other text in braces is not a field.
    question = _FIELD.sub(lambda field: record["inputs"][field[1]], wording).strip()
    return before + SEPARATOR.join(exchanges) + SEPARATOR + question


def _exchange(record: Mapping[str, Json], answer: str) -> str:
    return f"{filled(_TURN, record['inputs'])} {answer}"


# (turns so far, answers to all but the last) -> the prompt of the last turn.
TURN_PROMPT: dict[Version, TurnPrompt] = {"v1": _ask_v1, "v1.2": _ask_v12}


def _published(turn: Example) -> Mapping[str, Json]:
    assert turn.published is not None
    return turn.published
