"""The record of everything that a decoder's arithmetic depends on.

Arrives: values that a reader of config files found.  Leaves: a frozen, hashable `ModelConfig`.  It
deliberately does not know files, weights, tensor names, tokenizers or devices.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A request of n tokens has theta * (factor * n / original_length - (factor - 1)) ** (size /
    (size - 2))."""

    theta: float
    factor: float
    size: int  # rotated dimensions of a head


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions of one layer: pair i of a head turns by position * frequencies[i]
    radians."""

    # float32 values; pair i of n is (x[i], x[i + n]), dimensions from 2n on are not rotated
    frequencies: tuple[float, ...]
    scale: float = 1.0  # of cosines and sines (YaRN, LongRoPE)
    long: tuple[float, ...] = ()  # frequencies of requests longer than `original_length` (LongRoPE)
    # frequencies of requests longer than `original_length` depend on their length
    dynamic: Dynamic | None = None
    original_length: int = 0  # tokens; only for `long` and `dynamic`
    kind: str = "default"  # rope_type of config.json; no arithmetic depends on it

    @property
    def varies_with_length(self) -> bool:
        """Whether frequencies depend on the length of the request."""
        return bool(self.long) or self.dynamic is not None


class RopeClasses(NamedTuple):
    """RoPE scaling classes of requests; only requests of one class have the same frequencies and
    can share prefixes."""

    above: int  # tokens; requests up to this length are of class 0
    # whether each longer length is a class of its own, or all of them are one class
    by_length: bool

    def class_of(self, num_tokens: int) -> int:
        """The class of a request: 0, or a length in tokens that has the same frequencies."""
        if num_tokens <= self.above:
            return 0
        return num_tokens if self.by_length else self.above + 1


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in the place of each layer's MLP: a router gives every token to some of
    them (Shazeer et al., 2017, "Outrageously large neural networks", section 2)."""

    count: int
    # experts that compute a token: those of the largest router logits, of equal ones the first
    active: int
    # the weights of a token's active experts sum to 1; else they are the softmax over all experts
    normalised: bool
    # hidden units of an MLP that computes every token, weighted by a sigmoid; 0: there is none
    shared_d_ff: int = 0
    bias: bool = False  # router and experts have biases
    # Not None: an expert is down(g * sigmoid(gain * g) * (u + 1)), g = min(gate, limit), u = up
    # between -limit and limit (gpt-oss); None: it is as the MLP
    limit: float | None = None
    gain: float = 1.0


ALIBI_DIMS = 8  # of a head that hold ALiBi's positions; a multiple of what kernels want


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer; the defaults are Llama's.  Sizes are counts, scales are factors,
    soft caps are c in c * tanh(x / c)."""

    # model_type of config.json; selects tensor names and is printed, no arithmetic depends on it
    family: str
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int  # of the MLP, or of each expert
    trained_length: int  # tokens; longer requests are allowed unless num_positions forbids them
    num_positions: int | None  # learned positions; None: rotary positions
    layer_ropes: tuple[Rope, ...]  # one for each layer; empty with learned positions
    # one for each layer; a key is visible if its distance in tokens < window
    layer_windows: tuple[int | None, ...]
    norm_eps: float
    attn_scale: float
    position_offset: int = 0  # rows of the table of learned positions before that of position 0
    # of attention beside attn_scale, one for each layer; empty: 1
    layer_scales: tuple[float, ...] = ()
    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool = True  # of layer norms
    norm_weight: bool = True  # False: norms have no weights (nanochat)
    norm_offset: float = 0.0  # added to the stored norm weight (Gemma: 1)
    pre_norms: bool = True  # attention and MLP read a normed residual stream
    # attention and MLP outputs are normed before they are added to the residual stream
    post_norms: bool = False
    embedding_norm: bool = False  # embeddings are normed before the first layer
    # attention and MLP read the same stream; one norm or two
    parallel: Literal["own_norm", "one_norm"] | None = None
    # Norm of queries and keys: of each head, with one weight for all heads or one for each (without
    # a bias), or of all heads together
    qk_norm: Literal["head", "each_head", "all_heads"] | None = None
    qk_norm_rotated: bool = False  # queries and keys are normed after the rotation, not before
    activation: Activation = "silu"
    experts: Experts | None = None
    gated_mlp: bool = True  # act(gate(x)) * up(x), else act(up(x))
    # Added to the logits of each head for each token between query and key, negated (ALiBi: Press
    # et al., 2022, arXiv 2108.12409); empty: positions have no bias
    alibi_slopes: tuple[float, ...] = ()
    # in bfloat16, whatever the dtype, and scaled as logits are; each head has its own keys
    alibi_rounded: bool = False
    qkv_clip: float | None = None  # queries, keys and values lie between -qkv_clip and qkv_clip
    qkv_bias: bool = False
    attn_out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied_head: bool = False  # the head is the token embedding
    attn_softcap: float | None = None
    attn_sinks: bool = False  # the softmax counts a logit of each head that has no value
    final_softcap: float | None = None
    embedding_scale: float = 1.0
    embedding_scale_rounded: bool = False  # the scale is rounded to the embedding's dtype
    residual_scale: float = 1.0  # of the outputs of attention and MLP
    logit_scale: float = 1.0

    @property
    def rope_classes(self) -> RopeClasses | None:
        """The RoPE scaling classes; None if frequencies do not depend on the length of a
        request."""
        for rope in self.layer_ropes:
            if rope.varies_with_length:
                return RopeClasses(rope.original_length, rope.dynamic is not None)
        return None

    @property
    def attended_dim(self) -> int:
        """Size of a head as attention sees it."""
        return self.head_dim + (ALIBI_DIMS if self.alibi_slopes else 0)

    @property
    def has_windows(self) -> bool:
        return any(window is not None for window in self.layer_windows)


def matmul_params(config: ModelConfig) -> int:
    """Number of weights in the matmuls of a token in all layers, without embeddings and head.  Each
    costs 2 FLOPs per token.  Of experts only the active ones count."""
    attention = 2 * config.d_model * config.head_dim * (config.num_heads + config.num_kv_heads)
    d_ff = config.d_ff
    router = 0
    if config.experts is not None:
        d_ff = config.experts.active * config.d_ff + config.experts.shared_d_ff
        router = config.d_model * (config.experts.count + (config.experts.shared_d_ff > 0))
    mlp = (3 if config.gated_mlp else 2) * config.d_model * d_ff + router
    return config.num_layers * (attention + mlp)


def attention_flops_per_pair(config: ModelConfig) -> int:
    """FLOPs per visible (query, key) pair in all layers, of scores and weighted sum.  Windows are
    not taken into account."""
    return 4 * config.num_heads * config.head_dim * config.num_layers
