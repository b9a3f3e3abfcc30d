"""What the benchmarks share: real items, this engine, and the record of the machine.

Arrives: a model folder, a data folder.  Leaves: `Work` (items, tokenized once for all engines) and
`Answers` to it.  It deliberately does not know what is compared or timed, nor other engines
(peers.py).
"""

import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from absl import app, logging

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import Task
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import score_choices, score_continuations
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.runtime.backend import set_backend_flags
from miron_jax.runtime.progress import Lines
from miron_jax.tasks import core
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import Tokenizer

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
set_backend_flags()  # before jax starts a backend

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from miron_jax.engine.batches import Shape  # noqa: E402
from miron_jax.engine.forward import Forward  # noqa: E402
from miron_jax.engine.model import ForwardSpeed, Model  # noqa: E402
from miron_jax.engine.scores import score_planned  # noqa: E402
from miron_jax.engine.self_check import Unchecked  # noqa: E402
from miron_jax.evaluation.task_kinds.interface import LoadedTask  # noqa: E402
from miron_jax.model.costs import cost_model, useful_flops  # noqa: E402
from miron_jax.planning.request_batches import RequestBatch, Totals, plan_request_batches, select  # noqa: E402

# bfloat16 operands are not touched by it
jax.config.update("jax_default_matmul_precision", "highest")

REPOSITORY = Path(__file__).resolve().parent.parent
Returned = TypeVar("Returned")


class Work(NamedTuple):
    """Some examples of one task, ready for any engine."""

    task: Task
    prompts: list[Prompt]
    requests: Requests
    first: np.ndarray  # int64 [prompts + 1], the first request of each prompt

    @property
    def plain_tokens(self) -> int:
        """Tokens that go through a model which runs one row a request; the last token is a target
        only."""
        return len(self.requests.token_ids) - len(self.requests)


class Answers(NamedTuple):
    """One entry a request; arrays cover the scored span."""

    logprob: list[np.ndarray]  # float, nats
    greedy: list[np.ndarray]  # bool, the token is the most probable one


def read_tasks(data_dir: str, labels: Sequence[str]) -> list[LoadedTask]:
    """CORE tasks of these labels (all when empty), in published order; a task without its file is
    left out."""
    folder = core.locate(Path(data_dir))
    tasks = {task.name.partition("/")[2]: task for task in core.SUITE.tasks}
    if unknown := set(labels) - tasks.keys():
        sys.exit(f"--tasks: {', '.join(sorted(unknown))} not among {', '.join(tasks)}")
    chosen = [tasks[label] for label in tasks if not labels or label in labels]
    states = {task.name: data_state(task, folder) for task in chosen}
    return [
        LoadedTask(task, read_examples(task, folder, allow_changed=True), states[task.name])
        for task in chosen
        if states[task.name].state != "missing"
    ]


def prepare(
    source: LoadedTask,
    limit: int | None,
    tokenizer: Tokenizer,
    max_length: int | None,
    num_fewshot: int | None = None,
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
    chosen = np.concatenate(
        [np.arange(work.first[i], work.first[i + 1]) for i in range(0, len(work.prompts), step)]
    )
    return Work(work.task, prompts, select(work.requests, chosen), _first_requests(prompts))


def _first_requests(prompts: Sequence[Prompt]) -> np.ndarray:
    return np.cumsum([0, *(len(prompt.continuations) for prompt in prompts)])


def joined(works: Sequence[Work]) -> Requests:
    return concatenate([work.requests for work in works])


def split(works: Sequence[Work], answers: Answers) -> list[Answers]:
    """Answers to the joined works -> answers to each."""
    stops = np.cumsum([0, *(len(work.requests) for work in works)])
    return [
        Answers(answers.logprob[a:b], answers.greedy[a:b]) for a, b in itertools.pairwise(stops)
    ]


def predictions(work: Work, answers: Answers) -> list[int | None]:
    """The chosen choice of each example; of an example without choices, 1 if the continuation is
    all greedy, else 0."""
    predicted: list[int | None] = []
    for prompt, a, b in zip(work.prompts, work.first[:-1], work.first[1:], strict=True):
        if prompt.gold is None:
            ranks = 1 - answers.greedy[a].astype(np.int32)
            span = Spans.of_each([answers.logprob[a]], [ranks])
            [score] = score_continuations(prompt.continuations, span)
            predicted.append(None if score.correct is None else int(score.correct))
        else:
            predicted.append(
                score_choices(answers.logprob[a:b], prompt.continuations, prompt.gold).prediction
            )
    return predicted


class EngineRun(NamedTuple):
    answers: Answers
    totals: Totals
    device_seconds: float
    batches: Counter[Shape]  # batches run of each shape


class Engine:
    """miron_jax on one model.  Compiled programs are kept from run to run."""

    def __init__(self, model: Model, token_budget: int | None = None, max_lengths: int = 8):
        self.model = model
        self.forward = Forward(model, token_budget, PRINTED)
        self.cost = cost_model(model.config, max_lengths)

    @property
    def speed(self) -> ForwardSpeed:
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
        for _, scores in score_planned(planned, self.forward, Unchecked(tolerance=np.inf)):
            logprob += [score.logprob for score in scores]
            greedy += [score.rank == 0 for score in scores]
        seconds = self.speed.device_seconds - before
        return EngineRun(Answers(logprob, greedy), totals, seconds, self.speed.batches - batches)

    def _counted(self, batches: Iterator[RequestBatch], totals: Totals) -> Iterator[RequestBatch]:
        for batch in batches:
            totals.useful_flops += useful_flops(self.model.config, batch.plan)
            yield batch


def layer_kernels(model: Model) -> list[np.ndarray]:
    """The layers' matrices, each [layers, in, out]."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.state) if leaf.ndim == 3]


def bare_matmuls(kernels: Sequence[np.ndarray], slots: int) -> Callable[[], list[jax.Array]]:
    """One pass over all layers, float32: a scan, as the decoder does, whose body is the layer's
    weight matmuls and nothing else.

    Every product is part of the carry, so none can be dropped; none depends on another, so nothing
    overflows.
    """
    stacked = [jnp.asarray(kernel) for kernel in kernels]
    inputs = {kernel.shape[1]: jnp.ones((slots, kernel.shape[1])) for kernel in kernels}

    @jax.jit
    def run(stacked: list[jax.Array], inputs: dict[int, jax.Array]) -> list[jax.Array]:
        def layer(_: list[jax.Array], weights: list[jax.Array]) -> tuple[list[jax.Array], None]:
            return [
                jnp.dot(inputs[w.shape[0]], w, preferred_element_type=jnp.float32) for w in weights
            ], None

        empty = [jnp.zeros((slots, kernel.shape[2]), jnp.float32) for kernel in kernels]
        return jax.lax.scan(layer, empty, stacked)[0]

    return lambda: jax.block_until_ready(run(stacked, inputs))


def train_tokenizer(
    texts: Iterator[str] | Sequence[str], vocab_size: int, folder: Path
) -> Tokenizer:
    """A byte-level BPE tokenizer trained on these texts, saved as a transformers folder."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        texts, vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False
    )
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


def seconds_of(action: Callable[[], Returned]) -> tuple[float, Returned]:
    """Wall seconds of a call, and what it returned."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def median_seconds(action: Callable[[], object], repeats: int) -> float:
    """Median wall seconds of a call after a warm-up."""
    action()
    return statistics.median(seconds_of(action)[0] for _ in range(repeats))


def run_eval(output: str | Path, *flags: str) -> JsonObject:
    """results.json of a `miron-jax eval` in a new process."""
    command = [
        sys.executable,
        "-m",
        "miron_jax.cli",
        "eval",
        f"--output={output}",
        "--allow_changed_data",
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"miron-jax eval failed:\n{done.stderr}")
    return json.loads((Path(output) / "results.json").read_text())


def say(line: str) -> None:
    """Print a line of progress without delay, also through a pipe."""
    print(line, flush=True)


PRINTED = Lines(say)  # a run's sentences and details


def environment() -> JsonObject:
    """What a reader needs to repeat or doubt a number: command, machine, versions, commit."""
    device = jax.devices()[0]
    return {
        "command": " ".join([Path(sys.executable).name, *map(_without_folders, sys.argv)]),
        "device": device.device_kind,
        "platform": device.platform,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            name: _version(name)
            for name in ("jax", "jaxlib", "flax", "transformers", "torch", "lm-eval")
        },
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "commit": _commit(),
    }


def _without_folders(argument: str) -> str:
    """A flag whose path is cut to its last name: the folders above differ from machine to
    machine."""
    flag, equals, value = argument.partition("=")
    return f"{flag}={Path(value).name}" if equals and value.startswith("/") else argument


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _commit() -> str | None:
    def git(*words: str) -> str | None:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    return commit and commit + ("-changed" if git("status", "--porcelain") else "")
