"""Benchmark suites, one file each.  Import as miron_jax.tasks; `registry` lists them."""
