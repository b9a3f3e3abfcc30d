"""What the benchmarks share: real items, this engine, the plain torch way, and the record of the machine.

Arrives: a model folder, a data folder.  Leaves: `Work` (items, tokenized once for all engines) and `Answers` to it.
It deliberately does not know what is compared or timed: each benchmark says that itself.
"""

import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, logging

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import Example, Task
from miron_jax.metrics.choices import score_choices, score_continuation
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.runtime.backend import set_backend_flags
from miron_jax.tasks import core
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.requests import tokenize

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
set_backend_flags()  # before jax starts a backend

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from miron_jax.engine.batches import Shape  # noqa: E402
from miron_jax.engine.forward import Forward  # noqa: E402
from miron_jax.engine.model import Model, Speed  # noqa: E402
from miron_jax.engine.scores import score_planned  # noqa: E402
from miron_jax.engine.self_check import SelfCheck  # noqa: E402
from miron_jax.model.costs import cost_model, useful_flops  # noqa: E402
from miron_jax.planning.request_batches import RequestBatch, Totals, plan_request_batches, select  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")  # bfloat16 operands are not touched by it

REPOSITORY = Path(__file__).resolve().parent.parent


class Source(NamedTuple):
    """A task whose data file is there."""

    task: Task
    examples: list[Example]
    state: str  # "as published" or "changed"


class Work(NamedTuple):
    """Some examples of one task, ready for any engine."""

    task: Task
    prompts: list[Prompt]
    requests: Requests
    first: np.ndarray  # int64 [prompts + 1], the first request of each prompt

    @property
    def plain_tokens(self) -> int:
        """Tokens that go through a model which runs one row a request; the last token is a target only."""
        return len(self.requests.token_ids) - len(self.requests)


class Answers(NamedTuple):
    """One entry a request; arrays cover the scored span."""

    logprob: list[np.ndarray]  # float, nats
    greedy: list[np.ndarray]  # bool, the token is the most probable one


def read_tasks(data_dir: str, labels: Sequence[str]) -> list[Source]:
    """CORE tasks of these labels (all when empty) whose files are there, in published order."""
    folder = core.locate(Path(data_dir))
    tasks = {task.name.partition("/")[2]: task for task in core.SUITE.tasks}
    if unknown := set(labels) - tasks.keys():
        sys.exit(f"--tasks: {', '.join(sorted(unknown))} not among {', '.join(tasks)}")
    wanted = [tasks[label] for label in tasks if not labels or label in labels]
    states = {task.name: data_state(task, folder).state for task in wanted}
    return [
        Source(task, read_examples(task, folder, allow_changed=True), states[task.name])
        for task in wanted
        if states[task.name] != "missing"
    ]


def prepare(
    source: Source, limit: int | None, tokenizer: Any, max_length: int | None, num_fewshot: int | None = None
) -> Work:
    """Render and tokenize; `num_fewshot` overrides the suite's own count."""
    task = source.task
    if num_fewshot is not None:
        task = replace(task, profile=replace(task.profile, num_fewshot=num_fewshot))
    prompts = render(task, source.examples, limit)
    requests = tokenize(prompts, task.profile, tokenizer, max_length, task.name)
    return Work(task, prompts, requests, _first_requests(prompts))


def every(work: Work, step: int) -> Work:
    """Every step-th example, the first one included."""
    prompts = work.prompts[::step]
    chosen = np.concatenate([np.arange(work.first[i], work.first[i + 1]) for i in range(0, len(work.prompts), step)])
    return Work(work.task, prompts, select(work.requests, chosen), _first_requests(prompts))


def _first_requests(prompts: Sequence[Prompt]) -> np.ndarray:
    return np.cumsum([0, *(len(prompt.continuations) for prompt in prompts)])


def joined(works: Sequence[Work]) -> Requests:
    return concatenate([work.requests for work in works])


def split(works: Sequence[Work], answers: Answers) -> list[Answers]:
    """Answers to the joined works -> answers to each."""
    stops = np.cumsum([0, *(len(work.requests) for work in works)])
    return [Answers(answers.logprob[a:b], answers.greedy[a:b]) for a, b in itertools.pairwise(stops)]


def predictions(work: Work, answers: Answers) -> list[int | None]:
    """The chosen option of each example; where nothing is chosen, 1 if the continuation is all greedy, else 0."""
    found: list[int | None] = []
    for prompt, a, b in zip(work.prompts, work.first[:-1], work.first[1:], strict=True):
        if prompt.gold is None:
            ranks = 1 - answers.greedy[a].astype(np.int32)
            correct = score_continuation(answers.logprob[a], ranks, prompt.continuations[0]).correct
            found.append(None if correct is None else int(correct))
        else:
            found.append(score_choices(answers.logprob[a:b], prompt.continuations, prompt.gold).prediction)
    return found


class _NoCheck(SelfCheck):
    """The self-check re-scores a share of the requests; where time is taken, and beside peers that have none, it rests."""

    def compare(self, model: Any, batch: Any, scores: Any, judge: bool = True) -> None:
        pass


class EngineRun(NamedTuple):
    answers: Answers
    totals: Totals
    device_seconds: float
    batches: Counter[Shape]  # batches run of each shape


class Engine:
    """miron_jax on one model.  Compiled programs stay from run to run."""

    def __init__(self, model: Model, token_budget: int | None = None, max_lengths: int = 8):
        self.model = model
        self.forward = Forward(model, token_budget, lambda line: print(f"  {line}", flush=True))
        self.cost = cost_model(model.config, max_lengths)

    @property
    def speed(self) -> Speed:
        return self.forward.speed

    def compile(self, requests: Requests) -> None:
        """Compile everything that a run over these requests needs, and start one batch."""
        for batch in plan_request_batches(iter([requests]), self.cost, Totals()):
            self.forward.compile(batch.plan)
            next(self.forward.run(batch.plan), None)

    def score(self, parts: Iterator[Requests]) -> EngineRun:
        totals, before, batches = Totals(), self.speed.device_seconds, self.speed.batches.copy()
        logprob, greedy = [], []
        planned = self._counted(plan_request_batches(parts, self.cost, totals), totals)
        for scores in score_planned(planned, self.forward, _NoCheck(tolerance=np.inf)):
            logprob += [score.logprob for score in scores]
            greedy += [score.rank == 0 for score in scores]
        seconds = self.speed.device_seconds - before
        return EngineRun(Answers(logprob, greedy), totals, seconds, self.speed.batches - batches)

    def _counted(self, batches: Iterator[RequestBatch], totals: Totals) -> Iterator[RequestBatch]:
        for batch in batches:
            totals.useful_flops += useful_flops(self.model.config, batch.plan)
            yield batch


def weight_bytes(model: Model) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(model.state))


def layer_kernels(model: Model) -> list[np.ndarray]:
    """The layers' matrices, each [layers, in, out]."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.state) if leaf.ndim == 3]


def bare_matmuls(kernels: Sequence[np.ndarray], places: int, dtype: str = "float32") -> Callable[[], Any]:
    """One pass over all layers: a scan, as the decoder does, whose body is the layer's weight matmuls and nothing else.

    Every product lands in the carry, so none can be dropped, and none depends on another, so nothing overflows.
    """
    stacked = [jnp.asarray(kernel) for kernel in kernels]
    inputs = {kernel.shape[1]: jnp.ones((places, kernel.shape[1]), dtype) for kernel in kernels}

    @jax.jit
    def run(stacked: list[jax.Array], inputs: dict[int, jax.Array]) -> list[jax.Array]:
        def layer(_: list[jax.Array], own: list[jax.Array]) -> tuple[list[jax.Array], None]:
            return [jnp.dot(inputs[w.shape[0]], w, preferred_element_type=jnp.float32) for w in own], None

        empty = [jnp.zeros((places, kernel.shape[2]), jnp.float32) for kernel in kernels]
        return jax.lax.scan(layer, empty, stacked)[0]

    return lambda: jax.block_until_ready(run(stacked, inputs))


@dataclass
class PlainTorch:
    """A transformers model run the plain way: rows in, full logits out."""

    model: Any
    torch: Any
    device: str

    @classmethod
    def load(cls, folder: str, dtype: str, device: str = "cpu") -> "PlainTorch":
        import torch
        import transformers
        from transformers import AutoModelForCausalLM

        transformers.utils.logging.disable_progress_bar()
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        return cls(model.to(device).eval(), torch, device)

    def logits(self, rows: Sequence[np.ndarray]) -> Any:
        """[rows, longest, V]; short rows are padded on the right, where causal attention never looks."""
        longest = max(map(len, rows))
        ids_BT = np.zeros((len(rows), longest), np.int64)
        for b, row in enumerate(rows):
            ids_BT[b, : len(row)] = row
        return self.model(self.torch.tensor(ids_BT, device=self.device), use_cache=False).logits

    def batch(self, rows: Sequence[np.ndarray], starts: Sequence[int]) -> Answers:
        """Score rows as one batch the way nanochat does: loss and argmax at every place, then the span is cut out."""
        torch = self.torch
        with torch.inference_mode():
            logits_BTV = self.logits(rows)[:, :-1]
            longest = logits_BTV.shape[1] + 1
            target_BT = torch.zeros((len(rows), longest - 1), dtype=torch.long)
            for b, row in enumerate(rows):
                target_BT[b, : len(row) - 1] = torch.from_numpy(row[1:].astype(np.int64))
            target_BT = target_BT.to(self.device)
            loss_N = torch.nn.functional.cross_entropy(
                logits_BTV.reshape(-1, logits_BTV.shape[-1]).float(), target_BT.reshape(-1), reduction="none"
            )
            loss_BT = loss_N.reshape(target_BT.shape).cpu().numpy()
            greedy_BT = (logits_BTV.argmax(dim=-1) == target_BT).cpu().numpy()
        spans = [slice(start - 1, len(row) - 1) for row, start in zip(rows, starts, strict=True)]
        return Answers(
            [-loss_BT[b, span] for b, span in enumerate(spans)], [greedy_BT[b, span] for b, span in enumerate(spans)]
        )

    def by_example(self, works: Sequence[Work]) -> list[Answers]:
        """One example a forward, its options one padded batch."""
        answers = []
        for work in works:
            own = Answers([], [])
            for a, b in zip(work.first[:-1], work.first[1:], strict=True):
                requests = range(int(a), int(b))
                found = self.batch(
                    [work.requests.tokens(r) for r in requests], [int(work.requests.span_start[r]) for r in requests]
                )
                own.logprob.extend(found.logprob)
                own.greedy.extend(found.greedy)
            answers.append(own)
        return answers


class LmEval:
    """lm-eval's Hugging Face backend around a torch model; where lm-eval is not installed there is none."""

    @classmethod
    def around(cls, torch: PlainTorch, tokenizer: Any) -> "LmEval | None":
        return cls(torch, tokenizer) if importlib.util.find_spec("lm_eval") else None

    def __init__(self, torch: PlainTorch, tokenizer: Any):
        backend: Any = importlib.import_module("lm_eval.models.huggingface").HFLM
        self.backend = backend(pretrained=torch.model, tokenizer=tokenizer, backend="causal", batch_size=1)

    def score(self, requests: Requests, batch_size: int) -> Answers:
        # It asserts that a continuation has tokens; a choice that begins another has none scored.
        asked = [r for r, (ids, start) in enumerate(requests) if start < len(ids)]
        pairs = [
            (("", ""), ids[:start].tolist(), ids[start:].tolist())
            for ids, start in ((requests.tokens(r), int(requests.span_start[r])) for r in asked)
        ]
        self.backend.batch_size_per_gpu = batch_size
        found = self.backend._loglikelihood_tokens(pairs, disable_tqdm=True)
        # It tells sums only: the mean stands for every token, and one flag for all of them.
        logprob, greedy = [np.zeros(0)] * len(requests), [np.zeros(0, bool)] * len(requests)
        for r, (total, all_greedy) in zip(asked, found, strict=True):
            count = len(requests.tokens(r)) - int(requests.span_start[r])
            logprob[r], greedy[r] = np.full(count, total / count), np.full(count, all_greedy)
        return Answers(logprob, greedy)


def padded_by_length(requests: Requests, batch_size: int) -> int:
    """Places that lm-eval runs: rows sorted by length, one row for requests equal up to their last token."""
    rows = {ids[:-1].tobytes(): len(ids) - 1 for ids, start in requests if start < len(ids)}
    lengths = sorted(rows.values(), reverse=True)
    return sum(lengths[i] * len(lengths[i : i + batch_size]) for i in range(0, len(lengths), batch_size))


def padded_by_example(works: Sequence[Work]) -> int:
    """Places that `PlainTorch.by_example` runs: every option as long as its example's longest."""
    total = 0
    for work in works:
        length = np.diff(work.requests.offsets)
        longest = np.maximum.reduceat(length, work.first[:-1])
        total += int((longest * np.diff(work.first)).sum())
    return total


def train_tokenizer(texts: Iterator[str] | Sequence[str], vocab_size: int, folder: Path) -> Any:
    """A byte-level BPE tokenizer trained on these texts, saved as a transformers folder."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    tokenizer.save_pretrained(str(folder))
    return tokenizer


def run(main: Callable[[Sequence[str]], None]) -> None:
    """absl's app.run without jax's notes on the backends that it looked for."""

    def quiet(arguments: Sequence[str]) -> None:
        logging.set_verbosity(logging.WARNING)
        main(arguments)

    app.run(quiet)


def seconds_of(action: Callable[[], Any]) -> tuple[float, Any]:
    """Wall seconds of a call, and what it returned."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def say(line: str) -> None:
    """Progress that shows at once, also through a pipe."""
    print(line, flush=True)


def environment() -> dict[str, Any]:
    """Everything a reader needs to repeat or doubt a number."""
    device = jax.devices()[0]
    return {
        "command": " ".join([Path(sys.executable).name, *map(_without_place, sys.argv)]),
        "device": device.device_kind,
        "platform": device.platform,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("jax", "jaxlib", "flax", "transformers", "torch", "lm-eval")},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "commit": _commit(),
    }


def _without_place(argument: str) -> str:
    """A flag without the folders above what it names: where those lie is this machine's own affair."""
    flag, equals, value = argument.partition("=")
    return f"{flag}={Path(value).name}" if equals and value.startswith("/") else argument


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    return commit and commit + ("-changed" if git("status", "--porcelain") else "")
