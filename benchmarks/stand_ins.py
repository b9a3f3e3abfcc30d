"""Made-up files of the sizes of hellaswag, squad and coqa, which CORE needs and which may not be
redistributed.

Arrives: an eval bundle.  Leaves: a folder with links to its files and a stand-in for each that it
lacks, whose words are sampled from the bundle's LAMBADA: as many items, about as many bytes each,
and questions that share a story as the real ones do.  Only their speed has a meaning.  Sizes:
shared/spec/peers.md, section C.  It deliberately does not know models.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from miron_jax.files.readers import JsonObject

HELLASWAG, SQUAD, COQA = 10042, 10570, 7983
QUESTIONS_A_STORY = 16
FILES = (
    "language_understanding/hellaswag",
    "reading_comprehension/squad",
    "reading_comprehension/coqa",
)


def with_stand_ins(bundle: Path, folder: Path, share: float = 1.0) -> Path:
    """Fill `folder` and return it; `share` of the items is written."""
    for path in sorted((bundle / "eval_data").rglob("*.jsonl")):
        link = folder / "eval_data" / path.relative_to(bundle / "eval_data")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    text = (bundle / "eval_data" / "language_understanding" / "lambada_openai.jsonl").read_text(
        encoding="utf-8"
    )
    words = [word for word in text.split() if word.isalpha()]
    for name, make in zip(FILES, (_hellaswag, _squad, _coqa), strict=True):
        path = folder / "eval_data" / f"{name}.jsonl"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(item) + "\n" for item in make(words, random.Random(0), share)]
            path.write_text("".join(lines), encoding="utf-8")
    return folder


def _hellaswag(words: list[str], rng: random.Random, share: float) -> Iterator[JsonObject]:
    for _ in range(max(12, int(HELLASWAG * share))):
        choices = [_text(words, rng, 18) for _ in range(4)]
        yield {"query": _text(words, rng, 42), "choices": choices, "gold": rng.randrange(4)}


def _squad(words: list[str], rng: random.Random, share: float) -> Iterator[JsonObject]:
    for _ in range(max(12, int(SQUAD * share))):
        question = f"Context: {_text(words, rng, 140)}\nQuestion: {_text(words, rng, 10)}\nAnswer:"
        yield {"context": question, "continuation": _text(words, rng, 3)}


def _coqa(words: list[str], rng: random.Random, share: float) -> Iterator[JsonObject]:
    left = max(12, int(COQA * share))
    while left > 0:
        context, before = f"Story: {_text(words, rng, 270)}\n", ""
        for _ in range(min(left, QUESTIONS_A_STORY)):
            question, answer = _text(words, rng, 6), _text(words, rng, 2)
            yield {
                "context": f"{context}{before}\nQuestion: {question}\nAnswer:",
                "continuation": answer,
            }
            before += f"\nQuestion: {question}\nAnswer: {answer}"
        left -= QUESTIONS_A_STORY


def _text(words: list[str], rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(words, k=count))
