"""The command `miron-jax COMMAND [flags]`; absl flags throughout.

Arrives: the command line.  Leaves: an exit status: 0 done, 1 failed, 2 bad input, 75 interrupted.  It deliberately
knows only run.py and what prints or writes; jax is imported after the flags are read, so that --help is quick.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from absl import app, flags, logging

from miron_jax.backend import set_backend_flags
from miron_jax.config import RunConfig, parse_data_dir, parse_mesh
from miron_jax.errors import BAD_INPUT, FAILED, INTERRUPTED, InputError
from miron_jax.kernels.forest_attention import Name
from miron_jax.store import Lock, Store, is_url, together

if TYPE_CHECKING:
    from miron_jax.aggregate import Outcome
    from miron_jax.hosts import Hosts

FLAGS = flags.FLAGS
_hosts: "Hosts | None" = None  # that this process has joined
_met: int | None = None  # where its supervisor reads that it has
flags.DEFINE_string(
    "model",
    "demo",
    "Hugging Face folder or hub id, or a training run's folder with one checkpoint a step; demo: the small model that "
    "comes with the package; package.module:factory: a Flax model of your own.",
)
flags.DEFINE_string(
    "steps", None, "Of a training run's folder: latest, 1000,2000 or first:last:stride; absent: every step."
)
flags.DEFINE_string(
    "checkpoint", None, "Orbax checkpoint, or a training run's folder, with the weights of a model of your own."
)
flags.DEFINE_string(
    "param_map", None, "JSON file or package.module:function: where an Orbax tree of your own names holds each leaf."
)
flags.DEFINE_bool("watch", False, "Score steps as they come, until none has for --watch_timeout.")
flags.DEFINE_float("watch_timeout", 3600.0, "Seconds without a new step that end --watch.")
flags.DEFINE_string("tensorboard", None, "Folder for TensorBoard's event files.")
flags.DEFINE_string("wandb", None, "Project of Weights & Biases; WANDB_MODE=offline keeps it here.")
flags.DEFINE_string("tokenizer", None, "Tokenizer folder or hub id; the model's own when absent.")
flags.DEFINE_list(
    "tasks",
    None,
    "Suites, tasks or globs: core, core/arc_easy, core/arc_*; absent: core, miron-gen for the demo model, own-gauntlet with "
    "--icl_tasks.",
)
flags.DEFINE_string(
    "data_dir", None, "Folder with the data files, or suite=folder pairs; fetched and cached when absent."
)
flags.DEFINE_string("icl_tasks", None, "A gauntlet of your own: llm-foundry's tasks.yaml; its suite is own-gauntlet.")
flags.DEFINE_string("eval_gauntlet", None, "The eval_gauntlet.yaml that averages the tasks of --icl_tasks.")
flags.DEFINE_integer("limit", None, "First n examples of each task, after the suite's own shuffle.")
flags.DEFINE_integer("items_per_category", 500, "Items of each language and category of miron-gen.")
flags.DEFINE_string("output", "miron-results", "Folder for results.json and samples; of bench and humans, for theirs.")
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Dtype of weights and matmuls; sums are float32.")
flags.DEFINE_enum(
    "attention",
    None,
    get_args(Name),
    "What computes attention; absent: the device's own (tpu, cudnn), else xla. hopper: H100 and H200, bfloat16, by request.",
)
flags.DEFINE_enum(
    "sharding",
    "pmap",
    ["pmap", "mesh"],
    "pmap: every device has the weights and rows of its own; mesh: weights are split over --mesh.",
)
flags.DEFINE_string(
    "mesh",
    None,
    "Of --sharding=mesh, such as data=4,model=2: devices along data (copies), fsdp (fully sharded) and model (tensor "
    "parallel).",
)
flags.DEFINE_bool(
    "distributed", False, "Join the other processes that the cluster tells of: TPU pod, Slurm, Open MPI, Kubernetes."
)
flags.DEFINE_string("coordinator", None, "host:port of process 0, where no cluster tells of it.")
flags.DEFINE_integer("num_processes", None, "Processes of the run, with --coordinator.")
flags.DEFINE_integer("process_id", None, "Which of them this one is, from 0, with --coordinator.")
flags.DEFINE_float("peer_timeout", 60.0, "Seconds after which a process that is not heard from ends the run.")
flags.DEFINE_integer("max_length", None, "Tokens a request may have; absent: the suite's own rule.")
flags.DEFINE_integer("token_budget", None, "Places of a device's batch; absent: sized from the device.")
flags.DEFINE_enum(
    "human_baseline",
    "B",
    ["A", "B"],
    "Human values that gaps are drawn to: A, MERA's published table, drops samples without 3 equal votes; B, its "
    "leaderboard, drops none.",
)
flags.DEFINE_string(
    "detox_scorer",
    None,
    "package.module:function(originals, rewrites) -> style, meaning, fluency from 0 to 1, for ruDetox; absent: J is null.",
)
flags.DEFINE_integer("seed", 0, "For draws that no protocol fixes.")
flags.DEFINE_string(
    "export",
    None,
    "tasks: write the rows of miron-gen and eval-ua-tion-gen, with all that is known of them, into this folder.",
)
flags.DEFINE_string(
    "articles",
    None,
    "tasks --export: sets of titles from articles of your own instead: JSON objects with title, text, tags.",
)
flags.DEFINE_bool(
    "mask_number_words", False, "tasks --articles: Ukrainian words for 1 to 99 are masked too, not only digits."
)
flags.DEFINE_bool(
    "resume",
    True,
    "Use a folder that holds a run of this configuration; --noresume wants an empty one.",
)
flags.DEFINE_bool("allow_code_execution", False, "Run programs that the model writes, in a sandbox (bubblewrap).")
flags.DEFINE_bool(
    "allow_unsandboxed_code",
    False,
    "Run them where there is no sandbox too, under limits alone: the machine may be lost.",
)
flags.DEFINE_bool(
    "allow_changed_data", False, "Score data files that are not as published; then no composite is named."
)
flags.DEFINE_string(
    "compilation_cache", None, "Folder of compiled programs; absent: ~/.cache/miron_jax/programs, empty: none."
)
flags.DEFINE_list("annotations", None, "humans: files with one answer a line, TSV or CSV, of one task.")
flags.DEFINE_list("input_columns", None, "humans: columns that make an item; absent: all that begin with INPUT:.")
flags.DEFINE_string("answer_column", "", "humans: column of answers; absent: the one that begins with OUTPUT:.")
flags.DEFINE_string(
    "control_column",
    "",
    "humans: column of right answers of control tasks, empty elsewhere; absent: GOLDEN: of the answer's.",
)
flags.DEFINE_string("worker_column", "ASSIGNMENT:worker_id", "humans: column that names the annotator.")
flags.DEFINE_enum(
    "project",
    "plain",
    ["plain", "ruhhh", "rutie", "ruethics", "rudetox"],
    "humans: how people were asked, for MERA's projects that differ; a file of your own is plain.",
)
flags.DEFINE_string("skills", None, "humans: table of worker_id and skill_value, which decides ties of procedure B.")
flags.DEFINE_string(
    "gold",
    None,
    "humans: right answers: lcs, brackets, arithmetic, or a table of the item's columns and the right answer.",
)
flags.DEFINE_string(
    "mera_submission", None, "report: write the answers of the run in --output as a submission to MERA's site: out.zip."
)
flags.DEFINE_string(
    "check_submission", None, "report: say what MERA's site will say of this zip, wherever it was made."
)
flags.DEFINE_bool("robustness", False, "report: how far the scores of the run in --output hang on wording.")
flags.DEFINE_enum("mera_version", "v1.2", ["v1", "v1.2"], "Of --mera_submission and --check_submission.")


def main() -> None:
    """Entry point of the `miron-jax` command."""
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h", "help"):
        print(_usage())
        sys.exit(0)
    if command not in _COMMANDS:
        print(f"miron-jax: unknown command {command!r}, expected one of {', '.join(_COMMANDS)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    action, _ = _COMMANDS[command]
    app.run(lambda rest: _guarded(action, rest), argv=[f"miron-jax {command}", *arguments[1:]], flags_parser=_parse)


def _usage() -> str:
    lines = [f"  miron-jax {name:6} {text}" for name, (_, text) in _COMMANDS.items()]
    return "\n".join(["usage: miron-jax COMMAND [flags]; miron-jax COMMAND --help lists the flags", *lines])


def _parse(arguments: Sequence[str]) -> list[str]:
    if any(argument in ("--help", "-help", "-h", "--helpshort", "--helpfull") for argument in arguments):
        print(f"{_usage()}\n\n{FLAGS.module_help(FLAGS.find_module_defining_flag('model'))}")
        sys.exit(0)
    try:
        return FLAGS(list(arguments))
    except flags.Error as error:
        print(f"miron-jax: {error}; miron-jax eval --help lists the flags", file=sys.stderr)
        sys.exit(BAD_INPUT)


def _guarded(action: Callable[[], None], rest: Sequence[str]) -> int:
    """Run a command; turn what it raises into a sentence and an exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = partial(_raise_again, sys.unraisablehook)
    logging.set_verbosity(logging.WARNING)  # jax tells at INFO which backends it looked for
    if rest[1:]:
        print(f"miron-jax: {rest[1]!r} is no flag, expected --name=value", file=sys.stderr)
        return BAD_INPUT
    if _wants_others() and (status := _supervised()) is not None:
        return status
    try:
        action()
    except InputError as error:
        return _told(BAD_INPUT, str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _told(BAD_INPUT, f"{where}{error.strerror or error}: check that it is there and may be used")
    except KeyboardInterrupt as interrupt:
        _told(INTERRUPTED, "interrupted; what is scored is kept, run the same command again")
        if isinstance(interrupt, _Terminated):  # a machine that is taken away does not wait for threads that read ahead
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        return INTERRUPTED
    except (SystemExit, Exception) as error:
        if _hosts is None:
            raise
        if isinstance(error, SystemExit):
            _hosts.fail(FAILED, "its run failed")
        traceback.print_exc()
        _hosts.fail(FAILED, f"{type(error).__name__}: {error}")
    return 0


def _supervised() -> int | None:
    """The exit status of a copy of this process that does the work; None in the copy.

    Where the coordinator's process dies, jax ends the others by SIGABRT, and no handler of theirs runs: what happened is
    told from here.  Called before jax is imported: nothing but this thread is there to be copied.
    """
    met, says_so = os.pipe()
    child = os.fork()
    if not child:
        global _met
        os.close(met)
        _met = says_so
        faulthandler.disable()  # absl's: its walk through threads that still run may turn jax's SIGABRT into SIGSEGV
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a supervisor that is killed takes it along
        return None
    os.close(says_so)
    os.set_blocking(met, False)
    has_met = told_early = False

    def pass_on(number: int, _: Any) -> None:
        nonlocal has_met, told_early
        with contextlib.suppress(BlockingIOError):
            has_met = has_met or bool(os.read(met, 1))
        told_early = told_early or not has_met  # the child waits in jax, where no handler of its own runs
        os.kill(child, number if has_met else signal.SIGKILL)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    _, ended = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    if told_early:
        print("miron-jax: interrupted before all processes had met; run the same command again", file=sys.stderr)
        return INTERRUPTED
    if status == -signal.SIGABRT:
        print(
            "miron-jax: this process has lost process 0, which coordinates the run: it was killed, or its machine is gone; "
            "what is scored is kept, run the same command again",
            file=sys.stderr,
        )
        return INTERRUPTED
    return status if status >= 0 else 128 - status


def _told(status: int, message: str) -> int:
    print(f"miron-jax: {message}", file=sys.stderr, flush=True)
    if _hosts is not None:
        _hosts.fail(status, message)
    return status


class _Terminated(KeyboardInterrupt):
    """SIGTERM: notice of preemption."""


def _interrupt(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is finished is written now, whatever else is sent
    raise _Terminated


def _raise_again(tell: Callable[[Any], None], dropped: Any) -> None:
    """Python drops what is raised inside a destructor or a callback: a signal that came just then is not to be lost."""
    if isinstance(dropped.exc_value, _Terminated):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
    else:
        tell(dropped)


def _run_config() -> RunConfig:
    return RunConfig(
        model=FLAGS.model,
        tasks=_tasks_asked(),
        tokenizer=_local(FLAGS.tokenizer),
        data_dir=_data_dir(),
        icl_tasks=_local(FLAGS.icl_tasks),
        eval_gauntlet=_local(FLAGS.eval_gauntlet),
        limit=FLAGS.limit,
        items_per_category=FLAGS.items_per_category,
        output=FLAGS.output if is_url(FLAGS.output) else str(Path(FLAGS.output).expanduser()),
        dtype=FLAGS.dtype,
        attention=FLAGS.attention,
        sharding=FLAGS.sharding,
        mesh=parse_mesh(FLAGS.mesh),
        max_length=FLAGS.max_length,
        token_budget=FLAGS.token_budget,
        checkpoint=_local(FLAGS.checkpoint),
        param_map=_local(FLAGS.param_map),
        steps=FLAGS.steps,
        watch=FLAGS.watch,
        tensorboard=_local(FLAGS.tensorboard),
        wandb=FLAGS.wandb,
        watch_timeout=FLAGS.watch_timeout,
        human_baseline=FLAGS.human_baseline,
        detox_scorer=FLAGS.detox_scorer,
        seed=FLAGS.seed,
        resume=FLAGS.resume,
        allow_code_execution=FLAGS.allow_code_execution,
        allow_unsandboxed_code=FLAGS.allow_unsandboxed_code,
        allow_changed_data=FLAGS.allow_changed_data,
    )


def _tasks_asked() -> tuple[str, ...]:
    if FLAGS.tasks is None and FLAGS.icl_tasks:
        return ("own-gauntlet",)
    if FLAGS.tasks is None:
        return ("miron-gen",) if FLAGS.model == "demo" else ("core",)
    return tuple(name for name in FLAGS.tasks if name)


def _local(name: str | None) -> str | None:
    return str(Path(name).expanduser()) if name and name.startswith("~") else name


def _data_dir() -> tuple[tuple[str, str], ...]:
    from miron_jax.tasks.registry import SUITE_NAMES

    return parse_data_dir(FLAGS.data_dir, SUITE_NAMES)


def _eval() -> None:
    start = time.perf_counter()
    config = _run_config()
    if config.watch and _wants_others():
        raise InputError("--watch waits for steps on one host: leave out --distributed and --coordinator, or --watch")
    if config.output.startswith("memory:") and _wants_others():
        raise InputError(f"--output={config.output} is seen by one process only: name a folder that all of them share")
    _start_jax()
    hosts = _join()  # before transformers is imported, which looks whether it is to stay offline
    _check_same_flags(config, hosts)
    from miron_jax.report.results import check_output

    store = check_output(config)
    if not hosts.is_first:
        _score_along(config, store, hosts)
        hosts.end()
        return
    with Lock(store), together(store, hosts):
        _eval_into(config, store, hosts, start)
    hosts.end()


def _join() -> "Hosts":
    """The processes of this run, before jax starts its backend."""
    global _hosts
    from miron_jax.hosts import Hosts, join

    if not _wants_others():
        return Hosts()
    _check_processes()
    _hosts = join(FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id, FLAGS.peer_timeout)
    if _met is not None:
        os.write(_met, b"met")
    if not _hosts.is_first:
        os.environ["HF_HUB_OFFLINE"] = "1"  # what process 0 has fetched is in the cache that the hosts share
    return _hosts


def _check_processes() -> None:
    address, count, index = FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id
    if not 5 <= FLAGS.peer_timeout <= 86400:
        raise InputError(f"--peer_timeout is {FLAGS.peer_timeout:g}, expected seconds from 5 to 86400")
    if FLAGS.distributed and (address, count, index) == (None, None, None):
        return
    if None in (address, count, index):
        raise InputError(
            "--coordinator, --num_processes and --process_id go together: give all three to each process, or "
            "--distributed where the cluster tells of them"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"--coordinator={address}, expected host:port of process 0, such as 10.0.0.2:8476")
    if count < 1 or not 0 <= index < count:
        raise InputError(
            f"--process_id={index} of --num_processes={count}: expected one of 0 to {max(count, 1) - 1}, each of its own"
        )
    print(f"miron-jax: process {index} meets the others ({count} in all) at {address}", file=sys.stderr, flush=True)


def _check_same_flags(config: RunConfig, hosts: "Hosts") -> None:
    """Places of files may differ from host to host; what is scored, and how, may not."""
    own = {name: value for name, value in json.loads(json.dumps(asdict(config))).items() if name not in _PLACES}
    for name, value in hosts.agree("flags", own).items():
        if own[name] != value:
            raise InputError(
                f"process {hosts.index} runs with {name} = {own[name]}, process 0 with {name} = {value}: give all processes "
                "the same flags"
            )


def _wants_others() -> bool:
    return FLAGS.distributed or any(
        own is not None for own in (FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id)
    )


def _score_along(config: RunConfig, store: Store, hosts: "Hosts") -> None:
    """A process that is not the first: its share of the work, into the folder that the first one checks and fills."""
    from miron_jax.run import evaluate_checkpoints, find_inputs

    with together(store, hosts):
        inputs = hosts.first_then_others("data", lambda: find_inputs(config, fetch=False))
        for _ in evaluate_checkpoints(config, inputs, lambda line: None, store=store, hosts=hosts):
            raise AssertionError("only the first process has results")


def _eval_into(config: RunConfig, store: Store, hosts: "Hosts", start: float) -> None:
    from miron_jax.model.training_run import Checkpoint
    from miron_jax.report.curves import curves_table
    from miron_jax.report.loggers import numbers_of, open_loggers
    from miron_jax.report.progress import Progress
    from miron_jax.report.results import stored_results, write_curves, write_results, write_top
    from miron_jax.report.table import print_results
    from miron_jax.run import evaluate_checkpoints, find_inputs
    from miron_jax.scores import SelfCheckFailed

    inputs = hosts.first_then_others("data", lambda: find_inputs(config))
    loggers = open_loggers(config)

    def log(step: int | None, found: dict[str, Any]) -> None:
        for logger in loggers:
            logger.log(step or 0, numbers_of(found))

    with Progress() as progress:
        for name, path in inputs.missing.items():
            progress.say(f"{name} is left out: {path} is missing")
        results: dict[str, Any] = {}
        broken: list[str] = []
        unread: InputError | None = None
        of_step: dict[int, dict[str, Any]] = {}
        lap = start

        def scored(checkpoint: Checkpoint) -> bool:
            stored = stored_results(config, checkpoint, inputs)
            if stored is not None and checkpoint.step is not None:
                of_step[checkpoint.step] = stored
                log(checkpoint.step, stored)
            return stored is not None

        try:
            for step, outcome in evaluate_checkpoints(
                config, inputs, progress.say, progress.advance, scored, store, hosts
            ):
                results = write_results(config, outcome, time.perf_counter() - lap, step)
                broken += _broken(outcome, step)
                log(step, results)
                if step is not None:
                    of_step[step] = results
                    lap = time.perf_counter()
        except SelfCheckFailed as error:
            progress.say(f"miron-jax: {error}")
            sys.exit(FAILED)
        except InputError as error:
            if not of_step:
                raise
            unread = error  # told behind what the other steps have scored
        finally:
            for logger in loggers:
                logger.close()
    if of_step:
        results = write_top(config, of_step, time.perf_counter() - start)
    if not results:
        raise InputError(
            f"--model={config.model}: no checkpoint came within --watch_timeout; start the training, or wait longer"
        )
    print_results(progress.tables, results)
    if of_step:
        curves = write_curves(config, of_step)
        progress.tables.print(curves_table(of_step))
        progress.tables.print(f"curves: {curves}", markup=False, soft_wrap=True)
    progress.tables.print(f"written to {config.output}/results.json", markup=False, soft_wrap=True)
    for line in broken:
        progress.say(f"miron-jax: {line}")
    if unread is not None:
        raise unread
    if broken:
        sys.exit(FAILED)


def _broken(outcome: "Outcome", step: int | None) -> list[str]:
    """A sentence a task whose examples the model answered with NaN; they count as skipped, what was scored is written."""
    from miron_jax.aggregate import unanswered

    at = "" if step is None else f" at step {step}"
    found = [(task.source.task.name, unanswered(task)) for task in outcome.tasks]
    return [
        f"{name}: the model answers NaN{at} to {len(ids)} examples, each asked alone too (the first: {ids[0]}), so the run "
        "fails: look for an overflow, such as weights too large for --dtype"
        for name, ids in found
        if ids
    ]


def _plan() -> None:
    config = _run_config()
    _start_jax()
    from miron_jax.report.plan_table import print_plan
    from miron_jax.run import find_inputs, summarize_plan

    inputs = find_inputs(config, runs=False)
    print_plan(inputs, summarize_plan(config, inputs))


def _bench() -> None:
    config = _run_config()
    if _wants_others():
        raise InputError("bench measures one process: leave out --distributed and --coordinator")
    _start_jax()
    from miron_jax.bench import measure
    from miron_jax.report.bench_table import print_bench
    from miron_jax.report.console import console
    from miron_jax.report.results import config_entry, environment
    from miron_jax.run import find_inputs

    inputs = find_inputs(config)
    output = _output_beside("miron-bench")
    store = Store(output)
    found = measure(config, inputs, lambda line: console(stderr=True).print(line, markup=False, soft_wrap=True))
    document = {"config": config_entry(config), "environment": environment(), **asdict(found)}
    store.put("bench.json", json.dumps(document, indent=1).encode())
    print_bench(found)
    print(f"written to {output}/bench.json")


def _humans() -> None:
    from miron_jax.humans.annotations import PROJECTS, Columns, read_annotations, read_skills
    from miron_jax.humans.baseline import baseline
    from miron_jax.humans.glad import abilities
    from miron_jax.humans.gold import rule_of
    from miron_jax.report.human_table import print_baseline

    if not FLAGS.annotations:
        raise InputError(
            "humans wants --annotations, the files of answers: Toloka TSV, or CSV with the columns named by flags"
        )
    paths = [Path(name).expanduser() for name in FLAGS.annotations]
    if FLAGS.project == "rudetox":
        _rewrites(paths)
        return
    named = Columns(tuple(FLAGS.input_columns or ()), FLAGS.answer_column, FLAGS.control_column, FLAGS.worker_column)
    project = PROJECTS[FLAGS.project]
    found = read_annotations(paths, named, project)
    rule = None if FLAGS.gold is None else rule_of(FLAGS.gold, found.inputs)
    skills = {} if FLAGS.skills is None else read_skills(Path(FLAGS.skills).expanduser())
    told, labels = baseline(found, rule, skills, project=project, glad=abilities)
    output = _output_beside("miron-humans")
    store = Store(output)
    lines = [{**dict(zip(found.inputs, item, strict=True)), "label": label} for item, label in labels.items()]
    store.put("human_labels.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    document = {"files": FLAGS.annotations, "gold": FLAGS.gold, **asdict(told)}
    store.put("humans.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode())
    print_baseline(told)
    print(f"written to {output}/humans.json and human_labels.jsonl")


def _rewrites(paths: list[Path]) -> None:
    """ruDetox's three projects: the pairs that pass all of them, and J of people's rewrites where classifiers are given."""
    from miron_jax.humans.detox import kept_pairs
    from miron_jax.metrics.detox import detox_scores
    from miron_jax.model.own import import_from

    kept = kept_pairs(paths)
    told = {"labelled": kept.labelled, "rejected": kept.rejected, "kept": len(kept.pairs), "j": None}
    if FLAGS.detox_scorer is not None and kept.pairs:
        scorer = import_from(FLAGS.detox_scorer, "--detox_scorer")
        found = detox_scores(scorer, *map(list, zip(*kept.pairs, strict=True)))
        told |= {name: sum(own[name] for own in found) / len(found) for name in found[0]}
    output = _output_beside("miron-humans")
    store = Store(output)
    lines = [{"toxic": toxic, "rewrite": rewrite} for toxic, rewrite in kept.pairs]
    store.put("pairs.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    store.put("humans.json", json.dumps({"files": FLAGS.annotations, **told}, indent=1).encode())
    for name, count in kept.labelled.items():
        print(f"{name}: {count} items with three equal votes, {kept.rejected[name]} annotators rejected")
    j = "null, for it wants --detox_scorer" if told["j"] is None else f"{told['j']:.4f}"
    print(f"{len(kept.pairs)} pairs pass all three; J {j}\nwritten to {output}/humans.json and pairs.jsonl")


def _report() -> None:
    from miron_jax import submissions

    version = FLAGS.mera_version
    if FLAGS.mera_submission is None and FLAGS.check_submission is None and not FLAGS.robustness:
        raise InputError("report wants --robustness, --mera_submission=out.zip, or --check_submission=in.zip")
    if FLAGS.robustness:
        from miron_jax.report.robustness_table import print_robustness

        print_robustness(Path(FLAGS.output).expanduser())
    if FLAGS.mera_submission is not None:
        path = Path(FLAGS.mera_submission).expanduser()
        exported = submissions.export(Path(FLAGS.output).expanduser(), path, version)
        print(f"written to {path}: {', '.join(exported.written)}")
        if exported.absent:
            print(f"not in it, so the site will refuse it (no_task): {', '.join(exported.absent)}")
    if FLAGS.check_submission is not None:
        folders = dict(_data_dir())
        folder = folders.get(f"mera-{version}", folders.get(""))
        if not submissions.check(Path(FLAGS.check_submission).expanduser(), version, Path(folder) if folder else None):
            raise InputError(
                f"{FLAGS.check_submission}: the site will refuse it for the faults above: mend those files"
            )


def _output_beside(default: str) -> str:
    """--output, or a folder that no run of eval is to find its place taken in."""
    return default if FLAGS["output"].using_default_value else FLAGS.output


def _tasks() -> None:
    from miron_jax.report.task_table import print_tasks
    from miron_jax.tasks.registry import export, suites

    if FLAGS.articles is not None and FLAGS.export is None:
        raise InputError("--articles wants --export=FOLDER, where its sets of titles are written")
    if FLAGS.mask_number_words and FLAGS.articles is None:
        raise InputError("--mask_number_words wants --articles=FILE, whose number words are to be hidden")
    if FLAGS.export is not None:
        own = Path(FLAGS.articles).expanduser() if FLAGS.articles else None
        for path in export(Path(FLAGS.export).expanduser(), FLAGS.items_per_category, own, FLAGS.mask_number_words):
            print(path)
        return

    print_tasks(suites(_local(FLAGS.icl_tasks), _local(FLAGS.eval_gauntlet)).values(), _data_dir())


def _start_jax() -> None:
    """Flags, precision and cache, before the first program is compiled."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    set_backend_flags()
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    folder = FLAGS.compilation_cache
    if folder is None:
        folder = str(Path.home() / ".cache" / "miron_jax" / "programs")
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


# Flags that name files: what is in them is compared where it is read.
_PLACES = (
    "model",
    "tokenizer",
    "data_dir",
    "icl_tasks",
    "eval_gauntlet",
    "output",
    "checkpoint",
    "param_map",
    "tensorboard",
)

_COMMANDS: dict[str, tuple[Callable[[], None], str]] = {
    "eval": (_eval, "score a model on tasks"),
    "tasks": (_tasks, "list suites and tasks, what data each needs and whether it is there"),
    "bench": (
        _bench,
        "throughput of these devices on a model: tokens/s, share of the matmul peak, what each idea is worth",
    ),
    "humans": (_humans, "crowd annotations to a human baseline: filter, votes, agreement, accuracy"),
    "report": (_report, "how far a run's scores hang on wording; its answers as a submission to MERA's site"),
    "plan": (_plan, "what eval would do: requests, tokens, rows, programs, FLOPs; no device"),
}

if __name__ == "__main__":
    main()
