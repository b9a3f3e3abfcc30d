"""How much faster is a dialogue with keys and values kept from turn to turn than with a full pass
at every turn?

    python benchmarks/bench_dialogue.py --model=FOLDER

An interview of ruTiE's size in made-up Russian: every question follows the model's own answers to
those before it.  "Kept" is the time of all turns.  "Whole" is that of the engine's usual pass, in
which a turn's two choices share the text: the mean of every n-th turn, times all turns.
Compilation is not counted.  Both ways' answers are compared.  The last line is JSON.
"""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import jax.numpy as jnp
import numpy as np
from absl import flags
from common import Engine, environment, run

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Task
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import load_model
from miron_jax.evaluation.task_kinds.dialogue import DialogueKind
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores
from miron_jax.tasks.mera.suite import V1
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import load_tokenizer
from miron_jax.tokens.truncation import LengthLimit

WORDS = (
    "дом лес река утро вечер книга друг город поезд хлеб зима ветер окно песня море стол дорога "
    "мысль голос имя"
).split()

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer("turns", 430, "Turns of the dialogue.", lower_bound=2)
flags.DEFINE_integer("places", 1 << 15, "Tokens that the cache has room for.", lower_bound=256)
flags.DEFINE_integer("whole_every", 43, "The usual pass reads every n-th turn.", lower_bound=1)


def write_dialogue(folder: Path, turns: int) -> None:
    """rutie/test.jsonl with questions of about the published length."""
    rng = random.Random(0)

    def words(count: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(count))

    path = folder / "rutie" / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for i in range(turns):
            inputs = {
                "question": f"{words(9).capitalize()}?",
                "choice1": words(3),
                "choice2": words(3),
                "context": "",
            }
            record = {
                "instruction": "Вам дан диалог. {context}\n{question}\n1. {choice1}\n2. {choice2}",
                "inputs": inputs,
                "outputs": "",
                "meta": {"dialog_id": 0, "question_id": i},
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def main(_: Sequence[str]) -> None:
    task = next(task for task in V1.tasks if task.name.endswith("/rutie"))
    assert isinstance(task, Task)
    with tempfile.TemporaryDirectory() as folder:
        write_dialogue(Path(folder), FLAGS.turns)
        examples = read_examples(task, Path(folder))
    model, tokenizer = load_model(Path(FLAGS.model), "float32"), load_tokenizer(FLAGS.model)
    setup = Setup(
        RunConfig(FLAGS.model, ("none",)),
        tokenizer,
        TokenBytes(tokenizer, len(tokenizer)),
        LengthLimit(None, None),
    )
    kind = DialogueKind(LoadedTask(task, examples, DataState("generated", None)), setup)
    scores = TaskScores(kind)
    engine = Engine(model)
    text = GrowingText(model, FLAGS.places)
    start, kept, whole, wrong, difference, tokens = time.perf_counter(), [], [], 0, 0.0, []
    for turn, (piece, kept_scores) in enumerate(kind.turn_scores(scores, examples, text)):
        scores.rows += kind.rows_of(piece, kept_scores)
        kept.append(text.speed.seconds - sum(kept))
        tokens.append(int(np.diff(piece.requests.offsets).max()))
        if turn % FLAGS.whole_every == FLAGS.whole_every // 2:
            engine.compile(piece.requests)
            before = time.perf_counter()
            answers = engine.score(iter([piece.requests])).answers
            whole.append(time.perf_counter() - before)
            sums = [float(np.sum(p)) for p in answers.logprob]
            kept_sums = [float(np.sum(score.logprob)) for score in kept_scores]
            wrong += int(np.argmax(sums)) != int(np.argmax(kept_sums))
            difference = max(
                difference, *(abs(a - b) for a, b in zip(sums, kept_sums, strict=True))
            )
            print(
                f"turn {turn}: {tokens[-1]} tokens, kept {kept[-1]:.2f} s, whole {whole[-1]:.2f} s",
                flush=True,
            )
    kept_seconds, whole_seconds = sum(kept), mean(whole) * len(kept)
    ratio = whole_seconds / kept_seconds
    print(f"kept {kept_seconds:.1f} s, whole {whole_seconds:.1f} s: {ratio:.1f} times faster")
    document = {
        "benchmark": "bench_dialogue",
        "model": Path(FLAGS.model).name,
        "dtype": str(jnp.dtype("float32")),
        "turns": len(kept),
        "tokens_at_the_end": tokens[-1],
        "read_tokens": text.speed.read_tokens,
        "plain_tokens": text.speed.plain_tokens,
        "kept_seconds": kept_seconds,
        "whole_seconds_measured": whole,
        "whole_seconds": whole_seconds,
        "ratio": ratio,
        "chosen_differently": wrong,
        "largest_difference_nats": difference,
        "wall_seconds": time.perf_counter() - start,
        "environment": environment(),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    run(main)
