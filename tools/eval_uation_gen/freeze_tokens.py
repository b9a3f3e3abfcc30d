"""Writes the number of tokens of every word of words.csv, with a space before it; for
development only, no run needs it.

`python tools/eval_uation_gen/freeze_tokens.py FOLDER` with the folder of a Gemma 3 tokenizer.
WordLength needs the counts for pairs whose longer word has fewer tokens.  Arrives: words and their
parts of speech.  Leaves: the same file with its third column.  It deliberately does not know what
the words are used for.
"""

import sys

from transformers import AutoTokenizer

from miron_jax.tasks.generators.eval_uation_gen.language import UKRAINIAN

PATH = UKRAINIAN / "words.csv"


def main(tokenizer_folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    head, *lines = [line.split(",") for line in PATH.read_text(encoding="utf-8").splitlines()]
    counts = [
        len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) for word, *_ in lines
    ]
    text = f"{','.join(head)}\n"
    for (word, pos, *_), count in zip(lines, counts, strict=True):
        text += f"{word},{pos},{count}\n"
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
