"""How the rows of eval-ua-tion-gen are made, the same on every machine.

Arrives: nothing, or a user's articles and stories.  Leaves: rows, and files of rows.  It
deliberately does not know prompts.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen import odd_words, pairs, places, stories
from miron_jax.tasks.generators.eval_uation_gen.articles import articles
from miron_jax.tasks.generators.eval_uation_gen.gaps import read_stories, rows_of_stories
from miron_jax.tasks.generators.eval_uation_gen.table import (
    CITATION,
    FROZEN,
    GENERATED,
    NAME,
    GeneratedSet,
    jsonl,
)
from miron_jax.tasks.generators.eval_uation_gen.titles import masked_row, read_articles, title_rows


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
    """Write the rows that come with the package."""
    FROZEN.mkdir(exist_ok=True)
    for generated in GENERATED:
        for split, rows in make(generated).items():
            write_parquet(FROZEN / f"{generated.name}_{split}.parquet", rows)


def export(folder: Path) -> list[Path]:
    """Writes every set as jsonl, which is what gets scored, and as parquet; returns the files."""
    paths: list[Path] = []
    for generated in GENERATED:
        for split, rows in make(generated).items():
            paths += write_rows(folder / NAME / generated.name, split, rows)
    return paths


def export_titles(folder: Path, path: Path, spelled: bool) -> list[Path]:
    """Writes up_masked and up_unmasked of a user's articles, in the same two forms; `spelled`: see
    `mask_digits`."""
    rows = title_rows(read_articles(path), path.name)
    masked = [masked_row(row, spelled) for row in rows]
    return [
        *write_rows(folder / "up_masked", "train", masked),
        *write_rows(folder / "up_unmasked", "train", rows),
    ]


def export_stories(folder: Path, path: Path, say: Callable[[str], None]) -> list[Path]:
    """Writes ua_cbt of a user's stories, in the same two forms; see gaps.py."""
    return write_rows(
        folder / "ua_cbt", "train", rows_of_stories(read_stories(path), f"--stories={path}", say)
    )


def write_rows(folder: Path, split: str, rows: list[JsonObject]) -> list[Path]:
    """Writes SPLIT.jsonl and SPLIT.parquet with every column of the rows; returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = folder / f"{split}.jsonl"
    table = folder / f"{split}.parquet"
    lines.write_bytes(jsonl(rows))
    write_parquet(table, rows)
    return [lines, table]


def write_parquet(path: Path, rows: list[JsonObject]) -> None:
    """Write a table with every column that any row has."""
    import pyarrow
    from pyarrow import parquet

    names = dict.fromkeys(chain.from_iterable(rows))
    table = pyarrow.Table.from_pylist([names | row for row in rows])
    cited = table.replace_schema_metadata({"source": CITATION})
    parquet.write_table(
        cited, path, write_page_checksum=True, compression="zstd", compression_level=19
    )
