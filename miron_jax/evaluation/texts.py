"""Tasks whose answers are texts: what to generate for them, and what comes back.

Arrives: sources of questions, problems and cloze items, a tokenizer, a Generator.  Leaves: `AnswerScores`, `ProgramScores`
and `ClozeScores` with their texts.  It deliberately does not know what makes a text right.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.generate import Generator
from miron_jax.engine.scores import meet
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.evaluation.records import AnswerScores, AnswerSource, ClozeScores, Inputs, ProgramScores, ProgramSource
from miron_jax.prompting.prompts import Prompt, render, without_shots
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal, Text
from miron_jax.runtime.sandbox import Sandbox
from miron_jax.task_kinds.programs import Judge, Verdict, check_languages, cut_program, solution_of
from miron_jax.task_kinds.records import Problem, Question
from miron_jax.tokens.answer_requests import AnswerRequests, answer_requests, program_requests
from miron_jax.tokens.detokenize import drops_first_space
from miron_jax.tokens.records import LengthLimit
from miron_jax.tokens.tokenizers import Tokenizer

BLOCKS_EACH = 4  # of a process's texts: what another one may take over
DRAWN_COST = 16  # tokens of a prompt that one drawn token costs


def asked_texts(
    config: RunConfig, inputs: Inputs, tokenizer: Tokenizer, limit: LengthLimit
) -> "list[AskedAnswers | AskedPrograms]":
    """Every task of questions or problems, tokenized.  Raises InputError where programs could not run."""
    sandbox = _sandbox(config, inputs)
    asked: list[AskedAnswers | AskedPrograms] = []
    for source in inputs.sources:
        if isinstance(source, AnswerSource):
            asked.append(AskedAnswers.of(source, config, tokenizer, limit))
        elif isinstance(source, ProgramSource):
            assert sandbox is not None
            asked.append(AskedPrograms.of(source, config, tokenizer, limit, sandbox))
    return asked


def _sandbox(config: RunConfig, inputs: Inputs) -> Sandbox | None:
    """Where programs will run, tried before weights are loaded; None: there are none to run."""
    sources = [source for source in inputs.sources if isinstance(source, ProgramSource)]
    if not sources:
        return None
    sandbox = Sandbox.find(config.allow_unsandboxed_code)
    for source in sources:
        check_languages(sandbox, source.examples, source.task.name)
    return sandbox


class AskedAnswers(NamedTuple):
    """A task of questions, tokenized."""

    source: AnswerSource
    prompts: list[Prompt]
    questions: list[Question]
    requests: AnswerRequests

    @classmethod
    def of(cls, source: AnswerSource, config: RunConfig, tokenizer: Tokenizer, limit: LengthLimit) -> "AskedAnswers":
        task, of_row = source.task, {question.row: question for question in source.examples}
        prompts = render(task, source.examples, config.limit)
        most = limit.of(task.profile)
        requests = answer_requests(prompts, source.examples, task.profile, tokenizer, most, task.name)
        return cls(source, requests.worded, [of_row[prompt.row] for prompt in prompts], requests)

    def scores(self, trained_length: int) -> AnswerScores:
        """Nothing generated yet."""
        asked = self.requests
        beyond = sum(len(ids) + asked.max_new_tokens - 1 > trained_length for ids in asked.prompts)
        prompts = [without_shots(prompt) for prompt in self.prompts]
        return AnswerScores(self.source, prompts, self.questions, asked.max_new_tokens, asked.truncated, beyond)

    def texts(self) -> list[TextRequest]:
        stop = self.source.task.profile.stop
        return [TextRequest(ids, self.requests.max_new_tokens, stop) for ids in self.requests.prompts]

    def take(self, task: AnswerScores, texts: Iterator[Generated], tokenizer: Tokenizer) -> None:
        """Keep what was generated."""
        for ids in self.requests.prompts:
            generated = next(texts)
            task.ended.append(generated.ended)
            task.drawn.append(generated.token_ids)
            text = plain_text(tokenizer, ids, generated)
            alone = self.source.task.profile.decoded == "alone" and drops_first_space(tokenizer)
            task.generated.append(text.removeprefix(" ") if alone else text)


class AskedPrograms(NamedTuple):
    """A task of problems, tokenized, and where its programs will run."""

    source: ProgramSource
    problems: list[Problem]
    requests: AnswerRequests
    seed: int
    judge: Judge
    ceiling: list[Verdict]  # of the authors' own solutions

    @classmethod
    def of(
        cls, source: ProgramSource, config: RunConfig, tokenizer: Tokenizer, limit: LengthLimit, sandbox: Sandbox
    ) -> "AskedPrograms":
        task, problems = source.task, source.examples[: config.limit]
        requests = program_requests(
            source.examples, config.limit, task.profile, tokenizer, limit.of(task.profile), task.name
        )
        solutions = [(problem, solution_of(problem)) for problem in problems]
        judge = Judge(sandbox, task.profile.test_seconds, task.profile.judge)
        return cls(source, problems, requests, config.seed, judge, judge.verdicts(solutions))

    def scores(self, trained_length: int) -> ProgramScores:
        """Nothing generated yet."""
        room = self.requests.max_new_tokens
        beyond = sum(len(ids) + room - 1 > trained_length for ids in self.requests.prompts)
        return ProgramScores(
            self.source, self.judge.sandbox.bwrap is not None, self.problems, room, beyond, ceiling=self.ceiling
        )

    def texts(self) -> list[TextRequest]:
        """Every sample's draw depends on the run's seed, its problem and its number alone."""
        profile, name = self.source.task.profile, self.source.task.name
        rules = (profile.temperature, profile.top_k, profile.top_p)
        return [
            TextRequest(
                ids,
                self.requests.max_new_tokens,
                profile.stop,
                Sampling(*rules, _seed(self.seed, name, problem.row, i)),
            )
            for ids, problem in zip(self.requests.prompts, self.problems, strict=True)
            for i in range(profile.num_samples)
        ]

    def take(self, task: ProgramScores, texts: Iterator[Generated], tokenizer: Tokenizer) -> None:
        """Cut and run what was generated."""
        profile = self.source.task.profile
        drawn = [list(islice(texts, profile.num_samples)) for _ in self.problems]
        task.programs = [
            [cut_program(plain_text(tokenizer, ids, text), profile.cut) for text in own]
            for ids, own in zip(self.requests.prompts, drawn, strict=True)
        ]
        pairs = [(problem, text) for problem, own in zip(self.problems, task.programs, strict=True) for text in own]
        verdicts = iter(self.judge.verdicts(pairs))
        task.verdicts = [
            [
                Verdict(False, "nan") if text.ended == "nan" else verdict
                for text, verdict in zip(own, verdicts, strict=False)
            ]
            for own in drawn
        ]


def _seed(*names: object) -> int:
    return int.from_bytes(blake2b(" ".join(map(str, names)).encode(), digest_size=4).digest(), "little")


def generate_texts(
    cloze: list[ClozeScores],
    asked: list[AskedAnswers | AskedPrograms],
    scores: Mapping[str, AnswerScores | ProgramScores],
    generator: Generator,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> None:
    """A text for every item that is scored, question and sample of a problem, those of all tasks in one go.  Texts that
    stand in the journal are not drawn again; others go there when they end.  Of several `hosts` only the first gets them;
    `name` of these weights is used once."""
    wanted = [request for task in cloze for request in _cloze_texts(task)]
    wanted += [request for own in asked for request in own.texts()]
    texts = iter(_drawn(wanted, generator, journal, hosts, f"{name}/texts"))
    if not hosts.is_first:
        return
    for task in cloze:
        found = [next(texts) if own.target is not None else None for own in task.asked]
        task.generated += [None if own is None or own.ended == "nan" else own.text for own in found]
    for own in asked:
        task = scores[own.source.task.name]
        if isinstance(own, AskedPrograms):
            assert isinstance(task, ProgramScores)
            own.take(task, texts, generator.tokenizer)
        else:
            assert isinstance(task, AnswerScores)
            own.take(task, texts, generator.tokenizer)


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


def _cloze_texts(task: ClozeScores) -> list[TextRequest]:
    profile = task.source.task.profile
    return [
        TextRequest(asked.prompt, asked.num_tokens + profile.extra_tokens, (profile.stop,))
        for asked in task.asked
        if asked.target is not None
    ]
