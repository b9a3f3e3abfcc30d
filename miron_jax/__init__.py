"""miron_jax: scores language-model checkpoints in JAX; every unique token is computed once."""

__version__ = "0.1.0"
