"""MIRON, a completion benchmark for base models: the published data, and items that this project
generates.

Arrives: miron_en.parquet and miron_ru.parquet of the hub data set apsua/MIRON_Benchmark, the user's
or fetched.  Leaves: `MIRON`, `MIRON_GEN` and `MIRON_GEN_PREFIXSPACE`.  It deliberately does not
know tokenizers or models.

The published files have only the columns prefix, target and category.  The card says 4,000
examples, 1,000 of each category, in two languages: other counts are reported, not refused.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from rapidfuzz.distance import OSA

from miron_jax.definitions.records import (
    Cloze,
    ClozeProfile,
    ClozeTask,
    Composite,
    DataFile,
    Measured,
    Suite,
)
from miron_jax.errors import InputError
from miron_jax.files.durable import make_folder, write_whole
from miron_jax.files.hub import Repository, cache_folder, fetch_data_set, revision_of
from miron_jax.files.readers import Json, are_texts
from miron_jax.files.regular import read_regular
from miron_jax.tasks.groups import missing_of, part_of_task

if TYPE_CHECKING:
    from miron_jax.tasks.generators.miron_gen.items import Item

HUB_ID = "apsua/MIRON_Benchmark"
LANGUAGES = ("en", "ru")
FILES = {language: f"miron_{language}.parquet" for language in LANGUAGES}
NOISE = "Noise"  # the category of noisy prefixes
MOST_NOISE = 0.25  # their distance from the clean prefix, as a share of its length
BY_TEXT = "paired by text"  # the operator of pairs that `with_pairs` finds
# of each category in one file, by the card, and of miron-gen as it comes with the package
ROWS = 500
FROZEN = Path(__file__).parent / "generators" / "miron_gen" / "frozen"
COLUMNS = ("prefix", "target", "category")
CITATION = (
    "apsua/MIRON_Benchmark on the Hugging Face hub (MIT): the data and the two formulas of its card"
)
_DIGEST = b"blake2b_of_columns"  # metadata key in the files of `export`
GENERATED = "miron-gen, this project's own items in the manner of MIRON; never the published data"


def read_parquet(path: Path, task_name: str) -> list[Cloze]:
    """Every row in file order, with the additional columns of miron-gen's files if there are
    any."""
    import pyarrow.parquet as parquet
    from pyarrow import ArrowException, BufferReader

    try:
        content = BufferReader(read_regular(path))
        # not `read_table`, which imports pandas
        table = parquet.ParquetFile(content, page_checksum_verification=True).read()
        columns = table.to_pydict()
        digest = (table.schema.metadata or {}).get(_DIGEST)
    # ValueError: a text is not UTF-8
    except (ArrowException, OSError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{task_name}: {path} is no parquet file that can be read ({reason:.120}): fetch it "
            "again"
        ) from None
    # parquet has checksums of pages, not of column names
    if digest is not None and digest != _digest(columns):
        raise InputError(
            f"{task_name}: {path} is not as it was written: write it again with tasks --export"
        )
    for name in COLUMNS:
        if name not in columns:
            raise InputError(
                f"{task_name}: {path} has no column {name!r}, only {', '.join(columns)}; "
                f"expected {', '.join(COLUMNS)}: fetch the file again"
            )
    if not table.num_rows:
        raise InputError(f"{task_name}: {path} has no rows: fetch the file again")
    return [_cloze(fields, row, path, task_name) for row, fields in enumerate(table.to_pylist())]


def with_pairs(items: Sequence[Cloze]) -> list[Cloze]:
    """The items, each noisy one with its clean prefix if another item's text identifies it: the
    published files name none.

    The clean prefix is that of the nearest item (optimal string alignment) of another category with
    the same target, if the distance is at most a quarter of its length and no other item is as
    near.
    """
    clean = defaultdict[str, set[str]](set)
    for item in items:
        if item.category != NOISE:
            clean[item.target].add(item.prefix)
    paired = []
    for item in items:
        if item.category == NOISE and item.clean_prefix is None:
            item = _paired(item, clean[item.target])
        paired.append(item)
    return paired


def _paired(item: Cloze, prefixes: Iterable[str]) -> Cloze:
    ranked = sorted((OSA.distance(item.prefix, prefix), prefix) for prefix in prefixes)
    if not ranked or (ranked[1:] and ranked[1][0] == ranked[0][0]):
        return item
    distance, prefix = ranked[0]
    if not 0 < distance <= MOST_NOISE * len(prefix):
        return item
    return replace(item, clean_prefix=prefix, operator=BY_TEXT, num_edits=distance)


def _digest(columns: Mapping[str, Json]) -> bytes:
    return blake2b(json.dumps(columns).encode(), digest_size=16).hexdigest().encode()


def _cloze(fields: Mapping[str, Json], row: int, path: Path, task_name: str) -> Cloze:
    for name in COLUMNS:
        if not isinstance(fields[name], str):
            description = "null" if fields[name] is None else repr(fields[name])
            raise InputError(
                f"{task_name}: {path}, row {row}: {name} is {description:.40}, expected a text: "
                "mend or remove the row"
            )
    if not fields["target"]:
        raise InputError(
            f"{task_name}: {path}, row {row}: target is empty, expected a text: mend or remove the "
            "row"
        )
    wrong = _wrong_extra(fields)
    if wrong is not None:
        raise InputError(f"{task_name}: {path}, row {row}: {wrong}: mend or remove the row")
    return Cloze(
        row=row,
        name=str(fields.get("id") or row),
        prefix=fields["prefix"],
        target=fields["target"],
        category=fields["category"],
        distractors=tuple(fields.get("distractors") or ()),
        clean_prefix=fields.get("clean_prefix"),
        operator=fields.get("operator"),
        num_edits=fields.get("num_edits") or 0,
    )


def _wrong_extra(fields: Mapping[str, Json]) -> str | None:
    """The first error in the additional columns of miron-gen's files; None if there is none."""
    distractors = fields.get("distractors")
    clean_prefix = fields.get("clean_prefix")
    if distractors not in (None, []) and not (are_texts(distractors) and all(distractors)):
        return f"distractors is {distractors!r:.40}, expected a list of texts or null"
    if distractors and fields["target"] in distractors:
        return (
            f"distractors holds the target {fields['target']!r:.40}, expected wrong continuations "
            "only"
        )
    if clean_prefix is not None and not (isinstance(clean_prefix, str) and clean_prefix):
        return f"clean_prefix is {clean_prefix!r:.40}, expected a text or null"
    operator = fields.get("operator")
    num_edits = fields.get("num_edits") or 0
    if not isinstance(operator, str | None) or not isinstance(num_edits, int):
        return (
            f"operator is {operator!r:.40} and num_edits {num_edits!r:.40}, expected a text and a "
            "whole number"
        )
    return None


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder of the two files: `data_dir`, the folder of the file that `data_dir` names, or the
    cache, which is filled once; `@REVISION` names a revision of the data set on the hub."""
    revision = revision_of(data_dir)
    if data_dir is not None and revision is None:
        if not data_dir.is_file():
            return data_dir
        if data_dir.name not in FILES.values():
            raise InputError(
                f"--data_dir=miron={data_dir}: expected a folder, or a file named "
                f"{' or '.join(FILES.values())}"
            )
        return data_dir.parent
    folder = cache_folder("miron", revision)
    if fetch:
        fetch_data_set(Repository(HUB_ID, revision), folder, list(FILES.values()), "miron")
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no MIRON data there: download {' and '.join(FILES.values())} of the data "
            f"set {HUB_ID} and pass --data_dir=miron=FOLDER"
        )
    return folder


def _read(file: str, task_name: str, folder: Path | None, items_per_category: int) -> list[Cloze]:
    assert folder is not None
    return with_pairs(read_parquet(folder / file, task_name))


def _generate(
    language: str, suite: str, folder: Path | None, items_per_category: int
) -> list[Cloze]:
    if items_per_category == ROWS:
        items = read_parquet(FROZEN / f"miron_gen_{language}.parquet", f"{suite}/{language}")
    else:
        from miron_jax.tasks.generators.miron_gen.items import items_of

        items = [item.cloze(row) for row, item in enumerate(items_of(language, items_per_category))]
    return items if suite == "miron-gen" else list(map(space_in_prefix, items))


def space_in_prefix(item: Cloze) -> Cloze:
    """The item with the space moved from the target to the prefix, where many tokenizers would not
    split."""
    return replace(
        item,
        prefix=item.prefix + " ",
        target=item.target[1:],
        distractors=tuple(distractor[1:] for distractor in item.distractors),
        clean_prefix=None if item.clean_prefix is None else item.clean_prefix + " ",
    )


def export(folder: Path, items_per_category: int) -> list[Path]:
    """Writes miron-gen as one parquet file for each language, with every field of an item; returns
    the files."""
    from miron_jax.tasks.generators.miron_gen.items import items_of

    paths = []
    for language in LANGUAGES:
        items = items_of(language, items_per_category)
        paths.append(_write_items(folder / f"miron_gen_{language}.parquet", items))
    return paths


def _write_items(path: Path, items: Sequence["Item"]) -> Path:
    """Writes `Item`s of miron-gen with all their fields."""
    import pyarrow
    import pyarrow.parquet as parquet

    from miron_jax.tasks.generators.miron_gen.items import VERSION

    rows = []
    for item in items:
        meta = json.dumps(dict(item.meta), ensure_ascii=False)
        rows.append(asdict(item) | {"meta": meta, "version": VERSION})
    table = pyarrow.Table.from_pylist(rows)
    make_folder(path.parent)
    described = table.replace_schema_metadata(
        {"source": GENERATED, _DIGEST: _digest(table.to_pydict())}
    )
    content = io.BytesIO()
    parquet.write_table(
        described, content, write_page_checksum=True, compression="zstd", compression_level=9
    )
    write_whole(path, content.getvalue())
    return path


def is_language(templates: Path) -> bool:
    """Whether a user's folder has files of miron-gen."""
    from miron_jax.tasks.generators.miron_gen.items import is_language

    return is_language(templates)


def has_word_forms(templates: Path) -> bool:
    """Whether items of a user's folder are of words.csv."""
    from miron_jax.tasks.generators.miron_gen.items import has_word_forms

    return has_word_forms(templates)


def export_language(
    folder: Path, templates: Path, words: Path | None, items_per_category: int
) -> list[Path]:
    """Writes the items of a user's language, and the YAML file of their task."""
    from miron_jax.tasks.generators.miron_gen.items import make_items, read_generators

    generators = read_generators(templates, words)
    items = make_items(generators, items_per_category)
    data = _write_items(folder / "miron_gen.parquet", items)
    name = f"{part_of_task(generators.language)}/miron_gen"
    task = f"task: {name}\nkind: cloze\ndata: {data.name}\nname: id\n"
    for key in (*COLUMNS, "distractors", "clean_prefix", "operator", "num_edits"):
        task += f"{key}: {key}\n"
    write_whole(folder / "miron_gen.yaml", task.encode())
    return [data, folder / "miron_gen.yaml"]


OVERALL = ("lev_score", "target_confidence", "bits_per_char", "bits_per_byte", "greedy_exact")


def _composites(suite: str, measured: Mapping[str, Measured]) -> Mapping[str, Composite]:
    """The mean, over the languages, of each macro mean; null while a language is missing or has
    skipped items."""
    names = [f"{suite}/{language}" for language in LANGUAGES]
    missing = missing_of(names, {name for name, score in measured.items() if score.means})
    composites = {}
    for metric in OVERALL:
        if not missing and any(metric not in measured[name].means for name in names):
            continue  # of completions that were written elsewhere
        composite = Composite(None, False, missing, {}, metric)
        if not missing:
            value = sum(measured[name].means[metric] for name in names) / len(names)
            composite = Composite(value, True, (), dict.fromkeys(names, 1 / len(names)), metric)
        composites[f"{suite} overall {metric}"] = composite
    return composites


def _published(language: str) -> ClozeTask:
    name = f"miron/{language}"
    read = partial(_read, FILES[language], name)
    file = DataFile(FILES[language], None, None)
    return ClozeTask(name, ClozeProfile(), file, read, CITATION, rows=ROWS)


def _generated(suite: str) -> Suite[ClozeTask]:
    tasks = []
    for language in LANGUAGES:
        read = partial(_generate, language, suite)
        tasks.append(ClozeTask(f"{suite}/{language}", ClozeProfile(), None, read, GENERATED))
    composites = partial(_composites, suite)
    return Suite(suite, tuple(tasks), composites, lambda data_dir, fetch: Path())


MIRON = Suite("miron", tuple(map(_published, LANGUAGES)), partial(_composites, "miron"), locate)
MIRON_GEN = _generated("miron-gen")
MIRON_GEN_PREFIXSPACE = _generated("miron-gen-prefixspace")
SUITES = (MIRON, MIRON_GEN, MIRON_GEN_PREFIXSPACE)
