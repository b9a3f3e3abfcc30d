"""Makes the rows of eval-ua-tion-gen, the same on every machine, and writes them into the package.

Arrives: nothing.  Leaves: rows by set and split.  It deliberately does not know prompts.
"""

from collections.abc import Callable, Mapping

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen.sets import write_parquet
from miron_jax.tasks.generators.eval_uation_gen.table import FROZEN, GENERATED, NAME, GeneratedSet
from miron_jax.tasks.generators.eval_uation_gen.titles import NUMERALS, masked_row, title_rows
from tools.eval_uation_gen import odd_words, pairs, places, stories
from tools.eval_uation_gen.articles import articles
from tools.eval_uation_gen.numerals import simple_forms


def _unmasked(split: str, count: int) -> list[JsonObject]:
    return title_rows(articles(count), NAME)


def _masked(split: str, count: int) -> list[JsonObject]:
    return [*map(masked_row, _unmasked(split, count))]


# Rows of a split, by the number of rows.
MAKERS: Mapping[str, Callable[[str, int], list[JsonObject]]] = {
    "ua_cbt": stories.rows_of,
    "lmes_low": places.letters,
    "lmes_wis": places.sentence_words,
    "lmes_catsbin": odd_words.all_words,
    "lmes_catsmc": odd_words.odd_word,
    "lmes_wordalpha": pairs.alphabetical,
    "lmes_wordlength": pairs.by_length,
    "up_masked": _masked,
    "up_unmasked": _unmasked,
}


def make(generated: GeneratedSet) -> Mapping[str, list[JsonObject]]:
    """Rows by split."""
    num_rows = {"train": generated.num_rows, "fewshot": generated.num_shots}
    return {split: MAKERS[generated.name](split, num_rows[split]) for split in generated.splits}


def freeze() -> None:
    """Write the rows that come with the package, and the numerals that `--mask_number_words`
    hides."""
    NUMERALS.write_text("\n".join(sorted(simple_forms())) + "\n", encoding="utf-8")
    FROZEN.mkdir(exist_ok=True)
    for generated in GENERATED:
        for split, rows in make(generated).items():
            write_parquet(FROZEN / f"{generated.name}_{split}.parquet", rows, compression_level=19)
