"""Does the Gauntlet come out as its reference computes it?  Real weights, real files, float32.

    python benchmarks/parity_gauntlet.py --model=FOLDER --data_dir=BUNDLE --yamls=FOLDER --limit=20

The other side is written here for this purpose, from the published yaml files and the data files, and shares no line with
the package: it strips, draws, words and tokenizes by itself, and torch then runs one option a forward, behind what all of
an item's options begin with, or one question with its text.  Where each token of a text is the most probable one behind
those before it, greedy decoding draws that text.  Compared, for the first items of every benchmark that has a file (of
every category):

    token ids    every request's, and where its span begins
    options      the chosen one; two whose losses lie closer than twice the tolerance may differ and are listed
    texts        every drawn token, until two logits lie closer than the tolerance; then whether the answer is right

Exit status 1 where anything else differs.  The last line is JSON.
"""

import copy
import json
import random
import re
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from absl import flags
from common import Answers, PlainTorch, environment, run, say

from miron_jax.config import RunConfig
from miron_jax.evaluation.records import Inputs
from miron_jax.inputs import find_inputs
from miron_jax.prompting.prompts import render
from miron_jax.run import evaluate
from miron_jax.task_kinds.choice import ChoiceScores
from miron_jax.task_kinds.generation import GenerationScores
from miron_jax.tokens.answer_requests import answer_requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_string("yamls", None, "Folder of tasks_v0.1.yaml.", required=True)
flags.DEFINE_list("labels", [], "Benchmarks, such as arc_easy; all whose files are there when empty.")
flags.DEFINE_integer("limit", 20, "Items of each benchmark, or of each of its categories.", lower_bound=1)
flags.DEFINE_integer("max_length", 1024, "Tokens of a request.")
flags.DEFINE_float("tolerance", 1e-4, "Nats that losses, and logits, may differ by.")


class Asked(NamedTuple):
    """An item as the reference would send it to the model."""

    options: list[tuple[list[int], int]]  # token ids and first scored one; of a question: its prompt, nothing scored
    gold: int
    accepted: set[str]


class Answered(NamedTuple):
    """What the reference side found."""

    losses: list[float]  # mean nats, one an option
    right: bool
    chosen: int | None
    tokens: list[int]  # drawn, of a question
    margin_V: np.ndarray | None  # of a question: at the last of these tokens, the largest logit less every other


# The other side


class Reference:
    """composer 0.17.2's in-context-learning data sets, written anew and slowly."""

    def __init__(self, entry: dict[str, Any], folder: Path, tokenizer: Any, max_length: int):
        self.kind = entry["icl_task_type"]
        self.label = entry["label"]
        self.delimiter = entry.get("continuation_delimiter", " ")
        self.before = "Q: " if self.label == "aqua" else entry.get("question_prelimiter", "")
        self.reasoning_end = entry.get("cot_delimiter", "")
        self.shots = entry["num_fewshot"][0]
        self.tokenizer, self.max_length = tokenizer, max_length
        self.spaced = len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1
        lines = (folder / entry["dataset_uri"].split("local_data/")[1]).read_text(encoding="utf-8").split("\n")
        self.raw = [json.loads(line) for line in lines if line]
        self.rows = [{k: v.strip() if isinstance(v, str) else v for k, v in row.items()} for row in self.raw]
        self.groups: dict[str, list[int]] = {}
        for i, row in enumerate(self.rows):
            self.groups.setdefault(row["category"] if entry.get("has_categories") else "", []).append(i)
        self.new_tokens = self._room() if self.kind == "question_answering" else 0

    def items(self, limit: int) -> Iterator[Asked]:
        for members in self.groups.values():
            stream = random.Random(1234)
            for place in range(min(limit, len(members))):
                shown = [self.rows[members[i]] for i in self._draw(stream, place, len(members))]
                yield self._ask(members[place], "\n".join(self._worked(row) for row in shown))

    def _draw(self, stream: random.Random, place: int, count: int) -> set[int]:
        drawn = set(stream.sample(range(0, count), min(count - 1, self.shots)))
        if place in drawn:
            drawn.remove(place)
            if len(drawn) >= count - 1:
                return drawn
            while True:
                other = stream.choice(range(0, count))
                if other not in drawn and other != place:
                    break
            drawn.add(other)
        return drawn

    def _answer(self, row: dict[str, Any], answer: str) -> str:
        reasoning = row.get("chain_of_thought", "")
        return f"{reasoning}{self.reasoning_end}{answer}" if reasoning else answer

    def _worked(self, row: dict[str, Any]) -> str:
        match self.kind:
            case "multiple_choice":
                return f"{row['query']}{self.delimiter}{row['choices'][row['gold']]}"
            case "schema":
                return f"{row['context_options'][row['gold']]}{self.delimiter}{row['continuation']}"
            case "language_modeling":
                return f"{row['context']}{self.delimiter}{row['continuation']}"
            case _:
                return f"{self.before}{row['context']}{self.delimiter}{self._answer(row, row['answer'])}"

    def _ask(self, index: int, preamble: str) -> Asked:
        row, newline, end = self.rows[index], "\n" if preamble else "", self.delimiter.rstrip()
        match self.kind:
            case "multiple_choice":
                pairs = [(f"{newline}{row['query']}{end}", choice) for choice in row["choices"]]
            case "schema":
                closing = end if preamble else ""
                pairs = [(f"{newline}{own}{closing}", row["continuation"]) for own in row["context_options"]]
            case "language_modeling":
                pairs = [(f"{newline}{row['context']}{end}", row["continuation"])]
            case _:
                prompt = self._ids(preamble, f"{newline}{self.before}{row['context']}{end}")
                kept = prompt[-(self.max_length - self.new_tokens) :]
                return Asked([(kept, len(kept))], 0, {self.raw[index]["answer"], *row.get("aliases", [])})
        options = []
        for context, continuation in pairs:
            spaced = f" {continuation}" if self.spaced and continuation[0] != " " else continuation
            after = self.tokenizer(spaced, add_special_tokens=False)["input_ids"]
            kept = self._ids(preamble, context)[-(self.max_length - len(after)) :]
            options.append((kept + after, len(kept)))
        return Asked(options, int(row.get("gold", 0)), set())

    def _ids(self, preamble: str, context: str) -> list[int]:
        opened = self.tokenizer(preamble)["input_ids"]
        if len(opened) > 1 and opened[-1] == self.tokenizer.eos_token_id:
            opened = opened[:-1]
        return opened + self.tokenizer(context, add_special_tokens=False)["input_ids"]

    def _room(self) -> int:
        texts = [self._answer(row, answer) for row in self.rows for answer in (row["answer"], *row.get("aliases", []))]
        return max(len(self.tokenizer(text)["input_ids"]) for text in texts) + 10 * bool(self.reasoning_end)

    def answer(self, asked: Asked, torch: PlainTorch, ours: Sequence[int]) -> Answered:
        if self.kind == "question_answering":
            return self._write(asked, torch, ours)
        found = options(torch, asked.options)
        losses = [np.float32(-own.logprob[0].astype(np.float32).mean(dtype=np.float32)) for own in found]
        if self.kind == "language_modeling":
            return Answered([float(loss) for loss in losses], bool(found[0].greedy[0].all()), None, [], None)
        with np.errstate(over="ignore"):
            perplexities = [float(np.exp(loss)) for loss in losses]
        chosen = perplexities.index(min(perplexities))
        return Answered([float(loss) for loss in losses], chosen == asked.gold, chosen, [], None)

    def _write(self, asked: Asked, torch: PlainTorch, ours: Sequence[int]) -> Answered:
        """The greedy text: `ours` as far as each token is torch's most probable one behind those before it, then torch's."""
        prompt = asked.options[0][0]
        row = np.asarray([*prompt, *ours[: self.new_tokens - 1]])
        with torch.torch.inference_mode():
            logits_TV = torch.logits([row])[0, len(prompt) - 1 :].float()
        best = logits_TV.argmax(dim=-1).tolist()
        eos = self.tokenizer.eos_token_id
        tokens: list[int] = []
        while len(tokens) < self.new_tokens and eos not in tokens and tokens == list(ours[: len(tokens)]):
            tokens.append(best[len(tokens)])
        last = logits_TV[len(tokens) - 1]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Answered([], self.judged(text, asked.accepted), None, tokens, (last.max() - last).numpy())

    def judged(self, text: str, accepted: set[str]) -> bool:
        answer = text.split(self.reasoning_end)[-1] if self.reasoning_end else text
        return any(plain(answer).startswith(plain(own)) for own in accepted)


def options(torch: PlainTorch, asked: Sequence[tuple[list[int], int]]) -> list[Answers]:
    """One option a forward, behind what all of them begin with, which torch keeps."""
    rows = [np.asarray(ids) for ids, _ in asked]
    alike = 0
    while alike < min(start for _, start in asked) - 1 and len({int(row[alike]) for row in rows}) == 1:
        alike += 1
    if len(rows) == 1 or alike < 1:
        return [torch.batch([row], [start]) for row, (_, start) in zip(rows, asked, strict=True)]
    found = []
    with torch.torch.inference_mode():
        kept = torch.model(torch.torch.tensor(rows[0][None, :alike]), use_cache=True, logits_to_keep=1).past_key_values
        for row, (_, start) in zip(rows, asked, strict=True):
            rest = torch.torch.tensor(row[None, alike:])
            logits_TV = torch.model(rest, past_key_values=copy.deepcopy(kept)).logits[0, start - 1 - alike : -1].float()
            target_T = rest[0, start - alike :]
            logprob_T = logits_TV.log_softmax(dim=-1).gather(1, target_T[:, None])[:, 0]
            found.append(Answers([logprob_T.numpy()], [(logits_TV.argmax(dim=-1) == target_T).numpy()]))
    return found


def plain(text: str) -> str:
    text = text.replace("_", " ").lower()
    text = "".join(" " if c in set(string.punctuation + "\u2018\u2019\u00b4`") else c for c in text)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


# Both sides


class Found(NamedTuple):
    items: int
    wrong: list[str]
    close: list[str]  # differ, but lie closer than the tolerance
    largest: float  # nats between two losses
    accuracy: float
    drawn: int  # tokens


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    labels = ",".join(f"gauntlet/{label}" for label in FLAGS.labels) or "gauntlet"
    config = RunConfig(
        FLAGS.model, (labels,) if "," not in labels else tuple(labels.split(",")),
        data_dir=(("", FLAGS.data_dir),), limit=FLAGS.limit, max_length=FLAGS.max_length,
    )  # fmt: skip
    inputs = find_inputs(config)
    outcome = evaluate(config, inputs, say)
    say(f"this engine: {time.perf_counter() - start:.1f} s")
    tokenizer, torch = load_tokenizer(FLAGS.model), PlainTorch.load(FLAGS.model, "float32")
    torch.model.generation_config.eos_token_id = torch.model.config.eos_token_id
    entries = yaml.safe_load((Path(FLAGS.yamls) / "tasks_v0.1.yaml").read_text())["icl_tasks"]
    by_label = {entry["label"]: entry for entry in entries}
    folder = inputs.suites[0].locate(Path(FLAGS.data_dir), False)
    found: dict[str, Found] = {}
    for task, source in zip(outcome.tasks, inputs.sources, strict=True):
        assert isinstance(task, ChoiceScores | GenerationScores)
        lap, label = time.perf_counter(), source.task.name.partition("/")[2]
        reference = Reference(by_label[label], folder, tokenizer, FLAGS.max_length)
        found[label] = own = compare(task, reference, list(tokens_here(source, tokenizer)), torch)
        say(
            f"{label:36} {own.items:4} items  accuracy {own.accuracy:.3f}  wrong {len(own.wrong)}  close {len(own.close)}  "
            f"largest {own.largest:.1e}  {time.perf_counter() - lap:6.1f} s"
        )
    report(found, inputs, time.perf_counter() - start)


def tokens_here(source: Any, tokenizer: Any) -> Iterator[list[tuple[list[int], int]]]:
    """Each item's options as this package sends them: token ids and first scored one."""
    task, prompts = source.task, render(source.task, source.examples, FLAGS.limit)
    if source.task.kind == "generation":
        asked = answer_requests(prompts, source.examples, task.profile, tokenizer, FLAGS.max_length, task.name)
        yield from ([(list(ids), len(ids))] for ids in asked.prompts)
        return
    requests = iter(tokenize(prompts, task.profile, tokenizer, FLAGS.max_length, task.name))
    for prompt in prompts:
        yield [(tokens.tolist(), start) for tokens, start in (next(requests) for _ in prompt.contexts)]


def compare(
    task: ChoiceScores | GenerationScores,
    reference: Reference,
    tokens: list[list[tuple[int, int]]] | Any,
    torch: PlainTorch,
) -> Found:
    wrong: list[str] = []
    close: list[str] = []
    largest, right, drawn, items = 0.0, 0, 0, 0
    differ: Callable[..., tuple[str | None, bool]] = _texts if isinstance(task, GenerationScores) else _choices
    for i, asked in enumerate(reference.items(FLAGS.limit)):
        items += 1
        if asked.options != tokens[i]:
            wrong.append(f"{reference.label}, item {i}: other token ids")
            continue
        theirs = reference.answer(asked, torch, task.drawn[i] if isinstance(task, GenerationScores) else ())
        if isinstance(task, ChoiceScores):
            ours = [-float(choice.logprob.mean(dtype=np.float32)) for choice in task.choices[i]]
            if not np.isfinite([*ours, *theirs.losses]).all():
                wrong.append(f"{reference.label}, item {i}: a loss is not finite")
            largest = max([largest, *(abs(a - b) for a, b in zip(ours, theirs.losses, strict=True))])
        line, is_close = differ(task, i, theirs, reference)
        if line:
            (close if is_close else wrong).append(f"{reference.label}, item {i}: {line}")
        right, drawn = right + bool(task.examples[i].correct), drawn + len(theirs.tokens)
    if len(task.examples) != items:
        wrong.append(f"{reference.label}: {len(task.examples)} items here, {items} there")
    if largest > FLAGS.tolerance:
        wrong.append(f"{reference.label}: losses differ by {largest:.1e} nats")
    return Found(items, wrong, close, largest, right / max(1, items), drawn)


def _choices(task: ChoiceScores, i: int, theirs: Answered, reference: Reference) -> tuple[str | None, bool]:
    example = task.examples[i]
    if example.correct is theirs.right and example.prediction == theirs.chosen:
        return None, False
    if theirs.chosen is None or example.prediction is None:
        return f"right {example.correct} here, {theirs.right} there", False
    gap = abs(theirs.losses[theirs.chosen] - theirs.losses[example.prediction])
    return f"option {example.prediction} here, {theirs.chosen} there, {gap:.1e} nats apart", gap < 2 * FLAGS.tolerance


def _texts(task: GenerationScores, i: int, theirs: Answered, reference: Reference) -> tuple[str | None, bool]:
    ours = list(task.drawn[i])
    eos = reference.tokenizer.eos_token_id
    other = theirs.tokens[:-1] if theirs.tokens and theirs.tokens[-1] == eos else theirs.tokens
    if ours == other:
        if task.examples[i].correct is not theirs.right:
            return f"the same text is judged {task.examples[i].correct} here, {theirs.right} there", False
        return None, False
    step = len(theirs.tokens) - 1  # torch goes no further than where the texts part
    token = ours[step] if step < len(ours) else eos
    assert theirs.margin_V is not None
    gap = float(theirs.margin_V[token])
    return f"texts part at token {step}, where the logits lie {gap:.1e} apart", gap < FLAGS.tolerance


def report(found: dict[str, Found], inputs: Inputs, seconds: float) -> None:
    wrong = [line for own in found.values() for line in own.wrong]
    close = [line for own in found.values() for line in own.close]
    for title, lines in ((f"differ, but lie closer than {FLAGS.tolerance:g}", close), ("WRONG", wrong)):
        if lines:
            print("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    numbers = {
        "benchmark": "parity_gauntlet",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "max_length": FLAGS.max_length,
        "tolerance": FLAGS.tolerance,
        "benchmarks": len(found),
        "items": sum(own.items for own in found.values()),
        "drawn_tokens": sum(own.drawn for own in found.values()),
        "largest": max(own.largest for own in found.values()),
        "accuracy": {label: own.accuracy for label, own in found.items()},
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
