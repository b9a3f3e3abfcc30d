"""ruTiE: one interview, every question asked after the answers that were given before it.

Arrives: its records.  Leaves: turns in the order in which they are asked, and how a turn is worded.  It deliberately does
not know models.

v1: the instruction of the first turn serves all of them; "{context}" in it becomes the turns before, each

    {question}
    1. {choice1}
    2. {choice2}
    Ответ: {the number that was answered}

with a line feed between them.  v1.2: what stands before "{context}" opens the text, then the turns before, each followed by
an empty line, then what stands behind "{context}" in the turn's own instruction.  The dataset card speaks of the answers'
texts; both versions' code puts the number there.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Example, TurnPrompt
from miron_jax.definitions.rules import Rule
from miron_jax.tasks.mera.records import SEPARATOR, check_keys, check_record, filled
from miron_jax.tasks.mera.table import BY_NAME, DataSet, Version

_TURN = "{question}\n1. {choice1}\n2. {choice2}\nОтвет:"
_CONTEXT = "{context}"
_FIELDS = ("question", "choice1", "choice2")
_FIELD = re.compile(r"\{(question|choice1|choice2)\}")


def turn_parser(own: DataSet) -> Callable[[dict[str, Any], int], Example]:
    """Of one record; its dialogue names it among others."""

    def parse(fields: dict[str, Any], row: int) -> Example:
        check_record(fields, own)
        inputs = fields["inputs"]
        if not isinstance(inputs, dict) or not all(isinstance(inputs.get(key), str) for key in _FIELDS):
            raise ValueError(f"field 'inputs' is {inputs!r:.40}, expected the texts {', '.join(_FIELDS)}")
        if fields["instruction"].count(_CONTEXT) != 1:
            raise ValueError(f"its instruction {fields['instruction']!r:.60} has no {_CONTEXT}, expected it once")
        gold = own.choices.index(fields["outputs"]) if fields["outputs"] else None
        options = tuple(f" {choice}" for choice in own.choices)
        dialogue = fields["meta"]["dialog_id"]
        return Example(row, ("",), options, gold, shots=(), published=fields, dialogue=dialogue)

    return parse


def _in_order(turns: list[Any], folder: Path) -> list[Any]:
    """Dialogue by dialogue, turn by turn."""
    check_keys(BY_NAME["ruTiE"], [_published(turn) for turn in turns])

    def place(turn: Example) -> tuple[int, int]:
        assert turn.published is not None
        return turn.published["meta"]["dialog_id"], turn.published["meta"]["question_id"]

    return sorted(turns, key=place)


IN_ORDER = Rule("dialogue_and_turn", _in_order)


def asker(version: Version) -> TurnPrompt:
    """The text of the last of these turns, behind the answers to those before it."""
    return _ask_v1 if version == "v1" else _ask_v12


def _ask_v1(turns: Sequence[Example], answers: Sequence[str]) -> str:
    records = [_published(turn) for turn in turns]
    context = "\n".join(
        f"{filled(_TURN, record['inputs'])} {answer}" for record, answer in zip(records, answers, strict=False)
    )
    text = filled(records[0]["instruction"], {**records[-1]["inputs"], "context": context})
    if len(turns) == 1:
        text = text.replace("\n\n", "\n")  # where the context would stand
    return text + "\nОтвет:"


def _ask_v12(turns: Sequence[Example], answers: Sequence[str]) -> str:
    *earlier, record = [_published(turn) for turn in turns]
    opening, _, closing = record["instruction"].partition(_CONTEXT)
    told = [f"{filled(_TURN, own['inputs']).lstrip()} {answer}" for own, answer in zip(earlier, answers, strict=True)]
    before = (opening if told else "") + SEPARATOR.join(told) + SEPARATOR
    wording = closing if told else opening + closing
    # Of all that looks like a field only these three are.
    return before + _FIELD.sub(lambda field: record["inputs"][field[1]], wording).strip()


def _published(turn: Example) -> Any:
    assert turn.published is not None
    return turn.published
