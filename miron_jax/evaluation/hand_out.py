"""Scores + texts -> each task's examples, scored.

Arrives: a piece of a part with its scores; generated texts.  Leaves: `TaskScores` and `ClozeScores` filled in.  It
deliberately does not know plans, devices or files.
"""

import math
from dataclasses import replace
from itertools import islice

import numpy as np

from miron_jax.engine.records import Score
from miron_jax.evaluation.parts import ClozePiece, Piece
from miron_jax.evaluation.records import AnswerScores, ClozeScores, ProgramScores, TaskScores
from miron_jax.metrics.answers import score_answer
from miron_jax.metrics.choices import ExampleScore, score_beside, score_choices, score_continuation
from miron_jax.metrics.cloze import ClozeAnswers, Fragments, Span, score_cloze
from miron_jax.metrics.detox import Scorer, detox_scores
from miron_jax.metrics.programs import score_programs
from miron_jax.prompting.prompts import without_shots
from miron_jax.task_kinds.records import Cloze
from miron_jax.tokens.cloze_requests import Asked


def hand_out(
    task: TaskScores | ClozeScores, piece: Piece | ClozePiece, scores: list[Score], trained_length: int
) -> None:
    """Give a task the scores of some of its examples, in order."""
    if isinstance(piece, ClozePiece):
        assert isinstance(task, ClozeScores)
        _hand_out_items(task, piece, scores, trained_length)
    else:
        assert isinstance(task, TaskScores)
        _hand_out_options(task, piece, scores)
        _count(task, piece, trained_length)


def score_items(task: ClozeScores) -> None:
    """Score a cloze task once its texts are there."""
    columns = (task.items, task.asked, task.spans, task.generated)
    task.examples = [_score_item(*item) for item in zip(*columns, strict=True)]


def score_answers(task: AnswerScores, detox: Scorer | None = None) -> None:
    """Score a task of questions once its texts are there; where the model answered NaN, nothing is right or wrong.

    `detox`: the user's classifiers of rewrites; without them what they would tell is NaN, never 0.
    """
    profile, main = task.source.task.profile, task.source.task.main
    for text, ended, question in zip(task.generated, task.ended, task.questions, strict=True):
        nothing = ExampleScore(None, None, False, False, {main: math.nan})
        known = ended != "nan" and question.accepted
        task.examples.append(score_answer(text, question.accepted, profile) if known else nothing)
    if profile.match == "detox" and detox is not None:
        _score_rewrites(task, detox)


def _score_rewrites(task: AnswerScores, detox: Scorer) -> None:
    """The numbers of the user's classifiers, for every text that the model wrote."""
    places = [i for i, ended in enumerate(task.ended) if ended != "nan"]
    originals = [str((task.questions[i].published or {})["inputs"]) for i in places]
    found = detox_scores(detox, originals, [task.generated[i].strip() for i in places])
    for i, metrics in zip(places, found, strict=True):
        task.examples[i] = replace(task.examples[i], metrics=metrics)


def score_problems(task: ProgramScores) -> None:
    """Score a task of problems once its programs have run."""
    profile = task.source.task.profile
    for problem, verdicts in zip(task.problems, task.verdicts, strict=True):
        if not problem.outputs or any(verdict.ended == "nan" for verdict in verdicts):
            task.examples.append(ExampleScore(None, None, False, False, {"accuracy": math.nan}))
            continue
        passed = [verdict.passed for verdict in verdicts]
        task.examples.append(score_programs(passed, profile.pass_at_k, profile.also_pass_at))


def _hand_out_options(task: TaskScores, piece: Piece, scores: list[Score]) -> None:
    """Give each example its options' scores and score it."""
    taken = iter(scores)
    for prompt in piece.prompts:
        options = list(islice(taken, len(prompt.continuations) - prompt.beside))
        beside = list(islice(taken, prompt.beside))
        if task.source.task.kind == "language_modeling":
            example = score_continuation(options[0].logprob, options[0].rank, prompt.continuations[0])
        else:
            profile, logprobs = task.source.task.profile, [option.logprob for option in options]
            texts = prompt.continuations[: len(options)]
            example = score_choices(logprobs, texts, prompt.gold, profile.normalizer, profile.tie)
            if prompt.gold is not None and (beside or profile.normalizer == "char"):
                ends, neutral = beside[: len(profile.endings)], beside[len(profile.endings) :]
                endings = [(own.logprob, own.rank) for own in ends]
                neutral_logprobs = [own.logprob for own in neutral]
                example = score_beside(example, logprobs, texts, prompt.gold, endings, neutral_logprobs)
            if profile.over_all == "mcc" and example.prediction is not None:  # no option is right by itself
                example = replace(example, metrics={"answered_last": float(example.prediction == len(options) - 1)})
        task.prompts.append(without_shots(prompt))
        task.options.append(options)
        task.examples.append(example)


def _hand_out_items(task: ClozeScores, piece: ClozePiece, scores: list[Score], trained_length: int) -> None:
    """Give each item the scores that it asked for; its text is generated later."""
    task.items += piece.items
    task.asked += piece.asked
    task.empty_prefix = piece.empty_prefix
    length = np.diff(piece.requests.offsets)
    for asked in piece.asked:
        optional = (asked.target, asked.card, asked.unprefixed, asked.clean, *asked.distractors)
        places = [place for place in (*optional, *asked.segmentations) if place is not None]
        task.spans.append({place: scores[place] for place in places})
        task.truncated += bool(piece.requests.truncated[places].any()) or asked.prompt_cut
        task.beyond_trained += bool((length[places] - 1 > trained_length).any())


def _count(task: TaskScores, piece: Piece, trained_length: int) -> None:
    """Count examples that the length limit, the tokenizer or the model's training length touched."""
    first = np.cumsum([0, *(len(prompt.continuations) for prompt in piece.prompts)])[:-1]
    requests = piece.requests
    task.truncated += int(np.logical_or.reduceat(requests.truncated, first).sum())
    task.inexact_prefix += int(np.logical_or.reduceat(requests.inexact_prefix, first).sum())
    too_long = np.diff(requests.offsets) - 1 > trained_length
    task.beyond_trained += int(np.logical_or.reduceat(too_long, first).sum())


def _score_item(item: Cloze, asked: Asked, spans: dict[int, Score], generated: str | None) -> ExampleScore | None:
    if asked.target is None:
        return None

    def span(place: int | None) -> Span | None:
        return None if place is None else Span(*spans[place])

    target = span(asked.target)
    assert target is not None
    answers = ClozeAnswers(
        target=target,
        card=None if asked.card is None else spans[asked.card].logprob,
        unprefixed=span(asked.unprefixed),
        clean=span(asked.clean),
        distractors=[span(place) for place in asked.distractors],
        segmentations=[Span(*spans[place]) for place in asked.segmentations] if asked.segmented else None,
        generated=generated,
    )
    fragments = Fragments(asked.num_tokens, asked.num_prefix_tokens, asked.num_clean_tokens, asked.seam, asked.regress)
    return score_cloze(item.prefix, item.target, item.distractors, answers, fragments)
