"""`miron-jax plan`: predicts the requests, rows, programs and FLOPs of a run of eval.

Arrives: the flags of a run.  Leaves: a table on screen.  It deliberately needs no device and loads no weights.
"""

from miron_jax.cli.processes import start_jax
from miron_jax.cli.run_config import run_config


def command() -> None:
    config = run_config()
    start_jax()
    from miron_jax.inputs import find_inputs
    from miron_jax.report.plan_table import print_plan
    from miron_jax.run import summarize_plan

    inputs = find_inputs(config, runs=False)
    print_plan(inputs, summarize_plan(config, inputs))
