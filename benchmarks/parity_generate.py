"""Is every generated token the same as transformers'?  Real weights, real CORE items, float32, greedy.

    python benchmarks/parity_generate.py --model=FOLDER --data_dir=BUNDLE --prompts=50 --new_tokens=64

Prompts are the beginnings of CORE contexts, some with few-shot examples, cut at different lengths.  This engine generates
all of them in one batch of slots; transformers generates them one by one with its own cache.  Where the tokens part, torch
says how far apart the two tokens' logits are at that place: a pair within --tie nats is a tie, said so, and the comparison
of that prompt ends there; any other difference fails the run.  The last line is JSON.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from common import PlainTorch, environment, prepare, read_tasks, run, say, seconds_of

from miron_jax.engine.generate import Generator
from miron_jax.engine.model import load_model
from miron_jax.engine.text_requests import TextRequest
from miron_jax.model.hf_config import eos_token_ids
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list("tasks", ["hellaswag", "lambada_openai", "arc_easy", "squad"], "CORE labels that give the prompts.")
flags.DEFINE_integer("prompts", 50, "How many prompts.", lower_bound=1)
flags.DEFINE_integer("new_tokens", 64, "Tokens to generate for each.", lower_bound=1)
flags.DEFINE_integer("longest", 256, "Tokens of a prompt at most.", lower_bound=2)
flags.DEFINE_float("tie", 1e-4, "Nats between two logits that count as equal.")

EOS = -1  # in place of any token that ends a text


def main(_: Sequence[str]) -> None:
    tokenizer = load_tokenizer(FLAGS.model)
    asked = [TextRequest(ids, FLAGS.new_tokens) for ids in make_prompts(tokenizer)]
    generator = Generator(load_model(Path(FLAGS.model), "float32"), tokenizer, eos_token_ids(FLAGS.model), say=say)
    ours_seconds, ours = seconds_of(lambda: generator.run(asked))
    torch = PlainTorch.load(FLAGS.model, "float32")
    theirs_seconds, theirs = seconds_of(lambda: [greedy(torch, request) for request in asked])
    ties, wrong = [], []
    for i, (request, text, there) in enumerate(zip(asked, ours, theirs, strict=True)):
        here = [*text.token_ids, EOS] if text.ended == "eos" else [*text.token_ids]
        at = next((j for j, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        if at is None and len(here) == len(there):
            continue
        apart = float("inf") if at is None else logit_gap(torch, request, here, there, at)
        line = f"prompt {i} ({len(request.token_ids)} tokens) parts at new token {at}: {apart:.1e} nats apart"
        (ties if apart <= FLAGS.tie else wrong).append(line)
    for title, lines in (("ties, not compared further", ties), ("WRONG", wrong)):
        print("\n".join([f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]))
    speed = generator.speed
    tokens = sum(len(text.token_ids) for text in ours)
    print(
        f"{len(asked)} prompts, {tokens} new tokens; here {ours_seconds - speed.compile_seconds:.1f} s and "
        f"{speed.compile_seconds:.1f} s to compile, transformers one by one {theirs_seconds:.1f} s; "
        f"{speed.busy_steps / speed.slot_steps:.1%} of slot steps busy"
    )
    document = {
        "benchmark": "parity_generate",
        "model": Path(FLAGS.model).name,
        "prompts": len(asked),
        "new_tokens": tokens,
        "ties": ties,
        "wrong": wrong,
        "seconds": ours_seconds - speed.compile_seconds,
        "transformers_seconds": theirs_seconds,
        "busy": speed.busy_steps / speed.slot_steps,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if wrong:
        sys.exit(1)


def make_prompts(tokenizer: Any) -> list[tuple[int, ...]]:
    """The first options of examples, with no and with two few-shot examples, cut to 2 up to --longest tokens."""
    found: list[tuple[int, ...]] = []
    sources = read_tasks(FLAGS.data_dir, FLAGS.tasks)
    if not sources:
        sys.exit(f"--data_dir={FLAGS.data_dir}: none of {', '.join(FLAGS.tasks)} has its file there")
    each = -(-FLAGS.prompts // (2 * len(sources)))
    for source in sources:
        for shots in (0, 2):
            work = prepare(source, each, tokenizer, None, shots)
            for r in work.first[:-1].tolist():
                length = 2 + (37 * len(found)) % (FLAGS.longest - 1)
                found.append(tuple(work.requests.tokens(r)[:length].tolist()))
    return list(dict.fromkeys(found))[: FLAGS.prompts]


def greedy(torch: PlainTorch, request: TextRequest) -> list[int]:
    """New tokens; EOS stands for any token that ends a text.  No other rule of the folder's own applies."""
    t = torch.torch
    ids = t.tensor([request.token_ids])
    with t.inference_mode():
        out = torch.model.generate(
            ids, attention_mask=t.ones_like(ids), generation_config=plain_greedy(request.max_new_tokens)
        )
    ends = eos_token_ids(FLAGS.model)
    return [EOS if i in ends else i for i in out[0, len(request.token_ids) :].tolist()]


def plain_greedy(new_tokens: int) -> Any:
    from transformers import GenerationConfig

    ends = list(eos_token_ids(FLAGS.model))
    return GenerationConfig(do_sample=False, max_new_tokens=new_tokens, eos_token_id=ends, pad_token_id=0)


def logit_gap(torch: PlainTorch, request: TextRequest, here: list[int], there: list[int], at: int) -> float:
    """Nats by which torch prefers its own token to ours after what both agree on."""
    row = np.asarray([*request.token_ids, *there[:at]])
    with torch.torch.inference_mode():
        logits_V = torch.logits([row])[0, -1]
    ends = list(eos_token_ids(FLAGS.model))
    mine, torchs = (max(float(logits_V[i]) for i in (ends if own == EOS else [own])) for own in (here[at], there[at]))
    return abs(torchs - mine)


if __name__ == "__main__":
    run(main)
