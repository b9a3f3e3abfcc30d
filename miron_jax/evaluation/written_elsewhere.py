"""Completions that were written elsewhere, scored as a model's are: no model is loaded.

Arrives: a folder, the `Inputs` of a run.  Leaves: an `Outcome`.  It deliberately does not know how
a completion is judged.

    miron/en.jsonl    {"id": 0, "generated": " splommer"}, as the lines of a run's samples
    miron/en.json     a list of the same objects

`id` is the example's place in the suite's own order.  Of programs, `generated` is a list where a
problem has several, and `programs` of samples is read too.
"""

from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import located_rows, parse_each
from miron_jax.engine.model import ForwardSpeed
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.errors import InputError, some_of
from miron_jax.evaluation.inputs import unverified
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.task_kinds.interface import Setup, TaskKind, TaskScores
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.files.readers import JsonObject, are_texts, shown
from miron_jax.files.regular import read_regular
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.timeline import spent_on

FORMATS = (".jsonl", ".json")
REMEDY = "mend the file"


def score_written(config: RunConfig, folder: str, inputs: Inputs, progress: Progress) -> Outcome:
    """Score the completions of every task.  One without a file is left out, as one without data is.

    Raises InputError for a task that the user named, and if no task is left.
    """
    setup = Setup.without_tokenizer(config)
    tasks = list[TaskScores]()
    why: dict[str, str] = {}
    for source in inputs.sources:
        name = source.task.name
        kind = kind_of(source.task)
        files = [Path(folder, f"{name}{suffix}") for suffix in FORMATS]
        file = next(filter(Path.is_file, files), None)
        if file is not None and kind.generates:
            tasks.append(_scored(kind(source, setup), file))
            continue
        why[name] = f"{files[0]} is not there"
        if not kind.generates:
            why[name] = "it is scored by log-probabilities, which no completion has"
        if name in inputs.by_name or len(why) == len(inputs.sources):
            raise InputError(
                f"--generated: {name} has no completions to score, {why[name]}: leave it out of "
                "--tasks, or add its file"
            )
    if why:
        left_out = "; ".join(f"{name}, {reason}" for name, reason in why.items())
        progress.warn(f"left out, as there are no completions to score: {left_out}")
    inputs = inputs._replace(
        sources=[scores.source for scores in tasks], missing={**inputs.missing, **why}
    )
    return Outcome(
        tasks=tasks,
        inputs=inputs,
        totals=Totals(),
        speed=ForwardSpeed(),
        check=SelfCheck(0.0),
        load_seconds=0.0,
        unverified=unverified(config, inputs, Checkpoint(None, None)),
    )


@spent_on("metrics")
def _scored(kind: TaskKind, file: Path) -> TaskScores:
    """Raises InputError."""
    scores = TaskScores(kind)
    kind.prepare()
    requests = kind.texts()
    num_each = getattr(kind.source.task.profile, "num_samples", 1)
    by_id = _texts_by_id(file, kind.source.task.name, len(requests) // num_each, num_each)
    texts = [text for i in range(len(by_id)) for text in by_id[i]]
    kind.take_texts(scores, map(_ended, texts, requests))
    return scores


def _ended(text: str, request: TextRequest) -> Generated:
    """The text up to the first stop string, where a model's completion would have ended."""
    ends = [end for stop in request.stop if (end := text.find(stop)) >= 0]
    return Generated(text[: min(ends, default=len(text))], (), "written")


def _texts_by_id(
    file: Path, task_name: str, num_examples: int, num_each: int
) -> dict[int, list[str]]:
    """`num_each`: completions of an example.  Raises InputError."""
    at = f"{task_name}: {file}"
    try:
        rows = located_rows(read_regular(file), file, task_name, remedy=REMEDY)
    except OSError as error:
        raise InputError(f"{at} cannot be read ({error.strerror}): {REMEDY}") from None
    texts: dict[int, list[str]] = {}

    def add(record: JsonObject, row: int) -> None:
        id = record.get("id")
        if type(id) is not int or not 0 <= id < num_examples:
            raise ValueError(
                f"id is {shown(id)}, expected the place of an example of this run, 0 to "
                f"{num_examples - 1}"
            )
        if id in texts:
            raise ValueError(f"id {id} stands twice, expected once")
        texts[id] = _completions(record, num_each)

    parse_each(rows, add, at, f": {REMEDY}, or give the --limit that it was written with")
    absent = [id for id in range(num_examples) if id not in texts]
    if absent:
        raise InputError(
            f"{at} has no completion of {len(absent)} of the {num_examples} examples (ids "
            f"{some_of(absent, 4)}), expected one of each: add them, or give the --limit that it "
            "was written with"
        )
    return texts


def _completions(record: JsonObject, num_each: int) -> list[str]:
    """The completions of one example.  Raises ValueError."""
    written = record.get("generated")
    if isinstance(programs := record.get("programs"), list):
        written = [program.get("text") for program in programs if isinstance(program, dict)]
    texts = [written] if isinstance(written, str) else written
    if not are_texts(texts) or len(texts) != num_each:
        expected = "a text"
        if num_each > 1:
            expected = f"a list of {num_each} texts"
        raise ValueError(f"generated is {shown(written)}, expected {expected}")
    return texts
