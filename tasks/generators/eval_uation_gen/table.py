"""eval-ua-tion-gen: nine sets in the manner of Eval-UA-tion, whose rows come with the package.

Arrives: nothing, or a folder that holds the files.  Leaves: the sets, and the folder of their
files.  It deliberately does not know prompts, nor how the rows were made (tools/eval_uation_gen).

The rows are written once into the cache and read like published ones.  The hashes of those files
are pinned in table.jsonl, so every machine scores the same bytes.
"""

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import git_blob_sha1
from miron_jax.definitions.records import DataFile
from miron_jax.errors import InputError
from miron_jax.files.places import data_cache
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_regular
from miron_jax.tasks.eval_uation.table import QuestionShape, UationSet
from miron_jax.tasks.tables import table_rows

NAME = "eval-ua-tion-gen"
VERSION = "2"  # another version, other rows
CITATION = (
    f"{NAME} {VERSION}, this project's own rows in the manner of Eval-UA-tion; never the published "
    "data"
)
FROZEN = Path(__file__).parent / "frozen"


class GeneratedSet(NamedTuple):
    """One set: its shape, the number of its rows and the hashes of its files."""

    name: str
    shape: QuestionShape
    clusters: str
    num_rows: int
    blob: str  # git blob of train.jsonl
    num_shots: int = 0  # rows of the few-shot split; 0: shots come from the test rows
    shots_blob: str | None = None  # git blob of fewshot.jsonl
    masked: bool = False

    @property
    def data_set(self) -> UationSet:
        """The set as the loaders of the published sets take it."""
        shots = "fewshot.jsonl" if self.num_shots else None
        return UationSet(
            self.name, f"{NAME}/{self.name}", self.shape, "train.jsonl", shots, self.num_rows, None,
            self.clusters,
            masked=self.masked, shots_blob=self.shots_blob,
        )  # fmt: skip

    @property
    def file(self) -> DataFile:
        return DataFile(f"{self.name}/train.jsonl", self.num_rows, self.blob)

    @property
    def splits(self) -> Mapping[str, str]:
        """Git blob of the file of each split."""
        splits = {"train": self.blob}
        if self.shots_blob:
            splits["fewshot"] = self.shots_blob
        return splits


GENERATED = tuple(GeneratedSet(**row) for row in table_rows(__file__))


def frozen_rows(name: str, split: str) -> list[JsonObject]:
    """The rows of a split as they come with the package."""
    from pyarrow import parquet

    rows = []
    # not `read_table`, which imports pandas
    for fields in parquet.ParquetFile(FROZEN / f"{name}_{split}.parquet").read().to_pylist():
        rows.append({key: value for key, value in fields.items() if value is not None})
    return rows


def jsonl(rows: list[JsonObject]) -> bytes:
    """The rows in canonical form: sorted keys, no optional spaces, UTF-8."""
    encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return "".join(f"{encoder.encode(row)}\n" for row in rows).encode()


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder of the files: `data_dir` if it has any, else one in the cache, where they are
    written once."""
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(
            f"{NAME}: --data_dir={data_dir} is no folder: name one, or leave it out, as its rows "
            "come with this package"
        )
    if data_dir is not None and any(
        (data_dir / generated.file.path).is_file() for generated in GENERATED
    ):
        return data_dir
    folder = data_cache(NAME, VERSION)
    for generated in GENERATED:
        if not _is_current(generated, folder):
            _write(generated, folder)
    return folder


def _is_current(generated: GeneratedSet, folder: Path) -> bool:
    """Whether the set's files are complete and of this version; rows of an earlier version and
    edited files are remade."""
    for split, blob in generated.splits.items():
        path = folder / generated.name / f"{split}.jsonl"
        if not path.is_file() or git_blob_sha1(read_regular(path)) != blob:
            return False
    return True


def _write(generated: GeneratedSet, folder: Path) -> None:
    """Writes a set atomically, also where several processes write it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch:
        partial_set = Path(scratch) / generated.name
        partial_set.mkdir()
        for split in generated.splits:
            (partial_set / f"{split}.jsonl").write_bytes(jsonl(frozen_rows(generated.name, split)))
        with suppress(FileNotFoundError):
            (folder / generated.name).rename(Path(scratch) / "other")
        try:
            partial_set.rename(folder / generated.name)
        except OSError:
            # else another process was first, with the same bytes
            if not _is_current(generated, folder):
                raise
