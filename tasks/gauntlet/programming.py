"""The Gauntlet's programming category: HumanEval in Python, C++ and JavaScript, some with a part of
the solution.

Arrives: the same data folder as the Gauntlet's.  Leaves: `SUITE`.  It deliberately does not know
how programs are run.

v0.1.0 lists the category but comments it out, so core_average does not include it.  Here it is a
separate suite, which runs only if code execution is allowed.  Programs are sampled as composer
0.17.2 does for coding_tasks.yaml: 5 for each problem.

Some problems cannot be passed: their outputs, such as 010010 or 0 1 2 3, are evaluated as Python.
`ceiling` in the results is the score of the authors' solutions.
"""

from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.records import DataFile, Problem, ProgramProfile, Suite, Task
from miron_jax.files.readers import JsonObject, are_texts
from miron_jax.metrics.programs import NEXT_TOP_LEVEL_LINE
from miron_jax.tasks.eval_bundle import locate_files
from miron_jax.tasks.gauntlet.averages import Averages
from miron_jax.tasks.gauntlet.icl_task import CITATION, MAX_LENGTH, PROTOCOL
from miron_jax.tasks.icl_rows import text_field
from miron_jax.tasks.tables import table_rows

NAME = "gauntlet-programming"
_LANGUAGES = ("python", "c++", "javascript")


class _Set(NamedTuple):
    """A file of problems, a line of programming.jsonl."""

    label: str
    file: str
    rows: int
    git_blob_sha1: str


_TABLE = [_Set(**row) for row in table_rows(__file__, "programming.jsonl")]

PROFILE = ProgramProfile(
    protocol=PROTOCOL,
    max_length=MAX_LENGTH,
    num_samples=5,
    pass_at_k=1,
    temperature=1.0,
    top_k=40,
    top_p=0.95,
    extra_tokens=10,
    cut=NEXT_TOP_LEVEL_LINE,
    judge="all_tests",
    test_seconds=5.0,
    cpu_seconds=20.0,
)


def parse_problem(fields: JsonObject, row: int) -> Problem:
    """The problem in one line of a data file; its texts keep their white space."""
    language = text_field(fields, "language")
    if language not in _LANGUAGES:
        raise ValueError(
            f"field 'language' holds {language!r:.40}, expected one of {', '.join(_LANGUAGES)}"
        )
    inputs = _tests(fields, "test_inputs")
    outputs = _tests(fields, "test_outputs")
    if len(inputs) != len(outputs):
        raise ValueError(
            f"{len(inputs)} test_inputs and {len(outputs)} test_outputs, expected as many of both"
        )
    return Problem(
        row,
        text_field(fields, "task_id"),
        text_field(fields, "prompt"),
        text_field(fields, "entry_point"),
        language,
        inputs,
        outputs,
        text_field(fields, "canonical_solution"),
    )


def _tests(fields: JsonObject, key: str) -> tuple[str, ...]:
    tests = fields.get(key)
    if not are_texts(tests):
        raise ValueError(f"field {key!r} holds {tests!r:.40}, expected a list of texts")
    return tuple(tests)


def _task(row: _Set) -> Task[ProgramProfile]:
    file = DataFile(f"programming/{row.file}", row.rows, row.git_blob_sha1)
    return Task(
        f"{NAME}/{row.label}",
        "code",
        PROFILE,
        file,
        {"random": 0.0, "human": None},
        parse_problem,
        CITATION,
        "programming",
    )


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds programming/human_eval.jsonl and its like."""
    files = {f"programming/{row.file}": row.git_blob_sha1 for row in _TABLE}
    return locate_files(data_dir, fetch, files, "programming")


_AVERAGES = Averages({"programming": {f"{NAME}/{row.label}": 0.0 for row in _TABLE}}, {})
SUITE: Suite[Task[ProgramProfile]] = Suite(
    NAME, tuple(map(_task, _TABLE)), _AVERAGES.composites, locate
)
