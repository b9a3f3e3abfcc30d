"""What a decoder is, in one record: everything its arithmetic depends on.

Arrives: what a reader of config files found.  Leaves: a frozen, hashable `ModelConfig`.  It deliberately does not know
files, weights, tensor names, tokenizers or devices.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Theta of a request of n tokens is theta * (factor * n / original_length - (factor - 1)) ** (size / (size - 2))."""

    theta: float
    factor: float
    size: int  # numbers of a head that are rotated


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions of one layer: pair i of a head turns by position * frequencies[i] radians."""

    frequencies: tuple[
        float, ...
    ]  # float32 numbers; pair i is (x[i], x[i + n]) of n, what lies behind 2n is not rotated
    scale: float = 1.0  # of cosines and sines (YaRN, LongRoPE)
    long: tuple[float, ...] = ()  # frequencies of a request of more tokens than `original_length` (LongRoPE)
    dynamic: Dynamic | None = None  # frequencies of such a request follow its length
    original_length: int = 0  # tokens, where there is either
    kind: str = "default"  # rope_type of config.json; no arithmetic depends on it

    @property
    def varies_with_length(self) -> bool:
        """Whether a request's own length picks its frequencies."""
        return bool(self.long) or self.dynamic is not None


class RopeClasses(NamedTuple):
    """Requests whose rotary frequencies differ share nothing."""

    above: int  # tokens of a request; up to this all are alike
    by_length: bool  # above it each length has its own, else all are alike there, too

    def class_of(self, num_tokens: int) -> int:
        """Requests of the same class rotate alike: 0, or the tokens that the frequencies are those of."""
        if num_tokens <= self.above:
            return 0
        return num_tokens if self.by_length else self.above + 1


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer; the defaults are Llama's.  Sizes are counts, scales multiply, caps are c in
    c * tanh(x / c)."""

    family: str  # model_type of config.json; picks tensor names and is printed, no arithmetic depends on it
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    trained_length: int  # tokens; a longer row is legal unless num_positions forbids it
    num_positions: int | None  # rows of the learned position table; None: rotary positions
    layer_ropes: tuple[Rope, ...]  # one a layer; empty with learned positions
    layer_windows: tuple[int | None, ...]  # one a layer; key visible when position distance < window
    norm_eps: float
    attn_scale: float
    norm: Literal["rms", "layer"] = "rms"  # layer norms carry a bias
    norm_weight: bool = True  # norms have weights (nanochat's have none)
    norm_offset: float = 0.0  # added to the stored norm weight (Gemma: 1)
    pre_norms: bool = True  # attention and MLP read a normed residual stream
    post_norms: bool = False  # attention and MLP outputs are normed before they join the residual stream
    embedding_norm: bool = False  # embeddings are normed before the first layer, without weights
    parallel: Literal["own_norm", "one_norm"] | None = None  # attention and MLP read the same stream; one norm or two
    # Queries and keys are normed: a head with one weight for all heads or one each (layer norms have no bias there), or
    # all heads together.
    qk_norm: Literal["head", "each_head", "all_heads"] | None = None
    qk_norm_rotated: bool = False  # after the rotation, not before
    activation: Activation = "silu"
    gated_mlp: bool = True  # act(gate(x)) * up(x), else act(up(x))
    qkv_bias: bool = False
    attn_out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied_head: bool = False  # the head is the token embedding
    attn_softcap: float | None = None
    final_softcap: float | None = None
    embedding_scale: float = 1.0
    embedding_scale_rounded: bool = False  # to the embedding's dtype, before it multiplies
    residual_scale: float = 1.0  # of what attention and MLP add
    logit_scale: float = 1.0

    @property
    def rope_classes(self) -> RopeClasses | None:
        """Whether, and above which length, a request's own length picks its rotary frequencies."""
        for rope in self.layer_ropes:
            if rope.varies_with_length:
                return RopeClasses(rope.original_length, rope.dynamic is not None)
        return None

    @property
    def has_windows(self) -> bool:
        return any(window is not None for window in self.layer_windows)


def matmul_params(config: ModelConfig) -> int:
    """Weights of the layers' matmuls: 2 FLOPs each a token.  Embeddings and head are not among them."""
    attention = 2 * config.d_model * config.head_dim * (config.num_heads + config.num_kv_heads)
    mlp = (3 if config.gated_mlp else 2) * config.d_model * config.d_ff
    return config.num_layers * (attention + mlp)


def attention_flops_per_pair(config: ModelConfig) -> int:
    """FLOPs a visible (query, key) pair costs over all layers: scores and weighted sum.  Windows are not deducted."""
    return 4 * config.num_heads * config.head_dim * config.num_layers
