"""`miron-jax bench`: measures the throughput of these devices on a model.

Arrives: the flags of a run.  Leaves: bench.json, a table on screen.  It deliberately does not know
how time is measured.
"""

import json
from dataclasses import asdict

from absl import flags

from miron_jax.cli.json_output import json_output
from miron_jax.cli.processes import leave_out_torch, start_jax, wants_others
from miron_jax.cli.run_config import output_beside, run_config
from miron_jax.errors import InputError, printable
from miron_jax.files.store import Store

FLAGS = flags.FLAGS


def command() -> None:
    config = run_config(tasks=("miron-gen",))  # which needs no data, unlike core
    if wants_others():
        raise InputError("bench measures one process: leave out --distributed and --coordinator")
    start_jax()
    from miron_jax.cli.throughput import measure
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.evaluation.run_result import environment
    from miron_jax.report.tables.bench import print_bench
    from miron_jax.report.tables.progress import Screen
    from miron_jax.results.document import config_json, plain

    inputs = find_inputs(config)
    leave_out_torch(config)
    output = output_beside("miron-bench")
    store = Store(output)
    with json_output(FLAGS.json) as output_of_json, Screen(FLAGS.quiet, FLAGS.verbose) as screen:
        bench = measure(config, inputs, screen)
        document = {
            "config": config_json(config),
            "environment": plain(environment()),
            **asdict(bench),
        }
        store.put("bench.json", json.dumps(document, indent=1).encode())
        output_of_json.write(document)
        print_bench(bench)
        print(printable(f"written to {output}/bench.json"))
