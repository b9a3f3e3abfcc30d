"""`miron-jax plan`: predicts the requests, rows, programs and FLOPs of a run, and with `--topology`
the programs for TPUs or GPUs.

Arrives: the flags of a run.  Leaves: a table on screen; with --output and --topology plan.json.  It
deliberately needs no device and loads no weights.
"""

import json
import os
from dataclasses import asdict

from absl import flags

from miron_jax.cli.json_output import JsonOutput, json_output
from miron_jax.cli.processes import helped_plans, kept_plans, leave_out_torch, start_jax
from miron_jax.cli.run_config import output_beside, run_config
from miron_jax.config import RunConfig
from miron_jax.errors import InputError, printable
from miron_jax.files.store import Store

FLAGS = flags.FLAGS


def command() -> None:
    config = run_config()
    if config.until is not None or config.budget is not None:
        raise InputError("plan counts every example: leave out --until and --budget")
    with json_output(FLAGS.json) as document:
        if FLAGS.topology is not None:
            _plan_on_topology(config, FLAGS.topology, document)
        else:
            _plan(config, document)


def _plan(config: RunConfig, document: JsonOutput) -> None:
    start_jax()
    from miron_jax.evaluation.inputs import find_inputs, select_tasks
    from miron_jax.evaluation.run_tasks import summarize_plan
    from miron_jax.report.tables.plan import print_plan
    from miron_jax.report.tables.progress import Screen

    if FLAGS.mde:
        _print_detectable(config)
        return
    screen = Screen(FLAGS.quiet, FLAGS.verbose)
    selected = select_tasks(config)
    helped = helped_plans(config, len(selected.tasks), screen.say)
    inputs = find_inputs(config, runs=False, selected=selected)
    if helped is not None:
        helped.begin()
    leave_out_torch(config)
    inputs = inputs._replace(kept=helped or kept_plans(screen.say))
    with screen:
        totals = summarize_plan(config, inputs, screen)
    lengths = {str(length): count for length, count in totals.lengths.items()}
    names = [source.task.name for source in inputs.sources]
    document.write({"tasks": names, **asdict(totals), "lengths": lengths})
    print_plan(inputs, totals)


def _print_detectable(config: RunConfig) -> None:
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.report.tables.plan import print_detectable
    from miron_jax.results.run_folder import read_runs

    inputs = find_inputs(config, runs=False)
    if FLAGS.json is not None:
        raise InputError("--json is of the plan, not of --mde: leave one of them out")
    names = {source.task.name for source in inputs.sources}
    earlier = None
    if config.against:
        earlier = read_runs([config.against])[0].earlier(names)
    print_detectable(inputs, config, earlier)


def _plan_on_topology(config: RunConfig, topology: str, output_of_json: JsonOutput) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"  # what is planned for is not here, or is in use
    start_jax()
    import jax

    from miron_jax.cli.topology_plan import plan_on_topology
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.evaluation.run_result import environment
    from miron_jax.report.tables.progress import Screen
    from miron_jax.report.tables.topology import print_topology_plan
    from miron_jax.results.document import config_json, plain
    from miron_jax.results.output import PLAN
    from miron_jax.runtime.topology import described_devices

    described_devices(topology)  # refuses a name before data are read
    # programs for what is not here cannot be read back
    jax.config.update("jax_enable_compilation_cache", False)
    output = output_beside("")
    store = Store(output) if output else None
    inputs = find_inputs(config, runs=False)
    leave_out_torch(config)
    with Screen(FLAGS.quiet, verbose=True) as screen:
        topology_plan = plan_on_topology(config, inputs, topology, screen)
    document = {
        "config": config_json(config),
        "environment": plain(environment()),
        "plan": topology_plan.json(),
    }
    output_of_json.write(document)
    print_topology_plan(topology_plan)
    if store is not None:
        store.put(PLAN, json.dumps(document, indent=1).encode())
        print(printable(f"written to {output}/{PLAN}"))
