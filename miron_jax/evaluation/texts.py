"""Texts of all tasks: drawn together, over hosts, through the journal.

Arrives: tasks that say what is to be generated, a Generator.  Leaves: the tasks' scores with their texts.  It deliberately
does not know what makes a text right.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from miron_jax.engine.generate import Generator
from miron_jax.engine.scores import meet
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal, Text
from miron_jax.task_kinds.interface import TaskKind, TaskScores

BLOCKS_EACH = 4  # of a process's texts: what another one may take over
DRAWN_COST = 16  # tokens of a prompt that one drawn token costs


def generate_texts(
    kinds: Sequence[TaskKind],
    scores: Sequence[TaskScores],
    generator: Generator,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> None:
    """Every text that the tasks ask for, in one go.  Texts that stand in the journal are not drawn again; others go there
    when they end.  Of several `hosts` only the first gets them; `name` of these weights is used once."""
    pairs = list(zip(kinds, scores, strict=True))
    wanted = [request for kind, own in pairs for request in kind.texts(own)]
    texts = iter(_drawn(wanted, generator, journal, hosts, f"{name}/texts"))
    if hosts.is_first:
        for kind, own in pairs:
            kind.take_texts(own, texts)


def _drawn(
    requests: list[TextRequest], generator: Generator, journal: Journal | None, hosts: Hosts, name: str
) -> list[Generated]:
    """A text a request; of several hosts, to the first one."""

    def known() -> list[Text | None]:
        return [None if journal is None else journal.text_of(request.digest) for request in requests]

    def draw(these: list[TextRequest]) -> list[Generated]:
        return generator.run(these, finished)

    def finished(request: TextRequest, text: Generated) -> None:
        hosts.step()
        if journal is not None and text.ended != "nan":
            journal.add_text(request.digest, Text(*text))

    if hosts.count > 1 and not generator.placement.is_global:
        assert journal is not None, "hosts meet in the journal"
        for block in hosts.take(name, _dealt(requests, hosts.count)):
            draw([request for request in block if journal.text_of(request.digest) is None])
        meet(journal, hosts, name)
        if not hosts.is_first:
            return []
    found = known()
    missing = hosts.agree(f"{name}/missing", [i for i, text in enumerate(found) if text is None])
    drawn = dict(zip(missing, draw([requests[i] for i in missing]), strict=True))
    return [drawn[i] if i in drawn else Generated(*(text or Text("", (), "nan"))) for i, text in enumerate(found)]


def _dealt(requests: list[TextRequest], count: int) -> list[list[list[TextRequest]]]:
    """Blocks of neighbours, which share beginnings, for each process; of about equal cost, by the tokens that they may
    take and draw."""
    unique = list(dict.fromkeys(requests))
    cost = np.cumsum([len(own.token_ids) + DRAWN_COST * own.max_new_tokens for own in unique])
    num_blocks = count * BLOCKS_EACH
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1] if len(cost) else 0, num_blocks + 1)[1:-1], side="right")
    blocks = [unique[a:b] for a, b in pairwise([0, *bounds.tolist(), len(unique)])]
    return [[block for block in blocks[i * BLOCKS_EACH : (i + 1) * BLOCKS_EACH] if block] for i in range(count)]
