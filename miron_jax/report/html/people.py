"""The page on which people answer rows, judge gaps or correct stories, offline and by keys alone.

Arrives: a `Sheet`.  Leaves: the text of an HTML file.  It deliberately does not read what people
give back.
"""

import hashlib
import json

from miron_jax.errors import printable
from miron_jax.humans.reviews import REASONS, TEXT, UNUSABLE, USABLE
from miron_jax.humans.sheets import GOLDEN, OUTPUT, Sheet
from miron_jax.humans.task_labels import CHOICE
from miron_jax.report.html.offline import json_in_html, offline_page

_KEYS = {  # keys -> what they do
    "options": {"1 .. 9, 0, or what an option shows": "choose, and go on"},
    "text": {"e": "write", "Enter": "the next row", "Shift+Enter": "a new line"},
    "verdicts": {"g": "usable, and go on", "1 .. 9": "unusable for this reason, or not"},
    "corrections": {
        "e": "edit",
        "Ctrl+Enter or g": "usable as it stands here, and go on",
        "1 .. 9": "unusable for this reason, or not",
    },
    "all": {
        "j, k": "next and previous row",
        "u": "next open row",
        "Delete": "take the answer back, pressed twice also what is written",
        "Escape": "leave a field",
        "x": "export",
        "s, l": "save and load a state",
        "w": "annotator",
    },
}
_WANTED = {
    "answers": "Answer each row as well as you can, without help.",
    "verdicts": "Is the marked option right, and no other? Say what is wrong where it is not.",
    "corrections": "Mend errors of language and of logic. Say why where a story is not worth it.",
}


def people_page(sheet: Sheet) -> str:
    """One HTML file.  Its id, by which states and exports are known, is a digest of all it asks."""
    texts = dict[str, int]()  # a text that rows share stands there once
    rows = list[list[object]]()

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    for row in sheet.rows:
        rows.append(
            [
                [*map(place, row.cells)],
                place(" ".join(row.label[:200].split())),
                [[place(shown.heading), place(shown.text)] for shown in row.shown],
                [*map(place, row.options)],
                place(row.right),
                place(row.text),
            ]
        )
    golden = ""
    more: tuple[str, ...] = ()
    if sheet.kind != "answers":
        more = (REASONS, TEXT, "OUTPUT:note")
    elif any(row.right for row in sheet.rows):
        golden = sheet.output.replace(OUTPUT, GOLDEN, 1)
    document = {
        "kind": sheet.kind,
        "title": sheet.title,
        "inputs": sheet.inputs,
        "output": sheet.output,
        "golden": golden,
        "places": sheet.output == CHOICE,
        "reasons": [*sheet.reasons.items()],
        "more": more,
        "usable": USABLE,
        "unusable": UNUSABLE,
        "mark": sheet.mark,
        "texts": [*texts],
        "rows": rows,
    }
    identity = hashlib.sha256(json.dumps(document).encode()).hexdigest()[:12]
    how = [sheet.kind]
    if sheet.kind == "answers":
        how = []
        for name, is_there in (("options", True), ("text", False)):
            if any(bool(row.options) == is_there for row in sheet.rows):
                how.append(name)
    return offline_page(
        "people.html.j2",
        ("page.css", "people.css"),
        ("shared.js", "people.js"),
        title=printable(sheet.title),
        wanted=_WANTED[sheet.kind],
        keys=[pair for name in (*how, "all") for pair in _KEYS[name].items()],
        # letters beyond ASCII as they are: their escapes are thrice as long
        sheet=json_in_html({"id": identity, **document}, in_ascii=False),
    )
