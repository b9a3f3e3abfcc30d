"""Files of rows: those of every set, and those of sets that a user's articles, stories, templates
and words make.

Arrives: a folder; articles, stories, a language.  Leaves: JSON lines and parquet; of a language
tasks too.  It deliberately does not know prompts.
"""

import io
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.durable import make_folder, write_whole
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen.gaps import (
    UserStory,
    read_stories,
    rows_of_stories,
)
from miron_jax.tasks.generators.eval_uation_gen.language_sets import LanguageSet
from miron_jax.tasks.generators.eval_uation_gen.story_prompts import nouns_in, read_prompted
from miron_jax.tasks.generators.eval_uation_gen.story_words import StoryWord, read_distractors
from miron_jax.tasks.generators.eval_uation_gen.table import (
    CITATION,
    GENERATED,
    NAME,
    frozen_rows,
    jsonl,
)
from miron_jax.tasks.generators.eval_uation_gen.titles import masked_row, read_articles, title_rows


class Reviews(NamedTuple):
    """What people have made of a user's stories, and of the gaps in them."""

    corrected: Callable[[list[UserStory]], list[UserStory]] = list
    kept: Callable[[list[JsonObject]], list[JsonObject]] = list


def export(folder: Path) -> list[Path]:
    """Writes every set as jsonl, which is what gets scored, and as parquet; returns the files."""
    paths: list[Path] = []
    for generated in GENERATED:
        for split in generated.splits:
            rows = frozen_rows(generated.name, split)
            paths += write_rows(folder / NAME / generated.name, split, rows)
    return paths


def write_language(folder: Path, sets: Sequence[LanguageSet]) -> list[Path]:
    """Writes the sets of a user's templates and words in the same two forms, each with the YAML
    file of its task."""
    paths: list[Path] = []
    for made in sets:
        for split, rows in made.splits.items():
            if rows:
                paths += write_rows(folder / made.name, split, rows)
        paths.append(folder / f"{made.name}.yaml")
        write_whole(paths[-1], made.task.encode())
    return paths


def export_titles(folder: Path, path: Path, number_words: Collection[str]) -> list[Path]:
    """Writes up_masked and up_unmasked of a user's articles, in the same two forms;
    `number_words`: words that are masked too."""
    rows = title_rows(read_articles(path), path.name)
    masked = [masked_row(row, number_words) for row in rows]
    return [
        *write_rows(folder / "up_masked", "train", masked),
        *write_rows(folder / "up_unmasked", "train", rows),
    ]


def stories_at(
    path: Path, listed: Sequence[StoryWord], say: Callable[[str], None]
) -> list[UserStory]:
    """A user's stories: a file, or the folder of `--story_prompts`.  Raises InputError."""
    return read_prompted(path, listed, say) if path.is_dir() else read_stories(path)


def export_stories(
    folder: Path,
    path: Path,
    say: Callable[[str], None],
    distractors: Path | None = None,
    reviews: Reviews = Reviews(),  # noqa: B008 - immutable
) -> list[Path]:
    """Writes ua_cbt of a user's stories, in the same two forms; see gaps.py.  `path`: their file,
    or the folder of `--story_prompts`; `distractors`: a user's list of nouns."""
    listed = read_distractors(distractors) if distractors else []
    stories = reviews.corrected(stories_at(path, listed, say))
    if path.is_dir():  # their words are those that the text names, which people have corrected
        for i, story in enumerate(stories):
            stories[i] = story._replace(words=nouns_in(story.text, listed))
    rows = reviews.kept(rows_of_stories(stories, f"--stories={path}", say, listed))
    return write_rows(folder / "ua_cbt", "train", rows)


def write_rows(folder: Path, split: str, rows: list[JsonObject]) -> list[Path]:
    """Writes SPLIT.jsonl and SPLIT.parquet with every column of the rows; returns both paths.
    Raises InputError, and writes neither, where a table cannot hold the rows."""
    lines = folder / f"{split}.jsonl"
    table = folder / f"{split}.parquet"
    contents = {lines: jsonl(rows), table: parquet_of(rows, table)}
    make_folder(folder)
    for path, content in contents.items():
        write_whole(path, content)
    return [*contents]


def parquet_of(rows: list[JsonObject], path: Path, compression_level: int = 9) -> bytes:
    """The content of a table with every column that any row has, for `path`.

    Level 19 makes a file a tenth smaller in 25 times the time.
    """
    import pyarrow
    from pyarrow import parquet

    names = dict.fromkeys(chain.from_iterable(rows))
    content = io.BytesIO()
    try:
        table = pyarrow.Table.from_pylist([names | row for row in rows])
        cited = table.replace_schema_metadata({"source": CITATION})
        parquet.write_table(
            cited,
            content,
            write_page_checksum=True,
            compression="zstd",
            compression_level=compression_level,
        )
    except (pyarrow.ArrowException, OverflowError) as error:  # of columns that a user gave
        raise InputError(
            f"{path} cannot be written ({error!s:.120}); expected values of one kind in each "
            "column: mend those of your files, such as columns of prompts.jsonl"
        ) from None
    return content.getvalue()
