"""Programs: the model completes code, which runs in a sandbox and is judged by what it computes.

Arrives: a task of problems, a tokenizer; then completions.  Leaves: `ProgramScores`.  It deliberately does not know how a
completion is generated.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Problem, ProgramProfile, Task
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import Scorer
from miron_jax.metrics.programs import score_programs
from miron_jax.prompting.prompts import TAIL, digest_of
from miron_jax.statistics.estimate import Estimate, TaskEstimates, estimates
from miron_jax.task_kinds.entries import answer_entry, published_entry, task_entry, why_unscored
from miron_jax.task_kinds.interface import Facts, Source, TaskKind, TaskScores
from miron_jax.task_kinds.programs import Judge, Verdict, check_languages, solution_of
from miron_jax.tokens.answer_requests import AnswerRequests, program_requests


@dataclass(slots=True)
class ProgramScores(TaskScores):
    """One task's problems, in file order."""

    source: Source
    sandboxed: bool  # False: programs ran under resource limits only
    problems: list[Problem] = field(default_factory=list)
    max_new_tokens: int = 0  # of each program
    beyond_trained: int = 0  # problems whose prompt and program may exceed the model's training length
    programs: list[list[str]] = field(default_factory=list)  # of each problem, without its prompt
    verdicts: list[list[Verdict]] = field(default_factory=list)
    ceiling: list[Verdict] = field(default_factory=list)  # of the authors' own solutions
    examples: list[ExampleScore] = field(default_factory=list)

    @property
    def unanswered(self) -> list[int]:
        return [i for i, verdicts in enumerate(self.verdicts) if _has_nan(verdicts)]

    def finish(self, detox: Scorer | None = None) -> None:
        profile = self.source.task.profile
        for problem, verdicts in zip(self.problems, self.verdicts, strict=True):
            if not problem.outputs or _has_nan(verdicts):
                self.examples.append(ExampleScore(None, None, False, False, {"accuracy": math.nan}))
                continue
            passed = [verdict.passed for verdict in verdicts]
            self.examples.append(score_programs(passed, profile.pass_at_k, profile.also_pass_at))

    def for_composites(self) -> Mapping[str, Estimate]:
        main, metrics = self.source.task.main, estimates(self.examples)
        return {main: metrics[main]} if main in metrics else {}

    def entry(self, facts: Facts) -> JsonObject:
        of_kind = {
            "max_new_tokens": self.max_new_tokens,
            "ended": dict(Counter(verdict.ended for verdicts in self.verdicts for verdict in verdicts)),
            "sandboxed": self.sandboxed,
            # Problems that the authors' own solutions solve: an upper bound of what programs score.
            "ceiling": {"passed": sum(verdict.passed for verdict in self.ceiling), "n": len(self.ceiling)}
            if any(problem.outputs for problem in self.problems)
            else None,  # expected values are not published
            "beyond_trained_length": self.beyond_trained,
        }
        return task_entry(self, TaskEstimates(estimates(self.examples), {}, {}), facts, of_kind)

    def samples(self) -> Iterator[JsonObject]:
        columns = (self.problems, self.programs, self.verdicts, self.ceiling, self.examples)
        for i, (problem, programs, verdicts, ceiling, example) in enumerate(zip(*columns, strict=True)):
            yield {
                "id": i,
                "row": problem.row,
                "name": problem.name,
                "prompt": problem.prompt[-TAIL:],
                "prompt_sha256": digest_of(problem.prompt),
                **answer_entry(example.correct, None),
                "programs": [
                    {"text": text, "ended": verdict.ended, **({"answers": verdict.answers} if verdict.answers else {})}
                    for text, verdict in zip(programs, verdicts, strict=True)
                ],
                "ceiling": ceiling.ended,
                "metrics": dict(example.metrics),
                **published_entry(problem),
                **({"reason": why_unscored(_has_nan(verdicts))} if example.correct is None else {}),
            }


class Program(TaskKind[ProgramScores]):
    generates = True
    runs_programs = True
    requests: AnswerRequests

    @classmethod
    def load(cls, task: Task[ProgramProfile], folder: Path, config: RunConfig, runs: bool) -> list[Problem]:
        if runs and not config.allow_code_execution:
            raise InputError(
                f"{task.name} runs programs that the model writes: add --allow_code_execution to run them in a sandbox, or "
                "leave the task out"
            )
        return super().load(task, folder, config, runs)

    def prepare(self) -> None:
        """Tokenize prompts, and run the authors' own solutions, so that a broken sandbox fails before weights are loaded."""
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
        """The random numbers of a sample depend only on the run's seed, its problem and its index."""
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
        """Cut programs out of completions and run them."""
        profile, tokenizer = self.source.task.profile, self.setup.tokenizer
        samples = [list(islice(texts, profile.num_samples)) for _ in self.problems]
        scores.programs = [
            [profile.cut.call(plain_text(tokenizer, ids, text)) for text in completions]
            for ids, completions in zip(self.requests.prompts, samples, strict=True)
        ]
        pairs = zip(self.problems, scores.programs, strict=True)
        verdicts = iter(self.judge.verdicts([(problem, text) for problem, programs in pairs for text in programs]))
        scores.verdicts = [
            [
                Verdict(False, "nan") if text.ended == "nan" else verdict
                for text, verdict in zip(completions, verdicts, strict=False)
            ]
            for completions in samples
        ]


KINDS = {"code": Program}


def _has_nan(verdicts: list[Verdict]) -> bool:
    return any(verdict.ended == "nan" for verdict in verdicts)


def _seed(*names: object) -> int:
    return int.from_bytes(blake2b(" ".join(map(str, names)).encode(), digest_size=4).digest(), "little")
