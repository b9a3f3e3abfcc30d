"""A recurrent model of real size on questions with choices: shared states against whole requests,
and against torch.

    python benchmarks/bench_recurrent.py --family=mamba --questions=16

The model has random weights (Mamba's 130M by default).  Each question follows the same few-shot
prefix and has --choices choices of unlike lengths.  The engine scores all requests twice in turn:
as tries whose branches start from shared states, and one row a request by `logits` of the same
model, as an OwnModel without a state does; torch (transformers) scores --torch_rows of the requests
one by one, and its time is scaled to all.  Prints medians of seconds and FLOP/s;
the last line is JSON.
"""

import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from common import environment, say

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.costs import cost_model, network_flops
from miron_jax.model.network import BoundNetwork
from miron_jax.model.own import OwnModel
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests

FLAGS = flags.FLAGS
flags.DEFINE_enum("family", "mamba", ["mamba", "mamba2", "recurrent_gemma"], "architecture")
flags.DEFINE_integer("width", 768, "width of the residual stream", lower_bound=128)
flags.DEFINE_integer("layers", 24, "layers", lower_bound=1)
flags.DEFINE_integer("questions", 16, "questions", lower_bound=1)
flags.DEFINE_integer("choices", 4, "choices of a question", lower_bound=1)
flags.DEFINE_integer("prefix", 300, "tokens that all questions share", lower_bound=1)
flags.DEFINE_integer("repeats", 3, "timed runs of each", lower_bound=1)
flags.DEFINE_integer("torch_rows", 4, "requests that torch scores; 0: none", lower_bound=0)

OF_FAMILY: dict[str, dict[str, Any]] = {
    "mamba": {},
    "mamba2": {"n_groups": 1, "head_dim": 64, "tie_word_embeddings": True},
    "recurrent_gemma": {"num_attention_heads": 12, "num_key_value_heads": 1},
}


def config_json() -> dict[str, Any]:
    sizes = {"vocab_size": 50280, "hidden_size": FLAGS.width, "num_hidden_layers": FLAGS.layers}
    more = OF_FAMILY[FLAGS.family]
    if FLAGS.family == "mamba2":
        more = more | {"num_heads": 2 * FLAGS.width // 64}
    if FLAGS.family == "recurrent_gemma":
        more = more | {"intermediate_size": 6 * FLAGS.width}
    return {"model_type": FLAGS.family, **sizes, **more}


def requests() -> Requests:
    rng = np.random.default_rng(0)
    prefix = rng.integers(1, 50280, FLAGS.prefix)
    ids, starts = [], []
    for _ in range(FLAGS.questions):
        question = np.concatenate([prefix, rng.integers(1, 50280, rng.integers(20, 60))])
        for _ in range(FLAGS.choices):
            ids.append(
                np.concatenate([question, rng.integers(1, 50280, rng.integers(2, 16))]).astype(
                    np.int32
                )
            )
            starts.append(len(question))
    no = np.zeros(len(ids), bool)
    return Requests(*end_to_end(ids), np.asarray(starts, np.int32), no, no)


def random_params(model: Any) -> Any:
    """Random weights: matrices that keep the size of what they read, all else near 1."""
    rng = np.random.default_rng(0)

    def one(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        rows = leaf.shape[-2] if leaf.ndim > 2 else leaf.shape[-1]
        mean, scale = (
            (0.0, rows**-0.5)
            if leaf.ndim > 2 or (len(leaf.shape) == 2 and leaf.shape[0] > 1000)
            else (1.0, 0.1)
        )
        return jnp.asarray(rng.normal(mean, scale, leaf.shape), jnp.float32)

    return jax.tree.map(one, model.shapes("float32"))


def whole_rows(model: OwnModel) -> OwnModel:
    """The same model by its logits alone."""

    def logits(params: Any, token_ids_BT: jax.Array) -> jax.Array:
        bound = BoundNetwork(model, params)
        hidden_BTD = bound.by_steps(token_ids_BT)
        return (
            bound.head()
            .logits(hidden_BTD.reshape(-1, hidden_BTD.shape[-1]))
            .reshape(*token_ids_BT.shape, -1)
        )

    return OwnModel(model.vocab_size, logits=logits, params=model.params)


def torch_seconds(path: Path, asked: Requests) -> float:
    """Seconds for all requests, from a few of them."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(path)
    ).eval()
    chosen = np.linspace(0, len(asked) - 1, FLAGS.torch_rows).astype(int)
    with torch.no_grad():
        model(torch.tensor(asked.tokens(0)[None, :32].astype(np.int64)))
        start = time.perf_counter()
        for r in chosen:
            model(torch.tensor(asked.tokens(int(r))[None].astype(np.int64)))
        seconds = time.perf_counter() - start
    return seconds * len(asked.token_ids) / sum(len(asked.tokens(int(r))) for r in chosen)


def main(_arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config_json()))
        model, asked = from_hf_config(folder), requests()
        params = random_params(model)
        models = {"shared states": model, "a row a request": whole_rows(model)}
        forwards = {
            name: Forward(Model(variant, variant, params)) for name, variant in models.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in models}
        answers: dict[str, np.ndarray] = {}
        for run in range(FLAGS.repeats + 1):  # the first compiles
            for name, variant in models.items():
                variant = (
                    dataclasses.replace(variant, params=params)
                    if name == "a row a request"
                    else variant
                )
                forward, totals, check = forwards[name], Totals(), SelfCheck(tolerance=1e-3)
                before = forward.speed.device_seconds
                [scores] = score_request_batches(
                    [asked], forward, cost_model(variant), totals, check
                )
                answers[name] = scores.logprob
                if run:
                    seconds[name].append(forward.speed.device_seconds - before)
                else:
                    say(
                        f"{name}: {totals.unique_tokens} of {totals.plain_tokens} tokens, "
                        f"{totals.padded_tokens} places"
                    )
        largest = float(np.abs(answers["shared states"] - answers["a row a request"]).max())
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        flops = network_flops(model)
        for name, value in medians.items():
            say(
                f"{name}: {value:.2f} s, {flops * totals_of(asked, name) / value / 1e9:.0f} GFLOP/s"
            )
        say(
            f"{medians['a row a request'] / medians['shared states']:.2f}x, largest difference "
            f"{largest:.1e} nats"
        )
        if FLAGS.torch_rows:
            peer = torch_seconds(folder, asked)
            say(
                f"torch, one request a call: {peer:.1f} s, {peer / medians['shared states']:.1f}x "
                "the shared states"
            )
        say(
            f"{jax.devices()[0].device_kind}, {FLAGS.family}, {flops / 2e6:.0f}M weights in matmuls"
        )
        document = {"benchmark": "bench_recurrent", "family": FLAGS.family, "largest": largest}
        print(json.dumps({**document, "seconds": medians, "environment": environment()}))


def totals_of(asked: Requests, name: str) -> int:
    """Tokens without those that nobody needs: unique ones, or all."""
    if name == "a row a request":
        return len(asked.token_ids)
    return len(
        {
            tuple(asked.tokens(r)[: i + 1].tolist())
            for r in range(len(asked))
            for i in range(len(asked.tokens(r)) - 1)
        }
    )


if __name__ == "__main__":
    app.run(main)
