"""Makes the rows of eval-ua-tion-gen, the same on every machine, and writes them into the package.

Arrives: nothing.  Leaves: rows by set and split.  It deliberately does not know prompts.
"""

from collections.abc import Callable, Mapping
from functools import partial

from miron_jax.files.durable import write_whole
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen.language import UKRAINIAN, Language
from miron_jax.tasks.generators.eval_uation_gen.language_sets import MADE
from miron_jax.tasks.generators.eval_uation_gen.sets import parquet_of
from miron_jax.tasks.generators.eval_uation_gen.table import FROZEN, GENERATED, GeneratedSet
from tools.eval_uation_gen import stories
from tools.eval_uation_gen.numerals import table_of

# Rows of a split, by the number of rows.
MAKERS: Mapping[str, Callable[[str, int], list[JsonObject]]] = {
    "ua_cbt": stories.rows_of,
    **{name: partial(made.rows, Language()) for name, made in MADE.items()},
}


def make(generated: GeneratedSet) -> Mapping[str, list[JsonObject]]:
    """Rows by split."""
    num_rows = {"train": generated.num_rows, "fewshot": generated.num_shots}
    return {split: MAKERS[generated.name](split, num_rows[split]) for split in generated.splits}


def freeze() -> None:
    """Write the rows that come with the package, and its table of numerals."""
    (UKRAINIAN / "numerals.csv").write_text(table_of(), encoding="utf-8")
    FROZEN.mkdir(exist_ok=True)
    for generated in GENERATED:
        for split, rows in make(generated).items():
            path = FROZEN / f"{generated.name}_{split}.parquet"
            write_whole(path, parquet_of(rows, path, compression_level=19))
