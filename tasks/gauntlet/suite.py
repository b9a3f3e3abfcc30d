"""The published Gauntlet, the same reasoning tasks with stop strings, and the mended Gauntlet.

Arrives: the table.  Leaves: `SUITE`, `COT_FIX` and `FIXED`.  It deliberately does not know
tokenizers or models.

`gauntlet` follows v0.1.0: a completion ends only at EOS or at its maximum length, and the answer is
what follows its last " #### ".  A model that goes on to invent and answer another question is
judged by that answer.  `gauntlet-cot-fix` also ends a completion at a blank line or at "Q:", like
later versions of llm-foundry; no composite includes its scores.  `gauntlet-fixed` has all tasks by
the rules of fixed.py; the names of its composites begin with `fixed_`.
"""

from pathlib import Path

from miron_jax.definitions.records import PromptedTask, Suite
from miron_jax.tasks.eval_bundle import locate_files
from miron_jax.tasks.gauntlet import fixed, programming
from miron_jax.tasks.gauntlet.averages import Averages
from miron_jax.tasks.gauntlet.icl_task import task_of
from miron_jax.tasks.gauntlet.table import CATEGORIES


def _averages(suite: str, prefix: str = "") -> Averages:
    categories = {}
    for category, entries in CATEGORIES.items():
        baselines = {f"{suite}/{entry.label}": entry.baseline or 0.0 for entry in entries}
        categories[f"{prefix}{category}"] = baselines
    core = tuple(f"{prefix}{category}" for category in CATEGORIES if category != "safety")
    return Averages(categories, {f"{prefix}core_average": core})


AVERAGES = _averages("gauntlet")
FIXED_AVERAGES = _averages(fixed.NAME, "fixed_")
_ENTRIES = [(category, entry) for category, entries in CATEGORIES.items() for entry in entries]


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds the task files: llm-foundry's local_data, or an eval bundle."""
    files = {entry.file: entry.git_blob_sha1 for _, entry in _ENTRIES}
    return locate_files(data_dir, fetch, files, "Gauntlet")


SUITE: Suite[PromptedTask] = Suite(
    "gauntlet",
    tuple(task_of(entry, f"gauntlet/{entry.label}", category) for category, entry in _ENTRIES),
    AVERAGES.composites,
    locate,
)
COT_FIX: Suite[PromptedTask] = Suite(
    "gauntlet-cot-fix",
    tuple(
        task_of(entry, f"gauntlet-cot-fix/{entry.label}", category, fixed.STOP)
        for category, entry in _ENTRIES
        if entry.answer_after
    ),
    lambda measured: {},
    locate,
)
FIXED: Suite[PromptedTask] = Suite(
    fixed.NAME,
    tuple(fixed.fixed_task(entry, category) for category, entry in _ENTRIES),
    FIXED_AVERAGES.composites,
    locate,
    files_of="gauntlet",
)
SUITES = (SUITE, COT_FIX, FIXED, programming.SUITE)
