"""Programs: the model goes on with code, which then runs in a sandbox and is judged by what it computes.

Arrives: a task of problems, a tokenizer; then texts.  Leaves: `ProgramScores`.  It deliberately does not know how a text is
generated.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Problem, ProgramProfile, Task
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.errors import InputError
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import Scorer
from miron_jax.metrics.programs import score_programs
from miron_jax.statistics.estimate import Estimate, by_category, is_unscored
from miron_jax.task_kinds.entries import published_entry, task_entry, why_unscored
from miron_jax.task_kinds.interface import Facts, Source, TaskKind, TaskScores
from miron_jax.task_kinds.programs import Judge, Verdict, check_languages, solution_of
from miron_jax.tokens.answer_requests import AnswerRequests, program_requests


@dataclass(slots=True)
class ProgramScores(TaskScores):
    """One task's problems, in file order."""

    source: Source
    sandboxed: bool  # else its programs ran under limits alone
    problems: list[Problem] = field(default_factory=list)
    max_new_tokens: int = 0  # that a program may have
    beyond_trained: int = 0  # problems that with their program may exceed the length the model was trained at
    programs: list[list[str]] = field(default_factory=list)  # of each problem, behind its prompt
    verdicts: list[list[Verdict]] = field(default_factory=list)
    ceiling: list[Verdict] = field(default_factory=list)  # of the authors' own solutions
    examples: list[ExampleScore] = field(default_factory=list)

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @property
    def num_skipped(self) -> int:
        return sum(is_unscored(example) for example in self.examples)

    @property
    def unanswered(self) -> list[int]:
        return [i for i, own in enumerate(self.verdicts) if _has_nan(own)]

    def finish(self, detox: Scorer | None = None) -> None:
        profile = self.source.task.profile
        for problem, verdicts in zip(self.problems, self.verdicts, strict=True):
            if not problem.outputs or _has_nan(verdicts):
                self.examples.append(ExampleScore(None, None, False, False, {"accuracy": math.nan}))
                continue
            passed = [verdict.passed for verdict in verdicts]
            self.examples.append(score_programs(passed, profile.pass_at_k, profile.also_pass_at))

    def for_composites(self) -> Mapping[str, Estimate]:
        main, found = self.source.task.main, by_category(self.examples, (), "pooled", {}).metrics
        return {name: own for name, own in found.items() if name == main}

    def entry(self, facts: Facts) -> dict[str, Any]:
        found = by_category(self.examples, (), "pooled", {})
        of_kind = {
            "max_new_tokens": self.max_new_tokens,
            "ended": dict(Counter(verdict.ended for own in self.verdicts for verdict in own)),
            "sandboxed": self.sandboxed,
            # Problems that the authors' own solutions pass: no program can be expected to score more.
            "ceiling": {"passed": sum(verdict.passed for verdict in self.ceiling), "n": len(self.ceiling)}
            if any(problem.outputs for problem in self.problems)
            else None,  # what the tests should give is not published
            "beyond_trained_length": self.beyond_trained,
        }
        num_scored = self.num_examples - self.num_skipped
        return task_entry(self.source, found, num_scored, self.num_skipped, facts, of_kind)

    def samples(self) -> Iterator[dict[str, Any]]:
        columns = (self.problems, self.programs, self.verdicts, self.ceiling, self.examples)
        for i, (problem, programs, verdicts, ceiling, example) in enumerate(zip(*columns, strict=True)):
            yield {
                "id": i,
                "row": problem.row,
                "name": problem.name,
                "gold": None,
                "prediction": None,
                "correct": example.correct,
                "options": [],
                "generated": None,
                "programs": [
                    {"text": text, "ended": verdict.ended, **({"answers": verdict.answers} if verdict.answers else {})}
                    for text, verdict in zip(programs, verdicts, strict=True)
                ],
                "ceiling": ceiling.ended,
                "metrics": dict(example.metrics),
                **published_entry(problem),
                **({"reason": why_unscored(_has_nan(verdicts))} if example.correct is None else {}),
            }


class Program(TaskKind):
    generates = True
    requests: AnswerRequests

    @classmethod
    def load(cls, task: Task[ProgramProfile], folder: Path, config: RunConfig, runs: bool) -> list[Any]:
        if runs and not config.allow_code_execution:
            raise InputError(
                f"{task.name} runs programs that the model writes: add --allow_code_execution to run them in a sandbox, or "
                "leave the task out"
            )
        return super().load(task, folder, config, runs)

    def prepare(self) -> None:
        """Tokenizes, and runs the authors' own solutions: a sandbox that cannot is found before weights are loaded."""
        task, limit = self.source.task, self.setup.config.limit
        check_languages(self.setup.sandbox, self.source.examples, task.name)
        self.problems = self.source.examples[:limit]
        self.requests = program_requests(
            self.source.examples, limit, task.profile, self.setup.tokenizer, self.max_length, task.name
        )
        self.judge = Judge(self.setup.sandbox, task.profile.test_seconds, task.profile.judge)
        self.ceiling = self.judge.verdicts([(problem, solution_of(problem)) for problem in self.problems])

    def begin(self) -> ProgramScores:
        room = self.requests.max_new_tokens
        beyond = sum(len(ids) + room - 1 > self.setup.trained_length for ids in self.requests.prompts)
        is_boxed = self.judge.sandbox.bwrap is not None
        return ProgramScores(self.source, is_boxed, self.problems, room, beyond, ceiling=self.ceiling)

    def texts(self, scores: ProgramScores) -> list[TextRequest]:
        """Every sample's draw depends on the run's seed, its problem and its number alone."""
        profile, name = self.source.task.profile, self.source.task.name
        rules = (profile.temperature, profile.top_k, profile.top_p)
        return [
            TextRequest(
                ids,
                self.requests.max_new_tokens,
                profile.stop,
                Sampling(*rules, _seed(self.setup.config.seed, name, problem.row, i)),
            )
            for ids, problem in zip(self.requests.prompts, self.problems, strict=True)
            for i in range(profile.num_samples)
        ]

    def take_texts(self, scores: ProgramScores, texts: Iterator[Generated]) -> None:
        """Cut and run what was generated."""
        profile, tokenizer = self.source.task.profile, self.setup.tokenizer
        drawn = [list(islice(texts, profile.num_samples)) for _ in self.problems]
        scores.programs = [
            [profile.cut.call(plain_text(tokenizer, ids, text)) for text in own]
            for ids, own in zip(self.requests.prompts, drawn, strict=True)
        ]
        pairs = [(problem, text) for problem, own in zip(self.problems, scores.programs, strict=True) for text in own]
        verdicts = iter(self.judge.verdicts(pairs))
        scores.verdicts = [
            [
                Verdict(False, "nan") if text.ended == "nan" else verdict
                for text, verdict in zip(own, verdicts, strict=False)
            ]
            for own in drawn
        ]


KINDS = {"code": Program}


def _has_nan(verdicts: list[Verdict]) -> bool:
    return any(verdict.ended == "nan" for verdict in verdicts)


def _seed(*names: object) -> int:
    return int.from_bytes(blake2b(" ".join(map(str, names)).encode(), digest_size=4).digest(), "little")
