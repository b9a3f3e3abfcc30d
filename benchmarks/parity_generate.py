"""Is every generated token the same as transformers'?  Real weights, real CORE items, float32,
greedy.

    python benchmarks/parity_generate.py --model=FOLDER --data_dir=BUNDLE --prompts=50
    --new_tokens=64

Prompts are the beginnings of CORE contexts, some with few-shot examples, cut at different lengths.
This engine generates all of them in one batch of slots; transformers generates them one by one with
its own cache.  Two completions may part at a tie, that is, at two tokens whose logits differ by at
most --tie nats in torch; the rest of such a prompt is not compared.  Any other difference fails the
run.  The last line is JSON.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from agreement import say_lists
from common import PRINTED, environment, prepare, read_tasks, run, seconds_of
from peers import PlainTorch, first_difference, tokens_of

from miron_jax.engine.generate import Generator
from miron_jax.engine.model import load_model
from miron_jax.engine.text_requests import TextRequest
from miron_jax.model.checkpoints.hf_config import eos_token_ids
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list(
    "tasks",
    ["hellaswag", "lambada_openai", "arc_easy", "squad"],
    "CORE labels that give the prompts.",
)
flags.DEFINE_integer("prompts", 50, "How many prompts.", lower_bound=1)
flags.DEFINE_integer("new_tokens", 64, "Tokens to generate for each.", lower_bound=1)
flags.DEFINE_integer("longest", 256, "Tokens of a prompt at most.", lower_bound=2)
flags.DEFINE_float("tie", 1e-4, "Nats between two logits that count as equal.")


def main(_: Sequence[str]) -> None:
    tokenizer, ends = load_tokenizer(FLAGS.model), eos_token_ids(FLAGS.model)
    prompts = make_prompts(tokenizer)
    generator = Generator(
        load_model(Path(FLAGS.model), "float32"), tokenizer, ends, progress=PRINTED
    )
    engine_seconds, texts = seconds_of(
        lambda: generator.run([TextRequest(ids, FLAGS.new_tokens) for ids in prompts])
    )
    torch = PlainTorch.load(FLAGS.model, "float32")
    torch_seconds, torch_tokens = seconds_of(
        lambda: [torch.greedy(ids, FLAGS.new_tokens, ends) for ids in prompts]
    )
    ties, wrong = [], []
    for i, (prompt, ours, theirs) in enumerate(
        zip(prompts, map(tokens_of, texts), torch_tokens, strict=True)
    ):
        if ours == theirs:
            continue
        nats, at = torch.logit_gap(prompt, ours, theirs, ends), first_difference(ours, theirs)
        line = f"prompt {i} ({len(prompt)} tokens) parts at new token {at}: {nats:.1e} nats apart"
        (ties if nats <= FLAGS.tie else wrong).append(line)
    say_lists({"ties, not compared further": ties, "WRONG": wrong})
    speed = generator.speed
    num_tokens = sum(len(text.token_ids) for text in texts)
    print(
        f"{len(prompts)} prompts, {num_tokens} new tokens; here "
        f"{engine_seconds - speed.compile_seconds:.1f} s and {speed.compile_seconds:.1f} s to "
        f"compile, transformers one by one {torch_seconds:.1f} s; "
        f"{speed.busy_steps / speed.slot_steps:.1%} of slot steps busy"
    )
    document = {
        "benchmark": "parity_generate",
        "model": Path(FLAGS.model).name,
        "prompts": len(prompts),
        "new_tokens": num_tokens,
        "ties": ties,
        "wrong": wrong,
        "seconds": engine_seconds - speed.compile_seconds,
        "transformers_seconds": torch_seconds,
        "busy": speed.busy_steps / speed.slot_steps,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if wrong:
        sys.exit(1)


def make_prompts(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The first choice of examples, with no and with two few-shot examples, cut to 2 up to
    --longest tokens."""
    sources = read_tasks(FLAGS.data_dir, FLAGS.tasks)
    if not sources:
        sys.exit(
            f"--data_dir={FLAGS.data_dir}: none of {', '.join(FLAGS.tasks)} has its file there"
        )
    prompts: list[tuple[int, ...]] = []
    each = -(-FLAGS.prompts // (2 * len(sources)))
    for source in sources:
        for shots in (0, 2):
            work = prepare(source, each, tokenizer, None, shots)
            for r in work.first[:-1].tolist():
                length = 2 + (37 * len(prompts)) % (FLAGS.longest - 1)
                prompts.append(tuple(work.requests.tokens(r)[:length].tolist()))
    return list(dict.fromkeys(prompts))[: FLAGS.prompts]


if __name__ == "__main__":
    run(main)
