"""What the tests of tasks of a user's own share: records, and a YAML file of eight lines about them."""

import json
from pathlib import Path
from typing import Any

from tests.support.command import samples

ROWS = [
    {"question": f"the {word} hill is", "options": ["hot", "cold rain", "small"], "answer": i % 3, "n": i}
    for i, word in enumerate(("green", "small", "cold", "hot", "rain", "sun", "where"))
]
PLAIN = """\
task: hills
data: hills.jsonl
question: "Question: {{question}}"
choices: options
gold: answer
delimiter: "\\nAnswer: "
num_fewshot: 2
baseline: 0.333
"""


def write(folder: Path, text: str = PLAIN, rows: list[dict[str, Any]] = ROWS, name: str = "hills") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hills.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def logprobs(output: Path, task: str) -> list[list[float]]:
    return [[option["logprob"] for option in sample["options"]] for sample in samples(output, task)]
