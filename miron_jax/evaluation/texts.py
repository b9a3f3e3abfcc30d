"""Completions of all tasks: generated together, across hosts, recorded in the journal.

Arrives: tasks with requests for completions, a Generator.  Leaves: the tasks' scores with their
completions.  It deliberately does not know how a completion is judged.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from miron_jax.engine.generate import Generator
from miron_jax.engine.scores import meet
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal, JournalText
from miron_jax.runtime.progress import SILENT, Progress

BLOCKS_EACH = 4  # per process; another process may take over whole blocks
NEW_TOKEN_COST = 16  # cost of a generated token, in prompt tokens


def generate_texts(
    tasks: Sequence[TaskScores],
    generator: Generator,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
    progress: Progress = SILENT,
) -> None:
    """Generate the completions of all tasks in one run and hand them to the tasks.

    The journal keeps every completion as it ends, and none is generated twice.  Of several `hosts`
    only the first gets the completions.  `name`: of these weights, unique within the process group.
    """
    requests = [request for scores in tasks for request in scores.kind.texts()]
    texts = iter(generated(requests, generator, journal, hosts, f"{name}/texts", progress))
    if hosts.is_first:
        for scores in tasks:
            scores.kind.take_texts(scores, texts)


def generated(
    requests: list[TextRequest],
    generator: Generator,
    journal: Journal | None,
    hosts: Hosts,
    name: str,
    progress: Progress = SILENT,
) -> list[Generated]:
    """One completion per request, on the first host; [] on the others.  See `generate_texts`."""

    shares = hosts.count > 1 and not generator.placement.is_global
    num_ended = 0
    num_distinct = len(set(requests)) / (hosts.count if shares else 1)
    if requests:
        progress.advance("generating", 0, num_distinct, "completions")

    def finished(request: TextRequest, text: Generated) -> None:
        nonlocal num_ended
        hosts.step()
        num_ended += 1
        progress.advance("generating", num_ended, num_distinct, "completions")
        if journal is not None and text.ended != "nan":
            journal.add_text(request.digest, JournalText(*text))

    if shares:
        assert journal is not None, "hosts meet in the journal"
        for block in hosts.take(name, _blocks(requests, hosts.count)):
            generator.run(
                [request for request in block if journal.text_of(request.digest) is None], finished
            )
        meet(journal, hosts, name)
        if not hosts.is_first:
            return []
    known = [None if journal is None else journal.text_of(request.digest) for request in requests]
    missing = hosts.agree(f"{name}/missing", [i for i, text in enumerate(known) if text is None])
    num_distinct = len({requests[i] for i in missing})
    new = dict(zip(missing, generator.run([requests[i] for i in missing], finished), strict=True))
    progress.end("generating")
    return [
        new[i] if i in new else Generated(*(text or JournalText("", (), "nan")))
        for i, text in enumerate(known)
    ]


def _blocks(requests: list[TextRequest], count: int) -> list[list[list[TextRequest]]]:
    """Blocks of neighbouring requests, which share prefixes, for each process.  Blocks have about
    equal costs, by prompt tokens and new tokens."""
    unique = list(dict.fromkeys(requests))
    cost = np.cumsum(
        [len(request.token_ids) + NEW_TOKEN_COST * request.max_new_tokens for request in unique]
    )
    num_blocks = count * BLOCKS_EACH
    bounds = np.searchsorted(
        cost, np.linspace(0, cost[-1] if len(cost) else 0, num_blocks + 1)[1:-1], side="right"
    )
    blocks = [unique[a:b] for a, b in pairwise([0, *bounds.tolist(), len(unique)])]
    return [
        [block for block in blocks[i * BLOCKS_EACH : (i + 1) * BLOCKS_EACH] if block]
        for i in range(count)
    ]
