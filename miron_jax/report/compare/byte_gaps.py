"""Where two runs differ on texts, byte by byte: from the Parquet files that `--save_byte_losses`
writes.

Arrives: two `Run`s.  Leaves: tables on screen.  It deliberately does not know how losses are spread
over bytes.
"""

import io
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.report.tables.console import table_of
from miron_jax.results.output import BYTE_LOSSES
from miron_jax.results.run_folder import Run
from miron_jax.statistics.byte_gaps import BytePair, SpanGap, gaps_by_kind, worst_spans

MOST_SPANS = 8
MOST_CHARS = 60


def print_byte_gaps(console: Console, first: Run, second: Run) -> None:
    """For each group of texts that both runs have byte losses of.  Raises InputError for files of
    other texts."""
    label = second.label
    first = _last_step(first)
    second = _last_step(second)
    for task in first.tasks:
        file = f"{BYTE_LOSSES}/{task}.parquet"
        is_common = task in second.tasks
        if not is_common or not all(run.store.has(run.path_of(file)) for run in (first, second)):
            continue
        pairs = list(_pairs(task, first, second, file))
        table = table_of(
            ("bytes of", "kind"), ("bytes", "first, bits/byte", "second", "share of the difference")
        )
        for gap in gaps_by_kind(pairs):
            numbers = (f"{gap.first:.4f}", f"{gap.second:.4f}", f"{gap.share:.0%}")
            table.add_row(task, gap.kind, str(gap.num_bytes), *numbers)
        console.print(table)
        worse, better = worst_spans(pairs, MOST_SPANS)
        for title, spans in (
            (f"{label} finds less probable", worse),
            (f"{label} finds more probable", better),
        ):
            for line in _lines(f"{task}: {title}", spans):
                console.print(line, soft_wrap=True)


def _last_step(run: Run) -> Run:
    """Where the files of the checkpoint lie that the run's numbers are of."""
    steps = run.steps()
    if steps:
        return steps[max(steps)]
    return run


def _lines(title: str, spans: Sequence[SpanGap]) -> Iterator[str]:
    if spans:
        yield f"{title}:"
    for span in spans:
        more = "..." if len(span.text) > MOST_CHARS else ""
        text = span.text[:MOST_CHARS] + more
        yield f"  {span.difference:+.1f} bits  {text!r}  ({span.doc_id}, byte {span.start})"


def _pairs(task: str, first: Run, second: Run, file: str) -> Iterator[BytePair]:
    ours = _table(first, file)
    theirs = _table(second, file)
    common = [key for key in ours if key in theirs]
    if not common:
        raise InputError(
            f"{task}: the byte losses of {first.label} and {second.label} are of other texts"
        )
    for key in common:
        losses = (np.asarray(each[key]["per_byte_loss"], np.float64) for each in (ours, theirs))
        yield BytePair(key[0], ours[key]["text"], *losses)


def _table(run: Run, file: str) -> dict[tuple[str, str], JsonObject]:
    """Rows by name and hash of their text."""
    import pyarrow
    from pyarrow import parquet

    name = run.path_of(file)
    try:
        columns = ["doc_id", "text_sha256", "text", "per_byte_loss"]
        table = parquet.read_table(io.BytesIO(run.store.get(name)), columns=columns)
        return {(row["doc_id"], row["text_sha256"]): row for row in table.to_pylist()}
    except (pyarrow.ArrowException, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{run.store.name}/{name} is no file of byte losses of this version ({reason:.100}): "
            "run eval --save_byte_losses again"
        ) from None
