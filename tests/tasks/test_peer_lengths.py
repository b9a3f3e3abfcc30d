"""What each peer divides by, on choices with white space at both ends: their formulas, written out, beside ours.

A toy model gives a log-probability to each pair of neighbouring tokens; the peers' formulas are those of their
specifications (`core_and_gauntlet.md`: nanochat's evaluate_task, composer's datasets; `olmes.md`: sums and bits per byte;
`mera.md`: lm-evaluation-harness forks; `eval_uation_and_miron.md`: fills of a gap, the card's `compute_metrics`).
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import decoders
from transformers.convert_slow_tokenizer import bytes_to_unicode

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Cloze, Example
from miron_jax.engine.records import Score, Scores
from miron_jax.engine.text_requests import Generated
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskKind, TaskScores, TokenizedExamples
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.metrics.choices import CHAR, ExampleScore
from miron_jax.tasks.registry import SUITES
from miron_jax.tasks.request_sets.requests_suite import PROFILE
from miron_jax.tokens.records import Requests
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.truncation import LengthLimit
from tests.support.tiny_tokenizer import BOS, TINY
from tests.support.tolerances import FLOAT32

CHOICES = {
    "blanks before": (" the mat", "  the mat", "the mat"),
    "blanks behind": ("the mat ", "the mat  ", "the sea"),
    "both, of other bytes": (" базбзге ", " g! ", "\tèéèàêéàà\n"),
    "prefixes": ("the", "the cat", "the cat sat "),
    "a line's end": ("blue\n", "blue", "\nblue"),
    "one token": ("a", " a", "b"),
}
QUESTION = " the answer is "
SPELLED = deepcopy(TINY)  # the same, with a decoder, by which the bytes of its tokens are known
SPELLED.backend_tokenizer.decoder = decoders.ByteLevel()
DELIMITERS = ("", " ", "\n", "\nAnswer: ", ": \t")


def ids_of(text: str) -> list[int]:
    return TINY.encode(text, add_special_tokens=False)


def logprob(before: int, token: int) -> float:
    """Nats of a token after another, the same in every text; multiples of 2^-7, so that float32 sums are exact."""
    return -(1 + (before * 131 + token * 29) % 613) / 128


def logprobs(ids: Sequence[int], start: int) -> list[float]:
    return [logprob(ids[place - 1], ids[place]) for place in range(start, len(ids))]


def kind_with(task: Any, examples: Sequence[Any]) -> TaskKind[Any]:
    source = LoadedTask(task, [*examples], DataState("as published", None, None))
    setup = Setup(RunConfig("demo", ("own",)), SPELLED, TokenBytes(SPELLED, 400), LengthLimit(None, None, None))
    kind = kind_of(task)(source, setup)
    kind.prepare()
    return kind


def toy_scores(requests: Requests, id_sets: Sequence[np.ndarray]) -> Scores:
    """What the toy model gives to each request, and to the tokens that its healing divides by."""
    given = []
    sets = [-1] * len(requests) if requests.id_set is None else requests.id_set.tolist()
    for (tokens, start), id_set in zip(requests, sets, strict=True):
        ids = [*map(int, tokens)]
        held = 0.0 if id_set < 0 else log_sum(ids[start - 1], id_sets[id_set].tolist())
        given.append(Score(np.asarray(logprobs(ids, start), np.float32), np.ones(len(ids) - start, np.int32), held))
    return Scores.of(given)


def log_sum(before: int, tokens: Sequence[int]) -> float:
    return math.log(sum(math.exp(logprob(before, token)) for token in tokens))


def scored(task: Any, example: Example) -> ExampleScore:
    """The example as this program scores it, with the toy model in place of a network."""
    task = replace(task, profile=replace(task.profile, num_fewshot=0))
    kind = kind_with(task, [example])
    scores: TaskScores[Any] = TaskScores(kind, [])
    for examples, requests in kind.pieces():
        scores.rows += kind.rows_of(TokenizedExamples(0, examples, requests), toy_scores(requests, ()))
    [row] = scores.rows
    return row.score


def common_prefix(texts: Sequence[Sequence[int]]) -> int:
    same = 0
    while all(len(ids) > same and ids[same] == texts[0][same] for ids in texts):
        same += 1
    return same


def with_delimiter(task: Any, delimiter: str) -> Any:
    return replace(task, profile=replace(task.profile, delimiter=delimiter))


def named(suite: str, name: str) -> Any:
    return next(task for task in SUITES[suite].tasks if task.name == f"{suite}/{name}")


# CORE, nanochat: the whole prompt with BOS; of choices the tokens after the longest common prefix, of a schema the common
# suffix, each by the mean.


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_core_divides_by_the_tokens_that_choices_do_not_share(choices: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("core", "copa"), delimiter)
    texts = [[BOS, *ids_of(QUESTION + delimiter + choice)] for choice in choices]
    start = common_prefix(texts)
    losses = [-float(np.mean(logprobs(ids, start))) if len(ids) > start else math.nan for ids in texts]
    example = scored(task, Example(0, (QUESTION,), choices, 1))
    first = next((i for i, loss in enumerate(losses) if math.isnan(loss)), None)
    assert example.prediction == (int(np.argmin(losses)) if first is None else first)
    bits = -sum(logprobs(texts[1], start)) / math.log(2) / len(choices[1].encode())
    assert example.metrics["bits_per_byte"] == pytest.approx(bits, rel=FLOAT32)


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("contexts", CHOICES.values(), ids=CHOICES)
def test_cores_schemas_divide_by_the_common_ending(contexts: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("core", "winograd"), delimiter)
    texts = [[BOS, *ids_of(context + delimiter + " is blue. ")] for context in contexts]
    shared = common_prefix([ids[::-1] for ids in texts])
    losses = [-np.mean(logprobs(ids, len(ids) - shared)) for ids in texts]
    assert scored(task, Example(0, contexts, (" is blue. ",), 1)).prediction == int(np.argmin(losses))


# The Gauntlet, composer: context and choice apart, the context's end stripped with its delimiter; choices in a list keep
# their white space, and get one space in front where they have none; exp of the mean over all of the choice's tokens.


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_the_gauntlet_divides_by_all_tokens_of_the_choice(choices: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("gauntlet", "copa"), delimiter)
    example = task.parse({"query": QUESTION, "choices": [*choices], "gold": 1}, 0)
    context = ids_of(QUESTION.strip() + delimiter.rstrip())
    space = " " if len(ids_of(" a")) == 1 else ""
    behind = [ids_of(choice if choice.startswith(" ") else space + choice) for choice in choices]
    losses = [np.float32(-np.mean(logprobs([*context, *ids], len(context)))) for ids in behind]
    assert scored(task, example).prediction == int(np.argmin(np.exp(losses)))


# Request sets, olmo-eval: sums of the whole continuation, and gold's bits over its UTF-8 bytes, the leading blank counted.


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_request_sets_count_the_bytes_of_the_text_as_it_lies(choices: tuple[str, ...]) -> None:
    task = replace(named("core", "copa"), profile=PROFILE)
    context, rest = QUESTION.rstrip(), QUESTION[len(QUESTION.rstrip()) :]
    begins = ids_of(context)
    pairs = [[*begins, *ids_of(rest + choice)] for choice in choices]
    sums = [sum(logprobs(ids, len(begins))) for ids in pairs]
    example = scored(task, Example(0, (QUESTION,), choices, 1))
    assert example.prediction == int(np.argmax(sums))
    expected = -sums[1] / math.log(2) / len(choices[1].encode())
    assert example.metrics["bits_per_byte"] == pytest.approx(expected, rel=FLOAT32)


LENGTHS: dict[str, Callable[[str], int]] = {
    "accuracy_sum": lambda text: 1,
    "accuracy_bytes": lambda text: len(text.encode()),
    "accuracy_char": len,
}


@pytest.mark.parametrize("metric", LENGTHS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_lm_evals_lengths_are_those_of_the_choice_without_its_delimiter(metric: str, choices: tuple[str, ...]) -> None:
    """`acc`, `acc_bytes` and `acc_norm` of lm-eval 0.4.13: the sum of all that follows the context, divided by the choice
    as doc_to_choice gives it, target_delimiter left out."""
    task = replace(named("core", "copa"), profile=replace(PROFILE, normalizer=CHAR, joined_delimiter=" "))
    begins = ids_of("the sky is")
    sums = [sum(logprobs([*begins, *ids_of(f" {choice}")], len(begins))) for choice in choices]
    joined = tuple(f" {choice}" for choice in choices)
    example = scored(task, Example(0, ("the sky is",), joined, 1))
    values = [each / LENGTHS[metric](choice) for each, choice in zip(sums, choices, strict=True)]
    assert example.metrics[metric] == float(int(np.argmax(values)) == 1)


# MERA: choices after " ".  v1 sums the whole text from its second token; v1.2 what follows the context's own tokens, like
# lm-eval.  Neither divides; what else is printed divides by the choice, its space left out.  (v1 here refuses a choice that
# another one continues.)

SPACED = CHOICES | {"only a space": (" ", "Да", "  "), "Cyrillic": (" Да", "Нет ", "нет")}


@pytest.mark.parametrize("context", ["Ответ:", " the answer is \n"])
@pytest.mark.parametrize("choices", [each for each in SPACED.values() if each != CHOICES["prefixes"]])
@pytest.mark.parametrize("name", ["rwsd", "ruethics"])
def test_mera_v1_compares_sums_of_whole_texts(name: str, choices: tuple[str, ...], context: str) -> None:
    texts = [ids_of(f"{context} {choice}") for choice in choices]
    sums = [sum(logprobs(ids, 1)) for ids in texts]
    is_last = name == "ruethics"  # "1" at equal sums
    wins = max(range(len(sums)), key=lambda i: (sums[i], i if is_last else -i))
    example = scored(named("mera-v1", name), Example(0, (context,), tuple(f" {each}" for each in choices), 1))
    assert example.prediction == wins
    if not is_last:  # ruEthics has no right answer of its own
        bits = -sum(logprobs(texts[1], common_prefix(texts))) / math.log(2)
        assert example.metrics["bits_per_byte"] == pytest.approx(bits / len(choices[1].encode()), rel=FLOAT32)


@pytest.mark.parametrize("context", ["Ответ:", " the answer is \n"])
@pytest.mark.parametrize("choices", SPACED.values(), ids=SPACED)
def test_mera_v12_divides_by_the_choice_without_its_space(choices: tuple[str, ...], context: str) -> None:
    begins = ids_of(context.rstrip())
    kept = [[*begins, *ids_of(f"{context} {choice}")[len(begins) :]] for choice in choices]
    sums = [sum(logprobs(ids, len(begins))) for ids in kept]
    example = scored(named("mera-v1.2", "rwsd"), Example(0, (context,), tuple(f" {each}" for each in choices), 1))
    assert example.prediction == int(np.argmax(sums))
    by_bytes = [each / len(choice.encode()) for each, choice in zip(sums, choices, strict=True)]
    assert example.metrics["accuracy_bytes"] == float(int(np.argmax(by_bytes)) == 1)
    assert example.metrics["bits_per_byte"] == pytest.approx(-by_bytes[1] / math.log(2), rel=FLOAT32)


# Eval-UA-tion's cloze: the gap filled with each option and all that follows it, by the mean per character of the fill; the
# space before the gap is no part of it.


@pytest.mark.parametrize("options", [("кіт", "старий пес"), (" кіт", "пес"), ("кіт ", "  пес"), ("the cat", "cat\n")])
@pytest.mark.parametrize("after", [" пішов додому. ", " , клюючи", " » і пішов", ""])
@pytest.mark.parametrize("before", ["Жив собі ", "Він сказав: « ", " the ( "])
def test_eval_uations_cloze_divides_by_the_characters_of_the_fill(
    before: str, after: str, options: tuple[str, ...]
) -> None:
    fields = {"context": "Казка.\n", "question": f"{before}______{after}", "options": [*options], "answer": options[0]}
    if options[0] != options[0].strip():
        fields |= {"options": [*options, "лис"], "answer": "лис"}
    task = named("eval-ua-tion", "ua_cbt_cloze")
    parsed = task.parse(fields | {"storyId": 1, "taskType": "NAMED_ENTITY"}, 0)
    begins = f"Казка. {before.strip()}"
    joins = "" if begins[-1] in "(«" else " "
    tail = after.strip()
    gap = " " if tail and tail[0] not in ",»" else ""
    fills = [f"{option.strip()}{gap}{tail}" for option in fields["options"]]
    start = len(ids_of(begins))
    sums = [sum(logprobs(ids_of(begins + joins + fill), start)) for fill in fills]
    rates = [each / len(fill) for each, fill in zip(sums, fills, strict=True)]
    example = scored(task, replace(parsed, neutral=None))
    wins = int(np.argmax(rates))
    assert (example.prediction, example.metrics["accuracy_char"]) == (wins, float(wins == parsed.gold))
    gold = len(fills[parsed.gold].encode())
    bits = -sums[parsed.gold] / math.log(2) / gold
    assert example.metrics["bits_per_byte"] == pytest.approx(bits, rel=FLOAT32)


# MIRON: the card's two metrics, and bits of the target given its prefix; where a token holds the end of the prefix, its
# probability is divided by that of all tokens that may begin so.

_BYTE_OF = {character: byte for byte, character in bytes_to_unicode().items()}
BYTES_OF = [
    b"" if i == BOS else bytes(_BYTE_OF[each] for each in str(TINY.convert_ids_to_tokens(i))) for i in range(len(TINY))
]
ITEMS = {
    "a space before the target": ("the sky is", " blue"),
    "a space behind the prefix": ("the sky is ", "blue"),
    "inside a word": ("the ca", "t sat \n"),
    "white space alone": ("the sea", " "),
    "white space at all ends": (" \tthe mat ", "  Київ "),
    "Cyrillic inside a word": ("нет глок", "а"),
    "digits": ("3, 5, 7, ", "9\n"),
}


def spelled_nats(prefix: str, target: str) -> float:
    """log P(target | prefix), the bytes of all tokens counted one by one."""
    ids, boundary = ids_of(prefix + target), len(prefix.encode())
    ends = np.cumsum([len(BYTES_OF[i]) for i in ids])
    first = int(np.argmax(ends > boundary))
    held = (prefix + target).encode()[ends[first - 1] : boundary]
    starts = [i for i, token in enumerate(BYTES_OF) if token and (token.startswith(held) or held.startswith(token))]
    return sum(logprobs(ids, first)) - (log_sum(ids[first - 1], starts) if held else 0.0)


def edits(a: str, b: str) -> int:
    row = [*range(len(b) + 1)]
    for i, left in enumerate(a, 1):
        above, row = row, [i]
        for j, right in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (left != right)))
    return row[-1]


def scored_item(item: Cloze, generated: str) -> ExampleScore:
    kind = kind_with(named("miron", "ru"), [item])
    scores: TaskScores[Any] = TaskScores(kind, [])
    for examples, requests in kind.pieces():
        piece = TokenizedExamples(0, examples, requests)
        scores.rows += kind.rows_of(piece, toy_scores(requests, kind.setup.table.id_sets))
    kind.take_texts(scores, iter([Generated(generated, (), "stop")]))
    [row] = scores.rows
    return row.score


@pytest.mark.parametrize("written", ["{}", "", " {} ", "{} і далі\n", "БЛ"])
@pytest.mark.parametrize(("prefix", "target"), ITEMS.values(), ids=ITEMS)
def test_mirons_lengths_are_those_of_the_texts_as_they_lie(prefix: str, target: str, written: str) -> None:
    others = ("  ", " the cat ", "ый")
    generated = written.format(target)
    metrics = scored_item(Cloze(0, "0", prefix, target, "Facts", others), generated).metrics
    longest = max(len(generated), len(target))
    assert metrics["lev_score"] == pytest.approx(100 * (1 - edits(generated, target) / longest), rel=FLOAT32)
    card = logprobs(ids_of(prefix + target), len(ids_of(prefix)))
    confidence = 100 * math.exp(sum(card) / len(card)) if card else 0.0
    assert metrics["target_confidence"] == pytest.approx(confidence, rel=FLOAT32)
    nats = spelled_nats(prefix, target)
    assert metrics["bits_per_char"] == pytest.approx(-nats / math.log(2) / len(target), rel=FLOAT32)
    assert metrics["bits_per_byte"] == pytest.approx(-nats / math.log(2) / len(target.encode()), rel=FLOAT32)
    rates = [spelled_nats(prefix, other) / len(other) for other in others]
    assert metrics["contrast_accuracy"] == float(nats / len(target) > max(rates))
