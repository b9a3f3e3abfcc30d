"""Rows in the published shape of the LMES data sets.

Arrives: a filled template with its metadata.  Leaves: flat rows.  It deliberately does not know how
they are sampled.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.generators.eval_uation_gen.language import Template
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION

META = "additionalMetadata_"


def row(
    template: Template, question: str, answer: str | bool, meta: Mapping[str, Json]
) -> JsonObject:
    """One flat row."""
    metadata = {
        "template_n": template.number, "kind": template.kind, "type": template.type, **meta,
    }  # fmt: skip
    return {
        "question": question,
        "correctAnswer": answer,
        "templateUuid": template.uuid,
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
