"""Verdicts of programs in the journal, so that a run which goes on judges only what has none.

Arrives: a journal, programs with their verdicts.  Leaves: the same verdicts for a later run.  It
deliberately does not know how a program is judged.
"""

import json
from hashlib import blake2b

from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.programs import Judge, Verdict
from miron_jax.runtime.journal import VERDICT, Journal, JournalText

RULES = 3  # version of the judge's: raise it whenever a verdict may change


class JournalVerdicts:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def get(self, judge: Judge, problem: Problem, text: str) -> Verdict | None:
        saved = self._journal.text_of(_digest(judge, problem, text))
        if saved is None:
            return None
        why, answers = json.loads(saved.text)
        return Verdict(saved.ended == "passed", saved.ended, why, tuple(answers))

    def put(self, judge: Judge, problem: Problem, text: str, verdict: Verdict) -> None:
        if verdict.ended != "not judged":
            content = json.dumps([verdict.why, verdict.answers])
            saved = JournalText(content, (), verdict.ended)
            self._journal.add_text(_digest(judge, problem, text), saved)


def _digest(judge: Judge, problem: Problem, text: str) -> str:
    """Of all that a verdict depends on."""
    parts = [
        RULES,
        judge.how,
        judge.test_seconds,
        judge.cpu_seconds,
        judge.memory_mb,
        judge.output_mb,
        judge.processes,
        judge.sandbox.bwrap is not None,
        judge.sandbox.bounded_by,
        judge.sandbox.python,
        problem.language,
        problem.prompt,
        problem.code,
        problem.entry_point,
        problem.inputs,
        problem.outputs,
        text,
    ]
    return f"{VERDICT}{blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()}"
