"""Does the Gauntlet come out as its reference computes it?  Real weights, real files, float32.

    python benchmarks/parity_gauntlet.py --model=FOLDER --data_dir=BUNDLE --yamls=FOLDER --limit=20

The reference is written here for this purpose, from the published yaml files and the data files,
and shares no line with the package: it strips, samples shots, renders and tokenizes by itself.
Torch then runs one choice a forward, after a prefix that all of an item's choices share, or one
question with this engine's completion, which is greedy as far as each of its tokens is torch's most
probable one.  Compared, for the first items of every benchmark that has a file (of every category):

    token ids    every request's, and where its span begins
    choices      the chosen one; two whose losses are closer than twice the tolerance may differ and are listed
    completions  every token, until two logits are closer than the tolerance; then whether the answer is right

Exit status 1 if anything else differs.  The last line is JSON.
"""  # noqa: E501

import copy
import json
import random
import re
import string
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from absl import flags
from agreement import say_lists
from common import PRINTED, Answers, environment, run, say
from peers import PlainTorch

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.task_kinds.choice import ChoiceRow
from miron_jax.evaluation.task_kinds.generation import GenerationRow
from miron_jax.evaluation.task_kinds.interface import LoadedTask, ScoredRow
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import render
from miron_jax.tokens.answer_requests import answer_requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_string("yamls", None, "Folder of tasks_v0.1.yaml.", required=True)
flags.DEFINE_list(
    "labels", [], "Benchmarks, such as arc_easy; all whose files are there when empty."
)
flags.DEFINE_integer(
    "limit", 20, "Items of each benchmark, or of each of its categories.", lower_bound=1
)
flags.DEFINE_integer("max_length", 1024, "Tokens of a request.")
flags.DEFINE_float("tolerance", 1e-4, "Nats that losses, and logits, may differ by.")


TokenChoices = list[tuple[list[int], int]]  # of each choice: token ids and the first scored one


class ReferenceItem(NamedTuple):
    """An item as the reference would send it to the model."""

    choices: TokenChoices  # of a question: its prompt, nothing scored
    gold: int
    accepted: set[str]


class ReferenceAnswer(NamedTuple):
    losses: list[float]  # mean nats of each choice
    right: bool
    chosen: int | None
    tokens: list[int]  # generated for a question
    # of a question: at the last of these tokens, the largest logit less every other
    margin_V: np.ndarray | None


# The reference


class Reference:
    """composer 0.17.2's in-context-learning data sets, written a second time and plainly."""

    def __init__(self, entry: JsonObject, folder: Path, tokenizer: Tokenizer, max_length: int):
        self.kind = entry["icl_task_type"]
        self.label = entry["label"]
        self.delimiter = entry.get("continuation_delimiter", " ")
        self.before = "Q: " if self.label == "aqua" else entry.get("question_prelimiter", "")
        self.reasoning_end = entry.get("cot_delimiter", "")
        self.shots = entry["num_fewshot"][0]
        self.tokenizer, self.max_length = tokenizer, max_length
        self.spaced = len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1
        lines = (
            (folder / entry["dataset_uri"].split("local_data/")[1])
            .read_text(encoding="utf-8")
            .split("\n")
        )
        self.raw = [json.loads(line) for line in lines if line]
        self.rows = [
            {k: v.strip() if isinstance(v, str) else v for k, v in row.items()} for row in self.raw
        ]
        self.groups: dict[str, list[int]] = {}
        for i, row in enumerate(self.rows):
            self.groups.setdefault(
                row["category"] if entry.get("has_categories") else "", []
            ).append(i)
        self.max_new_tokens = self._longest_answer() if self.kind == "question_answering" else 0

    def items(self, limit: int) -> Iterator[ReferenceItem]:
        for members in self.groups.values():
            stream = random.Random(1234)
            for i in range(min(limit, len(members))):
                shots = [self.rows[members[j]] for j in self._sample(stream, i, len(members))]
                yield self._item(members[i], "\n".join(self._shot(row) for row in shots))

    def _sample(self, stream: random.Random, question: int, count: int) -> set[int]:
        sampled = set(stream.sample(range(0, count), min(count - 1, self.shots)))
        if question in sampled:
            sampled.remove(question)
            if len(sampled) >= count - 1:
                return sampled
            while True:
                other = stream.choice(range(0, count))
                if other not in sampled and other != question:
                    break
            sampled.add(other)
        return sampled

    def _answer(self, row: JsonObject, answer: str) -> str:
        reasoning = row.get("chain_of_thought", "")
        return f"{reasoning}{self.reasoning_end}{answer}" if reasoning else answer

    def _shot(self, row: JsonObject) -> str:
        match self.kind:
            case "multiple_choice":
                return f"{row['query']}{self.delimiter}{row['choices'][row['gold']]}"
            case "schema":
                return f"{row['context_options'][row['gold']]}{self.delimiter}{row['continuation']}"
            case "language_modeling":
                return f"{row['context']}{self.delimiter}{row['continuation']}"
            case _:
                return f"{self.before}{row['context']}{self.delimiter}{self._answer(row, row['answer'])}"  # noqa: E501

    def _item(self, index: int, preamble: str) -> ReferenceItem:
        row, newline, end = self.rows[index], "\n" if preamble else "", self.delimiter.rstrip()
        match self.kind:
            case "multiple_choice":
                pairs = [(f"{newline}{row['query']}{end}", choice) for choice in row["choices"]]
            case "schema":
                closing = end if preamble else ""
                pairs = [
                    (f"{newline}{context}{closing}", row["continuation"])
                    for context in row["context_options"]
                ]
            case "language_modeling":
                pairs = [(f"{newline}{row['context']}{end}", row["continuation"])]
            case _:
                prompt = self._ids(preamble, f"{newline}{self.before}{row['context']}{end}")
                kept = prompt[-(self.max_length - self.max_new_tokens) :]
                return ReferenceItem(
                    [(kept, len(kept))], 0, {self.raw[index]["answer"], *row.get("aliases", [])}
                )
        choices = []
        for context, continuation in pairs:
            spaced = f" {continuation}" if self.spaced and continuation[0] != " " else continuation
            after = self.tokenizer(spaced, add_special_tokens=False)["input_ids"]
            kept = self._ids(preamble, context)[-(self.max_length - len(after)) :]
            choices.append((kept + after, len(kept)))
        return ReferenceItem(choices, int(row.get("gold", 0)), set())

    def _ids(self, preamble: str, context: str) -> list[int]:
        ids = self.tokenizer(preamble)["input_ids"]
        if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id:
            ids = ids[:-1]
        return ids + self.tokenizer(context, add_special_tokens=False)["input_ids"]

    def _longest_answer(self) -> int:
        texts = [
            self._answer(row, answer)
            for row in self.rows
            for answer in (row["answer"], *row.get("aliases", []))
        ]
        return max(len(self.tokenizer(text)["input_ids"]) for text in texts) + 10 * bool(
            self.reasoning_end
        )

    def answer(
        self, item: ReferenceItem, torch: PlainTorch, ours: Sequence[int]
    ) -> ReferenceAnswer:
        if self.kind == "question_answering":
            return self._complete(item, torch, ours)
        scored = score_choices(torch, item.choices)
        losses = [
            np.float32(-one.logprob[0].astype(np.float32).mean(dtype=np.float32)) for one in scored
        ]
        if self.kind == "language_modeling":
            return ReferenceAnswer(
                [float(loss) for loss in losses], bool(scored[0].greedy[0].all()), None, [], None
            )
        with np.errstate(over="ignore"):
            perplexities = [float(np.exp(loss)) for loss in losses]
        chosen = perplexities.index(min(perplexities))
        return ReferenceAnswer(
            [float(loss) for loss in losses], chosen == item.gold, chosen, [], None
        )

    def _complete(
        self, item: ReferenceItem, torch: PlainTorch, ours: Sequence[int]
    ) -> ReferenceAnswer:
        """The greedy completion: `ours` as far as each token is torch's most probable one, then one
        token of torch's."""
        prompt = item.choices[0][0]
        row = np.asarray([*prompt, *ours[: self.max_new_tokens - 1]])
        with torch.torch.inference_mode():
            logits_TV = torch.logits([row])[0, len(prompt) - 1 :].float()
        best = logits_TV.argmax(dim=-1).tolist()
        eos = self.tokenizer.eos_token_id
        tokens: list[int] = []
        while (
            len(tokens) < self.max_new_tokens
            and eos not in tokens
            and tokens == list(ours[: len(tokens)])
        ):
            tokens.append(best[len(tokens)])
        last = logits_TV[len(tokens) - 1]
        text = self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return ReferenceAnswer(
            [], self.is_right(text, item.accepted), None, tokens, (last.max() - last).numpy()
        )

    def is_right(self, text: str, accepted: set[str]) -> bool:
        answer = text.split(self.reasoning_end)[-1] if self.reasoning_end else text
        return any(plain(answer).startswith(plain(alias)) for alias in accepted)


def score_choices(torch: PlainTorch, choices: TokenChoices) -> list[Answers]:
    """One choice a forward, after the cached prefix that all of them share."""
    rows = [np.asarray(ids) for ids, _ in choices]
    shared = 0
    while (
        shared < min(start for _, start in choices) - 1
        and len({int(row[shared]) for row in rows}) == 1
    ):
        shared += 1
    if len(rows) == 1 or shared < 1:
        return [torch.batch([row], [start]) for row, (_, start) in zip(rows, choices, strict=True)]
    answers = []
    t = torch.torch
    with t.inference_mode():
        cache = torch.model(
            t.tensor(rows[0][None, :shared]), use_cache=True, logits_to_keep=1
        ).past_key_values
        for row, (_, start) in zip(rows, choices, strict=True):
            rest = t.tensor(row[None, shared:])
            logits_TV = (
                torch.model(rest, past_key_values=copy.deepcopy(cache))
                .logits[0, start - 1 - shared : -1]
                .float()
            )
            target_T = rest[0, start - shared :]
            logprob_T = logits_TV.log_softmax(dim=-1).gather(1, target_T[:, None])[:, 0]
            answers.append(
                Answers([logprob_T.numpy()], [(logits_TV.argmax(dim=-1) == target_T).numpy()])
            )
    return answers


def plain(text: str) -> str:
    text = text.replace("_", " ").lower()
    text = "".join(" " if c in set(string.punctuation + "\u2018\u2019\u00b4`") else c for c in text)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


# Both sides


class Comparison(NamedTuple):
    items: int
    wrong: list[str]
    close: list[str]  # differ, but by less than the tolerance
    largest: float  # nats between two losses
    accuracy: float
    num_new: int  # tokens of the reference's completions


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    labels = ",".join(f"gauntlet/{label}" for label in FLAGS.labels) or "gauntlet"
    config = RunConfig(
        FLAGS.model, tuple(labels.split(",")),
        data_dir=(("", FLAGS.data_dir),), limit=FLAGS.limit, max_length=FLAGS.max_length,
    )  # fmt: skip
    inputs = find_inputs(config)
    outcome = evaluate(config, inputs, PRINTED)
    say(f"this engine: {time.perf_counter() - start:.1f} s")
    tokenizer, torch = load_tokenizer(FLAGS.model), PlainTorch.load(FLAGS.model, "float32")
    torch.model.generation_config.eos_token_id = torch.model.config.eos_token_id
    entries = yaml.safe_load((Path(FLAGS.yamls) / "tasks_v0.1.yaml").read_text())["icl_tasks"]
    by_label = {entry["label"]: entry for entry in entries}
    folder = inputs.suites[0].locate(Path(FLAGS.data_dir), False)
    comparisons: dict[str, Comparison] = {}
    for task, source in zip(outcome.tasks, inputs.sources, strict=True):
        begin, label = time.perf_counter(), source.task.name.partition("/")[2]
        reference = Reference(by_label[label], folder, tokenizer, FLAGS.max_length)
        comparison = compare(task.rows, reference, list(package_choices(source, tokenizer)), torch)
        say(
            f"{label:36} {comparison.items:4} items  accuracy {comparison.accuracy:.3f}  wrong "
            f"{len(comparison.wrong)}  close {len(comparison.close)}  largest "
            f"{comparison.largest:.1e}  {time.perf_counter() - begin:6.1f} s"
        )
        comparisons[label] = comparison
    report(comparisons, inputs, time.perf_counter() - start)


def package_choices(source: LoadedTask, tokenizer: Tokenizer) -> Iterator[TokenChoices]:
    """Each item's choices as this package sends them to the model."""
    task, prompts = source.task, render(source.task, source.examples, FLAGS.limit)
    if task.kind == "generation":
        requests = answer_requests(
            prompts, source.examples, task.profile, tokenizer, FLAGS.max_length, task.name
        )
        yield from ([(list(ids), len(ids))] for ids in requests.prompts)
        return
    requests = iter(tokenize(prompts, task.profile, tokenizer, FLAGS.max_length, task.name))
    for prompt in prompts:
        yield [
            (tokens.tolist(), start) for tokens, start in (next(requests) for _ in prompt.contexts)
        ]


def compare(
    rows: Sequence[ScoredRow], reference: Reference, tokens: list[TokenChoices], torch: PlainTorch
) -> Comparison:
    wrong: list[str] = []
    close: list[str] = []
    largest, num_right, num_new = 0.0, 0, 0
    items = list(reference.items(FLAGS.limit))
    if len(items) != len(rows):
        wrong.append(f"{reference.label}: {len(rows)} items here, {len(items)} there")
    for i, (item, row) in enumerate(zip(items, rows, strict=False)):
        label = f"{reference.label}, item {i}"
        if item.choices != tokens[i]:
            wrong.append(f"{label}: other token ids")
            continue
        if isinstance(row, ChoiceRow):
            theirs = reference.answer(item, torch, ())
            ours = [-float(choice.logprob.mean(dtype=np.float32)) for choice in row.choices]
            if not np.isfinite([*ours, *theirs.losses]).all():
                wrong.append(f"{label}: a loss is not finite")
            largest = max(
                [largest, *(abs(a - b) for a, b in zip(ours, theirs.losses, strict=True))]
            )
            line, is_close = compare_choices(row, theirs)
        else:
            assert isinstance(row, GenerationRow)
            theirs = reference.answer(item, torch, row.completion.token_ids)
            line, is_close = compare_texts(row, theirs, reference.tokenizer.eos_token_id)
        if line:
            (close if is_close else wrong).append(f"{label}: {line}")
        num_right, num_new = num_right + bool(row.score.correct), num_new + len(theirs.tokens)
    if largest > FLAGS.tolerance:
        wrong.append(f"{reference.label}: losses differ by {largest:.1e} nats")
    return Comparison(len(items), wrong, close, largest, num_right / max(1, len(items)), num_new)


def compare_choices(row: ChoiceRow, theirs: ReferenceAnswer) -> tuple[str | None, bool]:
    """(what differs, whether the two losses are closer than twice the tolerance)."""
    example = row.score
    if example.correct is theirs.right and example.prediction == theirs.chosen:
        return None, False
    if theirs.chosen is None or example.prediction is None:
        return f"right {example.correct} here, {theirs.right} there", False
    gap = abs(theirs.losses[theirs.chosen] - theirs.losses[example.prediction])
    return (
        f"choice {example.prediction} here, {theirs.chosen} there, {gap:.1e} nats apart",
        gap < 2 * FLAGS.tolerance,
    )


def compare_texts(row: GenerationRow, theirs: ReferenceAnswer, eos: int) -> tuple[str | None, bool]:
    """(what differs, whether the logits of the first two tokens that differ are closer than the
    tolerance)."""
    ours = list(row.completion.token_ids)
    if ours == (theirs.tokens[:-1] if theirs.tokens[-1:] == [eos] else theirs.tokens):
        if row.score.correct is not theirs.right:
            return (
                f"the same text is judged {row.score.correct} here, {theirs.right} there",
                False,
            )
        return None, False
    step = len(theirs.tokens) - 1  # the reference ends at the first token that differs
    token = ours[step] if step < len(ours) else eos
    assert theirs.margin_V is not None
    gap = float(theirs.margin_V[token])
    return (
        f"texts part at token {step}, where the logits are {gap:.1e} apart",
        gap < FLAGS.tolerance,
    )


def report(comparisons: dict[str, Comparison], inputs: Inputs, seconds: float) -> None:
    wrong = [line for comparison in comparisons.values() for line in comparison.wrong]
    close = [line for comparison in comparisons.values() for line in comparison.close]
    say_lists({f"differ, but by less than {FLAGS.tolerance:g}": close, "WRONG": wrong})
    numbers = {
        "benchmark": "parity_gauntlet",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "max_length": FLAGS.max_length,
        "tolerance": FLAGS.tolerance,
        "benchmarks": len(comparisons),
        "items": sum(comparison.items for comparison in comparisons.values()),
        "drawn_tokens": sum(comparison.num_new for comparison in comparisons.values()),
        "largest": max(comparison.largest for comparison in comparisons.values()),
        "accuracy": {label: comparison.accuracy for label, comparison in comparisons.items()},
        "close": close,
        "wrong": wrong,
        "missing_files": sorted(inputs.missing),
        "seconds": round(seconds, 1),
        "environment": environment(),
    }
    print(json.dumps(numbers, allow_nan=False))
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
