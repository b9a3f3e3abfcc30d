"""Programs: the model completes code, which runs in a sandbox and is judged by what it computes.

Arrives: a task of problems, a tokenizer; then completions.  Leaves: `ProgramRow`s.  It deliberately
does not know how a completion is generated.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Problem, ProgramProfile, Task
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import Facts, Row, TaskKind, TaskScores
from miron_jax.evaluation.task_kinds.programs import Judge, Verdict, check_languages, solution_of
from miron_jax.evaluation.task_kinds.summary import submitted_meta, task_result, why_unscored
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.programs import score_programs
from miron_jax.prompting.prompts import TAIL, digest_of
from miron_jax.results.details import Ceiling, ProgramDetails
from miron_jax.results.records import TaskResult
from miron_jax.results.samples import AskedProblem, ExampleResult, Programs, ProgramText
from miron_jax.statistics.estimate import TaskEstimates, estimates
from miron_jax.tokens.answer_requests import AnswerRequests, program_requests


@dataclass(slots=True)
class ProgramRow(Row):
    example: ExampleScore  # pyright: ignore[reportIncompatibleVariableOverride] - always spelled
    problem: Problem
    programs: list[str]  # without its prompt
    verdicts: list[Verdict]  # one a program
    ceiling: Verdict  # of the authors' own solution

    @property
    def is_nan(self) -> bool:
        return any(verdict.ended == "nan" for verdict in self.verdicts)


class Program(TaskKind[ProgramRow]):
    generates = True
    runs_programs = True
    requests: AnswerRequests

    @classmethod
    def load(
        cls, task: Task[ProgramProfile], folder: Path, config: RunConfig, runs: bool
    ) -> list[Problem]:
        if runs and not config.allow_code_execution:
            raise InputError(
                f"{task.name} runs programs that the model writes: add --allow_code_execution to "
                "run them in a sandbox, or leave the task out"
            )
        return super().load(task, folder, config, runs)

    def prepare(self) -> None:
        """Tokenize prompts, and run the authors' own solutions, so that a broken sandbox fails
        before weights are loaded."""
        task = self.source.task
        limit = self.setup.config.limit
        check_languages(self.setup.sandbox, self.source.examples, task.name)
        self.problems = self.source.examples[:limit]
        self.requests = program_requests(
            self.source.examples,
            limit,
            task.profile,
            self.setup.tokenizer,
            self.max_length,
            task.name,
        )
        self.judge = Judge(self.setup.sandbox, task.profile.test_seconds, task.profile.judge)
        self.ceiling = self.judge.verdicts(
            [(problem, solution_of(problem)) for problem in self.problems]
        )

    def texts(self) -> list[TextRequest]:
        """The random numbers of a sample depend only on the run's seed, its problem and its
        index."""
        profile = self.source.task.profile
        name = self.source.task.name
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

    def take_texts(self, scores: TaskScores[ProgramRow], texts: Iterator[Generated]) -> None:
        """Cut programs out of completions and run them."""
        profile = self.source.task.profile
        completions = [list(islice(texts, profile.num_samples)) for _ in self.problems]
        programs = [
            [profile.cut.call(plain_text(self.setup.tokenizer, ids, text)) for text in of_problem]
            for ids, of_problem in zip(self.requests.prompts, completions, strict=True)
        ]
        pairs = zip(self.problems, programs, strict=True)
        verdicts = iter(
            self.judge.verdicts(
                [(problem, text) for problem, of_problem in pairs for text in of_problem]
            )
        )
        columns = zip(self.problems, completions, programs, self.ceiling, strict=True)
        for i, (problem, of_problem, texts_of_problem, ceiling) in enumerate(columns):
            judged = [
                Verdict(False, "nan") if text.ended == "nan" else verdict
                for text, verdict in zip(of_problem, verdicts, strict=False)
            ]
            scores.rows.append(
                ProgramRow(
                    i, self.score(problem, judged), problem, texts_of_problem, judged, ceiling
                )
            )

    def score(self, problem: Problem, verdicts: Sequence[Verdict]) -> ExampleScore:
        profile = self.source.task.profile
        if not problem.outputs or any(verdict.ended == "nan" for verdict in verdicts):
            return ExampleScore(None, None, False, False, {"accuracy": math.nan})
        passed = [verdict.passed for verdict in verdicts]
        return score_programs(passed, profile.pass_at_k, profile.also_pass_at)

    def result(self, scores: TaskScores[ProgramRow], facts: Facts) -> TaskResult:
        room = self.requests.max_new_tokens
        ceiling = None
        if any(problem.outputs for problem in self.problems):
            ceiling = Ceiling(sum(verdict.passed for verdict in self.ceiling), len(self.ceiling))
        details = ProgramDetails(
            max_new_tokens=room,
            ended=Counter(verdict.ended for row in scores.rows for verdict in row.verdicts),
            sandboxed=self.judge.sandbox.bwrap is not None,
            ceiling=ceiling,
            beyond_trained_length=sum(
                len(ids) + room - 1 > self.setup.trained_length for ids in self.requests.prompts
            ),
        )
        metrics = estimates([row.example for row in scores.rows])
        return task_result(scores, TaskEstimates(metrics, {}, {}), facts, details)

    def example_results(self, scores: TaskScores[ProgramRow]) -> Iterator[ExampleResult]:
        for row in scores.rows:
            problem = row.problem
            texts = [
                ProgramText(text=text, ended=verdict.ended, answers=verdict.answers or None)
                for text, verdict in zip(row.programs, row.verdicts, strict=True)
            ]
            yield ExampleResult(
                id=row.id,
                row=problem.row,
                asked=AskedProblem(
                    name=problem.name,
                    prompt=problem.prompt[-TAIL:],
                    prompt_sha256=digest_of(problem.prompt),
                ),
                correct=row.example.correct,
                answered=Programs(programs=tuple(texts), ceiling=row.ceiling.ended),
                metrics=row.example.metrics,
                meta=submitted_meta(problem),
                reason=why_unscored(row.is_nan) if row.example.correct is None else "",
            )


KINDS = {"code": Program}


def _seed(*names: object) -> int:
    return int.from_bytes(
        blake2b(" ".join(map(str, names)).encode(), digest_size=4).digest(), "little"
    )
