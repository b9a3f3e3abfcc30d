"""`python -m miron_jax.cli`: the command without what miron_jax/__main__.py does about early
signals."""

from miron_jax.cli import main

if __name__ == "__main__":
    main()
