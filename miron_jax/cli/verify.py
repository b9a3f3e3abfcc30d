"""`miron-jax verify`: fixed texts scored in several ways, and against an oracle's numbers; or a
finished run against reference numbers.

Arrives: the flags that name a model or a run.  Leaves: a table on screen, or a file of an oracle's
numbers.  Exit status 1 if a way or a number differs.  It deliberately does not know how texts are
scored.
"""

import json
from pathlib import Path
from typing import Any

from miron_jax.cli import flags
from miron_jax.cli.json_output import json_output
from miron_jax.cli.processes import leave_out_torch, start_jax
from miron_jax.cli.run_config import local
from miron_jax.config import RunConfig, parse_mesh
from miron_jax.errors import InputError, SelfCheckFailed, printable, some_of
from miron_jax.files.durable import write_whole
from miron_jax.files.places import local_path, public

FLAGS = flags.FLAGS


def command() -> None:
    if FLAGS.reference is not None:
        _compare_with_reference()
        return
    if FLAGS["output"].present:
        raise InputError("--output is the run that --reference compares: name --reference too")
    start_jax()
    names = ("dtype", "sharding", "attention", "token_budget", "steps", "params_key")
    more: dict[str, Any] = {name: getattr(FLAGS, name) for name in names}
    paths: dict[str, Any] = {
        name: local(getattr(FLAGS, name)) for name in ("tokenizer", "checkpoint", "param_map")
    }
    config = RunConfig(
        local(FLAGS.model) or "", ("none",), mesh=parse_mesh(FLAGS.mesh), **more, **paths
    )
    if FLAGS.write is not None and FLAGS.json is not None:
        raise InputError("--json is of what was verified: leave out --json or --write")
    if FLAGS.write is not None:
        _write(config, local_path(FLAGS.write))
        return
    from miron_jax.cli.verification import read_oracle, verify
    from miron_jax.evaluation.session import Session
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.progress import Screen
    from miron_jax.report.tables.verify import print_verified

    leave_out_torch(config)
    oracle = read_oracle(local_path(FLAGS.against)) if FLAGS.against else None
    with json_output(FLAGS.json) as document, Screen(FLAGS.quiet, FLAGS.verbose) as screen:
        session = Session(config.model, config.tokenizer, None, config, screen)
        verified = verify(session, config.token_budget, oracle, FLAGS.against or "", screen)
        document.write(verified.json())
        print_verified(console(), verified.differences, verified.tokens, verified.tolerance)
    if verified.wrong:
        names_of_wrong = ", ".join(each.name for each in verified.wrong)
        raise SelfCheckFailed(
            f"{public(config.model)} differs by more than {verified.tolerance:g} nats a token "
            f"from: {names_of_wrong}; look at its norms, RoPE, special tokens and dtype"
        )


def _compare_with_reference() -> None:
    from miron_jax.report.compare.reference import SAME, reference, rows_of, unlike
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.verify import print_reference
    from miron_jax.results.run_folder import read_runs

    for name in flags.OF_COMMAND["verify"]:
        if FLAGS[name].present and name not in ("reference", "output", "json", "quiet", "verbose"):
            raise InputError(
                f"--reference compares a finished run, that in --output: leave out --{name}"
            )
    expected = reference(FLAGS.reference)
    with json_output(FLAGS.json) as document:
        [run] = read_runs([FLAGS.output])
        rows = [*rows_of(expected, run)]
        other = unlike(expected, run)
        document.write({"unlike": other, "rows": [row._asdict() for row in rows]})
        print_reference(console(), rows, expected, run, other)
    differing = [f"{row.task} {row.metric} ({row.verdict})" for row in rows if row.verdict != SAME]
    if differing:
        why = "compare data and versions"
        if other:
            why = f"it is of {other}"
        raise SelfCheckFailed(
            f"{run.folder} differs from {FLAGS.reference} in {some_of(differing, 3)}: {why} "
            "(docs/reference_numbers.md)"
        )


def _write(config: RunConfig, path: Path) -> None:
    from miron_jax.cli.verification import oracle_of
    from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model

    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"--write={path} cannot be written: name a file in a folder that is there")
    folder = local_path(config.model)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"--write makes the oracle from a Hugging Face folder, and --model={config.model} is "
            "none"
        )
    model = architecture_of(config, find_model(config)).config
    most = min(model.num_positions or 1 << 31, model.trained_length or 1 << 31)
    oracle = json.dumps(oracle_of(folder, model.trained_length, most))
    write_whole(path, oracle.encode())
    print(printable(f"written to {path}"))
