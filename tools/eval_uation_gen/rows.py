"""Templates and rows in the published shape of the LMES data sets.

Arrives: a filled template with its metadata.  Leaves: flat rows.  It deliberately does not know how
they are sampled.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION
from tools.eval_uation_gen.numerals import (
    LAST,
    Gender,
    NumeralCase,
    cardinal,
    ordinal,
)

META = "additionalMetadata_"


class Template(NamedTuple):
    text: str
    kind: str | None = None
    type: str | None = None
    # of the ordinal in it; None: a cardinal, or no numeral
    form: tuple[Gender, NumeralCase] | None = None


def numeral(template: Template, n: int) -> str | None:
    """The template's numeral for position n; None: "last" has no cardinal."""
    if template.form is None:
        return None if n == LAST else cardinal(n)
    return ordinal(n, *template.form)


def row(
    template_n: int, template: Template, question: str, answer: str | bool, meta: Mapping[str, Json]
) -> JsonObject:
    """One flat row; `template_n`: the template's index among those of its task."""
    metadata = {"template_n": template_n, "kind": template.kind, "type": template.type, **meta}
    return {
        "question": question,
        "correctAnswer": answer,
        "templateUuid": sha256(template.text.encode()).hexdigest()[:32],
        **{f"{META}{name}": value for name, value in metadata.items() if value is not None},
        "system_prompts": [],
    }


def numbered(task: str, split: str, rows: Iterable[JsonObject]) -> list[JsonObject]:
    """The rows with their number as id, and with a hash of it as identifier."""
    numbered_rows = []
    for number, fields in enumerate(rows):
        uuid = sha256(f"{VERSION}/{task}/{split}/{number}".encode()).hexdigest()[:32]
        numbered_rows.append({**fields, f"{META}id": number, "taskInstanceUuid": uuid})
    return numbered_rows
