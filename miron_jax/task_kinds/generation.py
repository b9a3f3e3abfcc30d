"""Generation: completions are compared with the right answers.

Arrives: a task of questions, a tokenizer; then completions.  Leaves: `GenerationScores`.  It deliberately does not know how
a completion is generated.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from miron_jax.definitions.records import Question
from miron_jax.engine.text_requests import Ended, Generated, Sampling, TextRequest, plain_text
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.answers import PREFIX, compared, score_answer
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import DETOX, Scorer, detox_scores
from miron_jax.prompting.prompts import render, without_shots
from miron_jax.statistics.estimate import is_unscored
from miron_jax.task_kinds.entries import answer_entry, prompt_entry, published_entry, why_unscored
from miron_jax.task_kinds.interface import TaskKind
from miron_jax.task_kinds.prompted import PromptedScores
from miron_jax.tokens.answer_requests import AnswerRequests, answer_requests
from miron_jax.tokens.detokenize import drops_first_space


@dataclass(slots=True)
class GenerationScores(PromptedScores):
    questions: list[Question] = field(default_factory=list)
    max_new_tokens: int = 0  # of each completion
    ended: list[Ended] = field(default_factory=list)  # why each completion ended
    drawn: list[tuple[int, ...]] = field(default_factory=list)  # its token ids without EOS
    generated: list[str] = field(default_factory=list)  # its text

    @property
    def unanswered(self) -> list[int]:
        return [prompt.id for prompt, ended in zip(self.prompts, self.ended, strict=True) if ended == "nan"]

    @property
    def answers(self) -> list[str | None]:
        pairs = zip(self.generated, self.ended, strict=True)
        return [None if ended == "nan" else text.strip() for text, ended in pairs]

    @property
    def compared_answers(self) -> list[str | None]:
        return [None if answer is None else compared(answer, self.source.task.profile) for answer in self.answers]

    def finish(self, detox: Scorer | None = None) -> None:
        """An example has NaN, never 0, if the model answered NaN or if `detox` is needed and missing."""
        task = self.source.task
        for text, ended, question in zip(self.generated, self.ended, self.questions, strict=True):
            nothing = ExampleScore(None, None, False, False, {task.main: math.nan})
            known = ended != "nan" and question.accepted
            self.examples.append(score_answer(text, question.accepted, task.profile) if known else nothing)
        if task.profile.match is DETOX and detox is not None:
            self._score_rewrites(detox)

    def _score_rewrites(self, detox: Scorer) -> None:
        """Replace the metrics of every completion by those of the user's classifiers."""
        ids = [i for i, ended in enumerate(self.ended) if ended != "nan"]
        originals = [str((self.questions[i].published or {})["inputs"]) for i in ids]
        rewrites = [self.generated[i].strip() for i in ids]
        for i, metrics in zip(ids, detox_scores(detox, originals, rewrites), strict=True):
            self.examples[i] = replace(self.examples[i], metrics=metrics)

    def details(self) -> JsonObject:
        profile = self.source.task.profile
        normalize, by_prefix = profile.answer_normalizer.call, profile.match is PREFIX
        empty = [
            question.row for question in self.questions if by_prefix and not all(map(normalize, question.accepted))
        ]
        return {
            "max_new_tokens": self.max_new_tokens,
            "ended": dict(Counter(self.ended)),
            "always_right_rows": empty,  # every text begins with an accepted answer that normalizes to ""
        }

    def samples(self) -> Iterator[JsonObject]:
        profile = self.source.task.profile
        columns = zip(self.prompts, self.questions, self.generated, self.ended, self.examples, strict=True)
        for prompt, question, text, ended, example in columns:
            sample = {
                **prompt_entry(prompt, question),
                **answer_entry(example.correct, text),
                "ended": ended,
                "answer": compared(text, profile),
                "accepted": list(question.accepted),
                "metrics": dict(example.metrics),
                **published_entry(question),
            }
            if is_unscored(example):
                sample["reason"] = why_unscored(ended == "nan", profile.match is DETOX)
            yield sample


class Generation(TaskKind[GenerationScores]):
    generates = True
    requests: AnswerRequests

    def prepare(self) -> None:
        task, config = self.source.task, self.setup.config
        prompts = render(task, self.source.examples, config.limit)
        self.requests = answer_requests(
            prompts, self.source.examples, task.profile, self.setup.tokenizer, self.max_length, task.name
        )

    def begin(self) -> GenerationScores:
        requests, by_row = self.requests, {question.row: question for question in self.source.examples}
        beyond = sum(len(ids) + requests.max_new_tokens - 1 > self.setup.trained_length for ids in requests.prompts)
        return GenerationScores(
            self.source,
            [without_shots(prompt) for prompt in requests.worded],
            truncated=requests.truncated,
            beyond_trained=beyond,
            questions=[by_row[prompt.row] for prompt in requests.worded],
            max_new_tokens=requests.max_new_tokens,
        )

    def texts(self, scores: GenerationScores) -> list[TextRequest]:
        profile = self.source.task.profile
        sampling = Sampling(**profile.decoding.call())
        return [TextRequest(ids, self.requests.max_new_tokens, profile.stop, sampling) for ids in self.requests.prompts]

    def take_texts(self, scores: GenerationScores, texts: Iterator[Generated]) -> None:
        tokenizer = self.setup.tokenizer
        alone = self.source.task.profile.decoded == "alone" and drops_first_space(tokenizer)
        for ids in self.requests.prompts:
            generated = next(texts)
            scores.ended.append(generated.ended)
            scores.drawn.append(generated.token_ids)
            text = plain_text(tokenizer, ids, generated)
            scores.generated.append(text.removeprefix(" ") if alone else text)


KINDS = {"generation": Generation}
