"""Forest attention on NVIDIA through cuDNN's fused kernel: nothing of the size [T, T] but the mask,
built once a batch.

Rows are causal, so the kernel skips the upper half; what else is hidden comes as a bias.  bfloat16
and float16 only, head sizes that are multiples of 8 up to 128 (256 from Hopper on), no soft cap
(jax.nn.dot_product_attention).
"""

import jax
import jax.numpy as jnp

from miron_jax.kernels.forest_attention import xla


@jax.named_scope("forest_attention")
def forest_attention(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    *,
    scale: float,
    window: jax.Array | int | None = None,
    softcap: None = None,
    bias_BTT: jax.Array | None = None,
) -> jax.Array:
    """Same result as `reference.forest_attention` within the inputs' rounding; out [B, T, N, H]
    float32.

    `bias_BTT` is `xla.hidden_bias`, in q's dtype; without it `xla` computes the result, as rows are
    then too long to hold it.  Raises RuntimeError and NotImplementedError where cuDNN is absent or
    does not take these sizes.
    """
    rows = (q_BTNH, k_BTKH, v_BTKH)
    if bias_BTT is None:
        return xla.forest_attention(*rows, subtree_end_BT, position_BT, scale=scale, window=window)
    bias_B1TT = bias_BTT.astype(q_BTNH.dtype)[:, None]
    out_BTNH = jax.nn.dot_product_attention(
        *rows, bias=bias_B1TT, scale=scale, is_causal=True, implementation="cudnn"
    )
    return out_BTNH.astype(jnp.float32)
