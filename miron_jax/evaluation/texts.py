"""Completions of all tasks: generated together, across hosts, recorded in the journal.

Arrives: tasks with requests for completions, a Generator.  Leaves: the tasks' scores with their
completions.  It deliberately does not know how a completion is judged.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from miron_jax.engine.generate import Generator
from miron_jax.engine.scores import meet
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal, JournalText
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.detokenize import num_without_text
from miron_jax.tokens.tokenizers import Tokenizer

BLOCKS_EACH = 4  # per process; another process may take over whole blocks
NEW_TOKEN_COST = 16  # cost of a generated token, in prompt tokens
NO_TEXT = Generated("", (), "nan")  # the journal keeps no answer of NaN


def generate_texts(
    tasks: Sequence[TaskScores],
    generator: Generator,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
    progress: Progress = SILENT,
) -> Callable[[], None]:
    """Generate the completions of all tasks in one run.  Returns what hands them to the tasks,
    which score them without weights; it is called once, on the first of several `hosts`.

    The journal keeps every completion as it ends, and none is generated twice.  `name`: of these
    weights, unique within the process group.
    """
    requests = [request for scores in tasks for request in scores.kind.texts()]
    texts = iter(generated(requests, generator, journal, hosts, f"{name}/texts", progress))
    tokenizer = generator.tokenizer

    @spent_on("metrics")
    def hand_over() -> None:
        for scores in tasks:
            scores.journal = journal
            scores.kind.take_texts(scores, _counted(texts, scores, tokenizer))

    return hand_over


def _counted(
    texts: Iterator[Generated], scores: TaskScores, tokenizer: Tokenizer
) -> Iterator[Generated]:
    """The texts as they are taken, their tokens without a text counted."""
    for text in texts:
        scores.tokens_without_text += num_without_text(tokenizer, text.token_ids)
        yield text


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
    num_distinct = float(len(set(requests)))
    if shares:
        num_distinct /= hosts.count
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
    known = dict[int, Generated]()
    for i, request in enumerate(requests):
        if journal is not None and (text := journal.text_of(request.digest)) is not None:
            known[i] = Generated(*text)
    of_host = [i for i in range(len(requests)) if i not in known]
    missing = hosts.agree(f"{name}/missing", of_host)
    new = [requests[i] for i in missing]
    num_distinct = len(set(new))
    known |= zip(missing, generator.run(new, finished), strict=True)
    progress.end("generating")
    return [known.get(i, NO_TEXT) for i in range(len(requests))]


def _blocks(requests: list[TextRequest], count: int) -> list[list[list[TextRequest]]]:
    """Blocks of neighbouring requests, which share prefixes, for each process.  Blocks have about
    equal costs, by prompt tokens and new tokens."""
    unique = list(dict.fromkeys(requests))
    cost = np.cumsum(
        [len(request.token_ids) + NEW_TOKEN_COST * request.max_new_tokens for request in unique]
    )
    even = np.linspace(0, cost.max(initial=0), count * BLOCKS_EACH + 1)[1:-1]
    bounds = [0, *np.searchsorted(cost, even, side="right").tolist(), len(unique)]
    blocks: list[list[list[TextRequest]]] = [[] for _ in range(count)]
    for k, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            blocks[k // BLOCKS_EACH].append(unique[start:end])
    return blocks
