"""Forest attention on NVIDIA through cuDNN's fused kernel: nothing of the size [T, T] but the mask, built once a batch.

Rows are causal, so the kernel skips the upper half; what else is hidden comes as a bias.  bfloat16 and float16 only, head
sizes that are multiples of 8 up to 128 (256 from Hopper on), no soft cap (jax.nn.dot_product_attention).
"""

import jax
import jax.numpy as jnp


@jax.named_scope("forest_attention")
def forest_attention(
    q_BTNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, bias_BTT: jax.Array, *, scale: float
) -> jax.Array:
    """Same result as `reference.forest_attention` within the inputs' rounding; out [B, T, N, H] float32.

    `bias_BTT` is `xla.hidden_bias`, in q's dtype.  Raises RuntimeError and NotImplementedError where cuDNN is not there or
    does not take these sizes.
    """
    bias_B1TT = bias_BTT.astype(q_BTNH.dtype)[:, None]
    out_BTNH = jax.nn.dot_product_attention(
        q_BTNH, k_BTKH, v_BTKH, bias=bias_B1TT, scale=scale, is_causal=True, implementation="cudnn"
    )
    return out_BTNH.astype(jnp.float32)
