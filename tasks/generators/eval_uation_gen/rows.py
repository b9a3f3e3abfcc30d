"""Templates and rows in the published shape of the LMES data sets.

Arrives: a filled template with what is known of it.  Leaves: flat rows.  It deliberately does not know how they are drawn.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from miron_jax.tasks.generators.eval_uation_gen.numerals import LAST, Case, Gender, cardinal, ordinal

VERSION = "2"  # another version, other rows
META = "additionalMetadata_"


class Template(NamedTuple):
    text: str
    kind: str | None = None
    type: str | None = None
    form: tuple[Gender, Case] | None = None  # of the ordinal in it; None: a cardinal, or no numeral


def numeral(template: Template, n: int) -> str | None:
    """The template's numeral for place n; None: "last" has no cardinal."""
    if template.form is None:
        return None if n == LAST else cardinal(n)
    return ordinal(n, *template.form)


def row(place: int, template: Template, question: str, answer: Any, meta: Mapping[str, Any]) -> dict[str, Any]:
    """`place`: of the template among its task's."""
    own = {"template_n": place, "kind": template.kind, "type": template.type, **meta}
    return {
        "question": question,
        "correctAnswer": answer,
        "templateUuid": sha256(template.text.encode()).hexdigest()[:32],
        **{f"{META}{name}": value for name, value in own.items() if value is not None},
        "system_prompts": [],
    }


def numbered(task: str, split: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """With an id, and an identifier that is a hash of it: nothing is drawn for them."""
    return [
        {
            **own,
            f"{META}id": number,
            "taskInstanceUuid": sha256(f"{VERSION}/{task}/{split}/{number}".encode()).hexdigest()[:32],
        }
        for number, own in enumerate(rows)
    ]
