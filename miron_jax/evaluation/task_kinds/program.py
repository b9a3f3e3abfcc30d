"""Programs: the model completes code, which runs in a sandbox and is judged by what it computes.

Arrives: a task of problems, a tokenizer; then completions.  Leaves: `ProgramRow`s.  It deliberately
does not know how a completion is generated.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Problem, ProgramProfile, Task
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import LoadedTask, ScoredRow, TaskKind, TaskScores
from miron_jax.evaluation.task_kinds.programs import Judge, Verdict, check_languages, solution_of
from miron_jax.evaluation.task_kinds.saved_verdicts import JournalVerdicts
from miron_jax.evaluation.task_kinds.summary import submitted_meta, task_result, why_unscored
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.programs import score_programs
from miron_jax.prompting.prompts import TAIL, Prompt, digest_of
from miron_jax.results.details import Ceiling, ProgramDetails
from miron_jax.results.records import TaskResult
from miron_jax.results.samples import AskedProblem, ExampleResult, Programs, ProgramText
from miron_jax.runtime.timeline import spent_on
from miron_jax.statistics.estimate import TaskEstimates, estimates
from miron_jax.tokens.answer_requests import AnswerRequests, program_requests

NO_VERDICT = ("nan", "not judged")


@dataclass(slots=True)
class ProgramRow(ScoredRow):
    score: ExampleScore  # pyright: ignore[reportIncompatibleVariableOverride] - always spelled
    problem: Problem
    programs: list[str]  # without its prompt
    verdicts: list[Verdict]  # one a program
    ceiling: Verdict  # of the authors' own solution

    @property
    def is_nan(self) -> bool:
        return any(verdict.ended == "nan" for verdict in self.verdicts)

    @property
    def why_not_judged(self) -> str:
        return next((verdict.why for verdict in self.verdicts if verdict.ended == "not judged"), "")


class ProgramKind(TaskKind[ProgramRow]):
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

    @classmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterator[Prompt]:
        for idx, problem in enumerate(source.examples[: config.limit]):
            digest = digest_of(problem.prompt)
            yield Prompt(idx, problem.row, (problem.prompt,), ("",), None, digest=digest)

    def prepare(self) -> None:
        """Tokenize prompts, and run the authors' own solutions, so that a broken sandbox fails
        before weights are loaded."""
        task = self.source.task
        limit = self.setup.config.limit
        self.judge = Judge.of(self.setup.sandbox, task.profile)
        check_languages(self.judge, self.source.examples, task.name)
        self.problems = self.source.examples[:limit]
        if self.setup.tokenizer is None:
            self.requests = AnswerRequests.untokenized(len(self.problems), [])
        else:
            self.requests = program_requests(
                self.source.examples,
                limit,
                task.profile,
                self.setup.tokenizer,
                self.max_length,
                task.name,
            )
        with spent_on("metrics"):
            self.ceiling = self.judge.verdicts(
                [(problem, solution_of(problem)) for problem in self.problems]
            )

    def texts(self) -> list[TextRequest]:
        """The random numbers of a sample depend only on the run's seed, its problem and its
        index."""
        profile = self.source.task.profile
        name = self.source.task.name
        rules = (profile.temperature, profile.top_k, profile.top_p)
        requests = list[TextRequest]()
        for ids, problem in zip(self.requests.prompts, self.problems, strict=True):
            for i in range(profile.num_samples):
                seed = _seed(self.setup.config.seed, name, problem.row, i)
                sampling = Sampling(*rules, seed)
                requests.append(
                    TextRequest(ids, self.requests.max_new_tokens, profile.stop, sampling)
                )
        return requests

    def take_texts(self, scores: TaskScores[ProgramRow], texts: Iterator[Generated]) -> None:
        """Cut programs out of completions and run them."""
        profile = self.source.task.profile
        completions = list[Generated]()
        programs = list[tuple[Problem, str]]()
        for ids, problem in zip(self.requests.prompts, self.problems, strict=True):
            for text in islice(texts, profile.num_samples):
                completions.append(text)
                program = profile.cut.call(plain_text(self.setup.tokenizer, ids, text))
                programs.append((problem, program))
        saved = None if scores.journal is None else JournalVerdicts(scores.journal)
        verdicts = self.judge.verdicts(programs, saved)
        for k, text in enumerate(completions):
            if text.ended == "nan":
                verdicts[k] = Verdict(False, "nan")
        for i, (problem, ceiling) in enumerate(zip(self.problems, self.ceiling, strict=True)):
            samples = slice(i * profile.num_samples, (i + 1) * profile.num_samples)
            judged = verdicts[samples]
            texts_of_problem = [program for _, program in programs[samples]]
            example = self.score(problem, judged)
            scores.rows.append(ProgramRow(i, example, problem, texts_of_problem, judged, ceiling))

    def score(self, problem: Problem, verdicts: Sequence[Verdict]) -> ExampleScore:
        profile = self.source.task.profile
        if not problem.outputs or any(verdict.ended in NO_VERDICT for verdict in verdicts):
            return ExampleScore(None, None, False, False, {"accuracy": math.nan})
        passed = [verdict.passed for verdict in verdicts]
        return score_programs(passed, profile.pass_at_k, profile.also_pass_at)

    def result(self, scores: TaskScores[ProgramRow]) -> TaskResult:
        ceiling = None
        if any(problem.outputs for problem in self.problems):
            judged = [verdict.passed for verdict in self.ceiling if verdict.ended not in NO_VERDICT]
            ceiling = Ceiling(sum(judged), len(judged))
        details = ProgramDetails(
            max_new_tokens=self.requests.max_new_tokens,
            ended=Counter(verdict.ended for row in scores.rows for verdict in row.verdicts),
            sandboxed=self.judge.sandbox.bwrap is not None,
            no_sandbox=self.judge.sandbox.no_sandbox,
            bounded_by=self.judge.sandbox.bounded_by,
            no_cgroup=self.judge.sandbox.no_cgroup,
            ceiling=ceiling,
            not_judged=tuple(sorted({why for row in scores.rows if (why := row.why_not_judged)})),
            beyond_trained_length=self.requests.num_longer_than(self.setup.trained_length),
        )
        metrics = estimates([row.score for row in scores.rows])
        return task_result(scores, TaskEstimates(metrics, {}, {}), details)

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
                correct=row.score.correct,
                answered=Programs(programs=tuple(texts), ceiling=row.ceiling.ended),
                metrics=row.score.metrics,
                meta=submitted_meta(problem),
                reason=_why_unscored(row),
            )


def _why_unscored(row: ProgramRow) -> str:
    if row.score.correct is not None:
        return ""
    if row.why_not_judged:
        return f"not judged: {row.why_not_judged}"
    return why_unscored(row.is_nan)


KINDS = {"code": ProgramKind}


def _seed(*names: object) -> int:
    return int.from_bytes(
        blake2b(" ".join(map(str, names)).encode(), digest_size=4).digest(), "little"
    )
