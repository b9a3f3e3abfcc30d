"""Trains the demo model: `python -m tools.train_demo --out=FOLDER`.

Arrives: a seed and a `Recipe`.  Leaves: config.json, tokenizer files and steps/<N>, Orbax
checkpoints in bfloat16.  It deliberately does not know the benchmark's items, nor how a checkpoint
is scored.

Rows are packed with whole documents.  Positions start anew in each document, and no document sees
another: `until` of each token is the end of its document, as in any row that the engine scores.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

from miron_jax.runtime.backend import set_backend_flags

set_backend_flags()

import jax  # noqa: E402 - only after the flags are set
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from flax import nnx  # noqa: E402
from tokenizers import Encoding, Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from miron_jax.errors import InputError  # noqa: E402
from miron_jax.model.checkpoints.hf_config import from_hf_config  # noqa: E402
from miron_jax.model.decoder.decoder import abstract, random_params  # noqa: E402
from miron_jax.model.demo import write_sums  # noqa: E402
from miron_jax.model.visibility import Visibility  # noqa: E402
from miron_jax.runtime.devices import Tree  # noqa: E402
from tools.demo_text import Document, documents, words_known_to_all  # noqa: E402

try:
    import optax
except ModuleNotFoundError as error:
    raise InputError(
        "training the demo model needs optax, which is absent: pip install miron-jax[demo-train]"
    ) from error

BOS, EOS = "<s>", "</s>"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that determines the weights, besides the text."""

    vocabulary: int = 1280  # tokens
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    d_ff: int = 320
    row_length: int = 96  # tokens; the longest document has about 70
    rows: int = 24  # a batch
    steps: int = 4500
    save_at: tuple[int, ...] = (60, 200, 600, 1500, 3000)  # and after the last step
    # of a target that nobody could know (an invented stem, a term); others weigh 1
    drawn_weight: float = 0.3
    peak_rate: float = 3e-3
    warm_up: int = 100  # steps
    weight_decay: float = 0.1  # of matmul kernels only
    tokenizer_documents: int = 40_000
    seed: int = 0


class Batch(NamedTuple):
    """Rows of whole documents, each array [B, T]."""

    token_ids_BT: np.ndarray  # int32
    target_BT: np.ndarray  # int32, the next token of the document
    # float32, of that target in the loss; 0 after a document's last token and on padding
    weight_BT: np.ndarray
    position_BT: np.ndarray  # int32
    subtree_end_BT: np.ndarray  # int32


class Tokens(NamedTuple):
    """One tokenized document."""

    ids: list[int]  # BOS and EOS included
    weight: list[float]  # in the loss, of each token but the first


def train(recipe: Recipe, out: Path, say: Callable[[str], None]) -> None:
    """Trains a model and writes its folder, with a checkpoint after each of `save_at` and the last
    step."""
    steps = out / "steps"
    if steps.exists() and any(steps.iterdir()):
        raise InputError(
            f"--out={out}: has checkpoints in steps already, expected none; delete them or name "
            "another"
        )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(recipe)
    write_tokenizer(tokenizer, out)
    write_config(recipe, tokenizer, out)
    config = from_hf_config(out)
    graphdef, like = abstract(config, jnp.bfloat16)
    state = first_weights(random_params(config, jnp.float32, recipe.seed), recipe.layers)
    say(
        f"{sum(x.size for x in jax.tree.leaves(state))} parameters, {tokenizer.get_vocab_size()} "
        "tokens"
    )
    optimizer = make_optimizer(recipe)
    optimizer_state, step = optimizer.init(state), make_step(graphdef, optimizer)
    report = Progress(recipe, say)
    for i, batch in enumerate(islice(batches(recipe, tokenizer), recipe.steps), start=1):
        state, optimizer_state, loss = step(state, optimizer_state, batch)
        report(i, loss, int((batch.weight_BT > 0).sum()))
        if i in recipe.save_at or i == recipe.steps:
            save(steps / str(i), jax.tree.map(lambda x, y: x.astype(y.dtype), state, like))
    write_sums(out)


class Progress:
    """Prints the mean loss and speed of every hundred steps."""

    def __init__(self, recipe: Recipe, say: Callable[[str], None]):
        self.last, self.say = recipe.steps, say
        self.losses: list[jax.Array] = []
        self.tokens, self.started = 0, time.perf_counter()

    def __call__(self, step: int, loss: jax.Array, tokens: int) -> None:
        self.losses.append(loss)
        self.tokens += tokens
        if step % 100 and step != self.last:
            return
        mean = float(np.mean([np.asarray(loss) for loss in self.losses]))
        speed = self.tokens / (time.perf_counter() - self.started)
        self.say(f"step {step} of {self.last}: loss {mean:.4f} nats a token, {speed:.0f} tokens/s")
        self.losses, self.tokens, self.started = [], 0, time.perf_counter()


def make_tokenizer(recipe: Recipe) -> Tokenizer:
    """Byte-level BPE with a token per digit, trained without invented stems: it would merge these
    into whole tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sampled = islice(documents("tokenizer", recipe.seed), recipe.tokenizer_documents)
    tokenizer.train_from_iterator((words_known_to_all(document) for document in sampled), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A {BOS} $B",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
    )
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS
    ).save_pretrained(out)


def write_config(recipe: Recipe, tokenizer: Tokenizer, out: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": recipe.width,
        "intermediate_size": recipe.d_ff,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.kv_heads,
        "head_dim": recipe.width // recipe.heads,
        "hidden_act": "silu",
        "max_position_embeddings": recipe.row_length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": tokenizer.token_to_id(BOS),
        "eos_token_id": tokenizer.token_to_id(EOS),
        "dtype": "bfloat16",
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def batches(recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Batch]:
    """Endless batches.  A document goes into the first row with room; if none has room, the batch
    is full."""
    texts, eos = documents("training", recipe.seed), tokenizer.token_to_id(EOS)
    assert eos is not None, "make_tokenizer added it"
    rows: list[list[Tokens]] = [[] for _ in range(recipe.rows)]
    while chunk := list(islice(texts, 1000)):
        for encoding, document in zip(
            tokenizer.encode_batch([d.text for d in chunk]), chunk, strict=True
        ):
            tokens = _tokens(encoding, document, eos, recipe)
            row = _first_with_room(rows, len(tokens.ids), recipe.row_length)
            if row is None:
                yield _batch(rows, recipe.row_length)
                rows = [[] for _ in range(recipe.rows)]
                row = rows[0]
            row.append(tokens)


def _tokens(encoding: Encoding, document: Document, eos: int, recipe: Recipe) -> Tokens:
    weight = [
        1.0 if stop > document.knowable_start else recipe.drawn_weight
        for _, stop in encoding.offsets[1:]
    ]
    return Tokens(
        [*encoding.ids, eos][: recipe.row_length], [*weight, 1.0][: recipe.row_length - 1]
    )


def _first_with_room(rows: list[list[Tokens]], size: int, row_length: int) -> list[Tokens] | None:
    return next((row for row in rows if sum(len(t.ids) for t in row) + size <= row_length), None)


def _batch(rows: list[list[Tokens]], row_length: int) -> Batch:
    ints, floats = (np.zeros((len(rows), row_length), dtype) for dtype in (np.int32, np.float32))
    batch = Batch(ints, ints.copy(), floats, ints.copy(), ints.copy())
    batch.subtree_end_BT[:] = np.arange(1, row_length + 1)  # padding sees only itself
    for b, row in enumerate(rows):
        start = 0
        for ids, weight in row:
            stop = start + len(ids)
            batch.token_ids_BT[b, start:stop] = ids
            batch.target_BT[b, start : stop - 1] = ids[1:]
            batch.weight_BT[b, start : stop - 1] = weight
            batch.position_BT[b, start:stop] = np.arange(len(ids))
            batch.subtree_end_BT[b, start:stop] = stop
            start = stop
    return batch


def first_weights(state: Tree, layers: int) -> Tree:
    """random_params rescaled for training: norms of 1, small logits and small residual branches."""

    def scaled(path: jax.tree_util.KeyPath, x: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if "norm" in name:
            return jnp.ones_like(x)
        if "embedding" in name:
            return x * 0.04  # 0.5 -> 0.02
        return x * (2 * layers) ** -0.5 if "attn/out" in name or "mlp/down" in name else x

    return jax.tree_util.tree_map_with_path(scaled, state)


def make_optimizer(recipe: Recipe) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(
        0.0,
        recipe.peak_rate,
        min(recipe.warm_up, recipe.steps - 1),
        recipe.steps,
        recipe.peak_rate / 20,
    )

    def decayed(state: Tree) -> Tree:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: "kernel" in jax.tree_util.keystr(path), state
        )

    adam = optax.adamw(rate, b1=0.9, b2=0.98, weight_decay=recipe.weight_decay, mask=decayed)
    return optax.chain(optax.clip_by_global_norm(1.0), adam)


Step = Callable[[Tree, optax.OptState, Batch], tuple[Tree, optax.OptState, jax.Array]]


def make_step(graphdef: nnx.GraphDef, optimizer: optax.GradientTransformation) -> Step:
    """(state, optimizer state, batch) -> both states after one step, and the loss before it."""

    def step(
        state: Tree, optimizer_state: optax.OptState, batch: Batch
    ) -> tuple[Tree, optax.OptState, jax.Array]:
        loss, gradient = jax.value_and_grad(mean_loss)(state, graphdef, batch)
        update, optimizer_state = optimizer.update(gradient, optimizer_state, state)
        return optax.apply_updates(state, update), optimizer_state, loss

    return jax.jit(step, donate_argnums=(0, 1))


def mean_loss(state: Tree, graphdef: nnx.GraphDef, batch: Tree) -> jax.Array:
    """Weighted mean loss in nats per target, float32; `batch`: a `Batch` of device arrays."""
    decoder = nnx.merge(graphdef, state)
    visibility = Visibility.of_batch(batch.subtree_end_BT, batch.position_BT)
    hidden_BTD = decoder(batch.token_ids_BT, batch.position_BT, visibility)
    logits_BTV = hidden_BTD @ decoder.head().weight_VD.T
    loss_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, batch.target_BT)
    return (batch.weight_BT * loss_BT).sum() / batch.weight_BT.sum()


def save(folder: Path, state: Tree) -> None:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(nnx.to_pure_dict(state)))
    (folder / "commit_success.txt").unlink(missing_ok=True)  # holds only the path on this machine


def _define_flags() -> None:
    recipe = Recipe()
    flags.DEFINE_string(
        "out",
        None,
        "folder that config.json, the tokenizer and steps/<N> are written to",
        required=True,
    )
    flags.DEFINE_integer("steps", recipe.steps, "batches to train on", lower_bound=2)
    flags.DEFINE_integer("seed", recipe.seed, "of the text and the first weights")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    recipe = Recipe(steps=options.steps, seed=options.seed)
    train(recipe, Path(options.out), lambda line: print(line, flush=True))


if __name__ == "__main__":
    _define_flags()
    app.run(main)
