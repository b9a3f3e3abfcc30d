"""eval-ua-tion-gen: nine generated sets in the manner of Eval-UA-tion, the same on every machine.

Arrives: nothing, or a folder to write to.  Leaves: rows, and files of rows.  It deliberately does not know prompts.

The files are written once into the cache and read like published ones.  Their hashes are pinned below, so every machine
scores the same bytes.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import git_blob_sha1
from miron_jax.definitions.records import DataFile
from miron_jax.errors import InputError
from miron_jax.files.places import data_cache
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.eval_uation.table import DataSet, Shape
from miron_jax.tasks.generators.eval_uation_gen import odd_words, pairs, places, stories
from miron_jax.tasks.generators.eval_uation_gen.articles import articles
from miron_jax.tasks.generators.eval_uation_gen.gaps import read_stories, rows_of_stories
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION
from miron_jax.tasks.generators.eval_uation_gen.titles import masked_row, read_articles, title_rows

NAME = "eval-ua-tion-gen"
CITATION = f"{NAME} {VERSION}, this project's own rows in the manner of Eval-UA-tion; never the published data"
Rows = list[JsonObject]


class Generated(NamedTuple):
    """One set: the function that makes its rows, and their number."""

    name: str
    shape: Shape
    clusters: str
    rows: Callable[[str, int], Rows]  # of a split and a number of rows
    num_rows: int
    blob: str  # git blob of train.jsonl
    num_shots: int = 0  # rows of the few-shot split; 0: shots come from the test rows
    shots_blob: str | None = None  # git blob of fewshot.jsonl
    masked: bool = False

    @property
    def data_set(self) -> DataSet:
        """The set as the loaders of the published sets take it."""
        shots = "fewshot.jsonl" if self.num_shots else None
        return DataSet(
            self.name, f"{NAME}/{self.name}", self.shape, "train.jsonl", shots, self.num_rows, None, self.clusters,
            masked=self.masked, shots_blob=self.shots_blob,
        )  # fmt: skip

    @property
    def file(self) -> DataFile:
        return DataFile(f"{self.name}/train.jsonl", self.num_rows, self.blob)

    def files(self) -> Mapping[str, Rows]:
        """Rows by split."""
        num_rows = {"train": self.num_rows, "fewshot": self.num_shots}
        return {split: self.rows(split, count) for split, count in num_rows.items() if count}


def _unmasked(split: str, count: int) -> Rows:
    return title_rows(articles(count), NAME)


def _masked(split: str, count: int) -> Rows:
    return [masked_row(row) for row in _unmasked(split, count)]


# fmt: off
GENERATED: tuple[Generated, ...] = (
    Generated("ua_cbt", "story", "story", stories.rows_of, 1020,
              "83903cf6b9241acba9e417c1c5c3755c50e67652", 30, "73363db530ba9b24ce9fdeed205acefdd0c0e273"),
    Generated("lmes_low", "letters", "word", places.letters, 2000,
              "72697614d897652cbfbab2fa341bc3492cabaeb0", 100, "a6239a34e0514e9ce5fe5b8c502d1b5780e87355"),
    Generated("lmes_wis", "words", "sentence", places.sentence_words, 2000,
              "bdf1fb00e9270eb3fe1259e4ac6cbdf24f228cb3", 100, "3e2e9a92f217aecbb00c3a0855cd5428756c363b"),
    Generated("lmes_catsbin", "yes_no", "categories and words", odd_words.all_words, 2160,
              "60f8b4e8449775cdcdf7321a97ff216afabf6832", 100, "c61561bcfbe540af18c0d7fb880663163f0c35a9"),
    Generated("lmes_catsmc", "odd_word", "categories and words", odd_words.odd_word, 2160,
              "3f248fd208b58a1e0a35b79b662bacea2ae21d0d", 100, "bc92fba7ebf3a44bbd8da3f982a57090a7b956fc"),
    Generated("lmes_wordalpha", "two_words", "pair", pairs.alphabetical, 2000,
              "ec833a36d9fb1b89f419d541fa8d401dadf92d77", 100, "d6b40acb298c23c677f9ad9332748e49520a3e11"),
    Generated("lmes_wordlength", "two_words", "pair", pairs.by_length, 2000,
              "de66fedab44e37cd8d988123a906b4fa813dc45d", 100, "24c0cd04d4de7af008da57e8fd9e5eae9cc4a681"),
    Generated("up_masked", "article", "article", _masked, 1000, "6334c953a53d67b4992ea248daf2ba4dc833e06c", masked=True),
    Generated("up_unmasked", "article", "article", _unmasked, 1000, "b8bd159583230e2935f969d5ffe53010c2fb1c4b"),
)
# fmt: on


def jsonl(rows: Rows) -> bytes:
    """The rows in canonical form: sorted keys, no optional spaces, UTF-8."""
    lines = [json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def export(folder: Path) -> list[Path]:
    """Writes every set as jsonl, which is what gets scored, and as parquet; returns the files."""
    return [
        path
        for generated in GENERATED
        for split, rows in generated.files().items()
        for path in write_rows(folder / NAME / generated.name, split, rows)
    ]


def export_titles(folder: Path, path: Path, spelled: bool) -> list[Path]:
    """Writes up_masked and up_unmasked of a user's articles, in the same two forms; `spelled`: see `mask_digits`."""
    rows = title_rows(read_articles(path), path.name)
    masked = [masked_row(row, spelled) for row in rows]
    return [*write_rows(folder / "up_masked", "train", masked), *write_rows(folder / "up_unmasked", "train", rows)]


def export_stories(folder: Path, path: Path, say: Callable[[str], None]) -> list[Path]:
    """Writes ua_cbt of a user's stories, in the same two forms; see gaps.py."""
    return write_rows(folder / "ua_cbt", "train", rows_of_stories(read_stories(path), f"--stories={path}", say))


def write_rows(folder: Path, split: str, rows: Rows) -> list[Path]:
    """Writes SPLIT.jsonl and SPLIT.parquet with every column of the rows; returns both paths."""
    import pyarrow
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    lines, table = folder / f"{split}.jsonl", folder / f"{split}.parquet"
    lines.write_bytes(jsonl(rows))
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    cited = pyarrow.table(columns).replace_schema_metadata({"source": CITATION})
    parquet.write_table(cited, table, write_page_checksum=True)
    return [lines, table]


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder of the files: `data_dir` if it has any, else one in the cache, where they are written once."""
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(
            f"{NAME}: --data_dir={data_dir} is no folder: name one, or leave it out, as its sets are made here"
        )
    if data_dir is not None and any((data_dir / generated.file.path).is_file() for generated in GENERATED):
        return data_dir
    folder = data_cache(NAME, VERSION)
    for generated in GENERATED:
        if not _is_current(generated, folder):
            _write(generated, folder)
    return folder


def _is_current(generated: Generated, folder: Path) -> bool:
    """Whether the set's files are complete and of this version; rows of an earlier version and edited files are remade."""
    blobs = {"train": generated.blob, "fewshot": generated.shots_blob}
    paths = {folder / generated.name / f"{split}.jsonl": blob for split, blob in blobs.items() if blob}
    return all(path.is_file() and git_blob_sha1(path.read_bytes()) == blob for path, blob in paths.items())


def _write(generated: Generated, folder: Path) -> None:
    """Writes a set atomically, also where several processes write it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch:
        partial_set = Path(scratch) / generated.name
        partial_set.mkdir()
        for split, rows in generated.files().items():
            (partial_set / f"{split}.jsonl").write_bytes(jsonl(rows))
        with suppress(FileNotFoundError):
            (folder / generated.name).rename(Path(scratch) / "other")
        try:
            partial_set.rename(folder / generated.name)
        except OSError:
            if not _is_current(generated, folder):  # else another process was first, with the same bytes
                raise
