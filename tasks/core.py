"""CORE: the 22 tasks of DCLM's "core" metric by nanochat's rules, and their centred mean.

Arrives: an eval bundle (core.yaml, eval_data/...), the user's or fetched.  Leaves: `SUITE`.  It
deliberately does not know tokenizers or models.

DCLM scores the same files by other rules (file order, one random stream for all shots, "\\n"
between shots, stripped text, the whole choice as span), so its scores differ.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.records import Composite, DataFile, Measured, Profile, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import parse_yaml, shown
from miron_jax.files.regular import read_regular
from miron_jax.metrics.choices import FIRST, MEAN
from miron_jax.prompting.draws import PER_ITEM_1234, SHUFFLE_1337
from miron_jax.tasks.eval_bundle import locate_files
from miron_jax.tasks.groups import main_metrics, missing_of
from miron_jax.tasks.icl_rows import PARSE, IclKind
from miron_jax.tasks.tables import table_rows
from miron_jax.tokens.spans import AFTER_COMMON_PREFIX, AFTER_STRIPPED_CONTEXT, COMMON_SUFFIX, Span

CITATION = (
    "CORE of DataComp-LM, Li et al. 2024, arXiv:2406.11794; data of MosaicML llm-foundry; rules of "
    "karpathy/nanochat"
)


class _CoreTask(NamedTuple):
    """One line of the published table, core.jsonl."""

    label: str
    kind: IclKind
    num_fewshot: int
    delimiter: str
    baseline_v1: float  # percent
    baseline_v2: float  # percent
    file: str
    rows: int
    git_blob_sha1: str


# Baselines: v1 is DCLM's first table and the one nanochat uses (the bundle's eval_meta_data.csv
# holds these numbers); v2 is DCLM's correction of September 2025.  Scores under one table do not
# compare with scores under the other.
_TABLE = [_CoreTask(**row) for row in table_rows(__file__, "core.jsonl")]

BASELINES_V1: dict[str, float] = {f"core/{row.label}": 0.01 * row.baseline_v1 for row in _TABLE}
BASELINES_V2: dict[str, float] = {f"core/{row.label}": 0.01 * row.baseline_v2 for row in _TABLE}

# Data sets whose files are too large to pass around: CORE-18 leaves them out.
_LARGE = frozenset({"core/hellaswag_zeroshot", "core/hellaswag", "core/squad", "core/coqa"})
BASELINES_18: dict[str, float] = {name: b for name, b in BASELINES_V1.items() if name not in _LARGE}
# CORE-soft takes choice_prob_norm of the tasks that choose.  Equal choices of boolq have 0.5 each;
# v1 has its majority.
SOFT = "choice_prob_norm"
BASELINES_SOFT = {
    f"core/{row.label}": 0.01 * row.baseline_v1 for row in _TABLE if row.kind != "language_modeling"
}
BASELINES_SOFT["core/boolq"] = 0.5


_SPAN: dict[IclKind, Span] = {
    "multiple_choice": AFTER_COMMON_PREFIX,
    "schema": COMMON_SUFFIX,
    "language_modeling": AFTER_STRIPPED_CONTEXT,
}


def _profile(row: _CoreTask) -> Profile:
    return Profile(
        protocol="core (nanochat)",
        num_fewshot=row.num_fewshot,
        delimiter=row.delimiter,
        question_delimiter="whole",
        shot_separator="\n\n",
        strip="context" if row.kind == "language_modeling" else "nothing",
        item_order=SHUFFLE_1337,
        fewshot_draw=PER_ITEM_1234,
        fewshot_pool="limited_items",
        bos="always",
        boundary="joint",
        continuation_space="as_written",
        span=_SPAN[row.kind],
        truncation="keep_last",
        max_length=None,
        normalizer=MEAN,
        tie=FIRST,
        empty_span="nan_first_wins",
        categories="pooled",
    )


def _task(row: _CoreTask) -> Task:
    return Task(
        name=f"core/{row.label}",
        kind=row.kind,
        profile=_profile(row),
        file=DataFile(row.file, row.rows, row.git_blob_sha1),
        baselines={"random": 0.01 * row.baseline_v1, "human": None},
        parse=PARSE[row.kind],
        citation=CITATION,
    )


def task_of_rows(name: str, kind: str, num_fewshot: int, delimiter: str) -> Task:
    """A task by CORE's rules over rows of one's own.  Raises InputError."""
    if kind not in PARSE:
        raise InputError(f"{name}: type is {shown(kind)}, expected one of {', '.join(PARSE)}")
    task = _task(_CoreTask(name, kind, num_fewshot, delimiter, 0, 0, name, 0, ""))
    file = DataFile(name, None, None)
    baselines = {"random": None, "human": None}
    return replace(task, name=name, file=file, baselines=baselines, citation="")


def composites(measured: Mapping[str, Measured]) -> dict[str, Composite]:
    """CORE and CORE_v2 over all 22 tasks, CORE-18 over the 18 small ones; null if a task has no
    accuracy.

    CORE-soft is not published: the same mean of choice_prob_norm over the 13 tasks that choose.
    """
    accuracy_of = main_metrics(measured)
    soft = {name: score.means[SOFT] for name, score in measured.items() if SOFT in score.means}
    return {
        "CORE": _centered_mean(accuracy_of, BASELINES_V1),
        "CORE_v2": _centered_mean(accuracy_of, BASELINES_V2),
        "CORE-18": _centered_mean(accuracy_of, BASELINES_18),
        "CORE-soft": replace(_centered_mean(soft, BASELINES_SOFT), metric=SOFT),
    }


def _centered_mean(accuracy_of: Mapping[str, float], baselines: Mapping[str, float]) -> Composite:
    """Mean over the tasks of (accuracy - b) / (1 - b), not clipped: a task below its baseline
    counts negative."""
    missing = missing_of(baselines, accuracy_of)
    weights = {name: 1 / (1 - b) / len(baselines) for name, b in baselines.items()}
    if missing:
        return Composite(None, False, missing, weights)
    value = sum(weights[name] * (accuracy_of[name] - b) for name, b in baselines.items())
    return Composite(value, True, (), weights)


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds the task files: in `data_dir`, or in the cache, where the bundle is
    fetched once."""
    folder = locate_files(data_dir, fetch, {row.file: row.git_blob_sha1 for row in _TABLE}, "CORE")
    table = (folder.parent if folder.name == "eval_data" else folder) / "core.yaml"
    if table.is_file():
        _check_table(table)
    return folder


class _YamlRow(NamedTuple):
    """The fields of a task in core.yaml, without has_categories: CORE pools jeopardy's
    categories."""

    file: object
    num_fewshot: object
    kind: object
    delimiter: object


def _check_table(path: Path) -> None:
    """Raises InputError if core.yaml differs from the table above, which alone decides how tasks
    are scored."""
    table = _read_table(path)
    expected = {}
    for row in _TABLE:
        expected[row.label] = _YamlRow(row.file, [row.num_fewshot], row.kind, row.delimiter)
    for label in [*expected, *table]:
        if table.get(label) != expected.get(label):
            raise InputError(
                f"{path}: task {label!r} reads {_row_text(table.get(label))}, CORE has "
                f"{_row_text(expected.get(label))}: restore the published core.yaml or remove it"
            )


def _row_text(row: _YamlRow | None) -> str:
    if row is None:
        return "nothing"
    return ", ".join(f"{key} {shown(value)}" for key, value in row._asdict().items())


def _read_table(path: Path) -> dict[object, _YamlRow]:
    try:
        rows = {}
        for entry in parse_yaml(read_regular(path))["icl_tasks"]:
            rows[entry["label"]] = _YamlRow(
                entry["dataset_uri"],
                entry["num_fewshot"],
                entry["icl_task_type"],
                entry.get("continuation_delimiter", " "),
            )
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: cannot be read as a list of tasks under 'icl_tasks' ({type(error).__name__}: "
            f"{error!s:.80}): restore the published core.yaml or remove it"
        ) from error


SUITE = Suite("core", tuple(map(_task, _TABLE)), composites, locate)
SUITES = (SUITE,)
