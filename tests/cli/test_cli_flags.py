"""Flags: what help prints of them, which command takes which, their defaults."""

import os
import re
import subprocess
import sys

import jaxlib.version
import pytest

from miron_jax import __version__
from miron_jax.cli import COMMANDS
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.cli.help import SCREEN
from miron_jax.config import SETTINGS
from tests.support.command import common


def test_flagfile_and_plan(miron, place, tmp_path):
    flagfile = tmp_path / "job.flags"
    flagfile.write_text("\n".join(common(place, tmp_path / "out", "--limit=12")))
    ran = miron("plan", f"--flagfile={flagfile}")
    assert ran.status == 0, ran.err
    assert "unique tokens" in ran.out
    assert "useful FLOPs" in ran.out
    assert not (tmp_path / "out").exists()


def test_help_lists_the_flags():
    script = [sys.executable, "-c", "from miron_jax.cli import main; main()", "eval", "--help"]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--data_dir" in ran.stdout
    assert "--max_length" in ran.stdout


def help_of(command: str) -> dict[str, list[str]]:
    """Heading of a topic -> its lines, of what `miron-jax COMMAND --helpfull` prints."""
    text = printed_help(command, "--helpfull")
    _, *topics = text.split("\n\n")
    return {lines[0].removesuffix(":"): lines[1:] for lines in (topic.splitlines() for topic in topics)}


def printed_help(*arguments: str) -> str:
    script = [
        sys.executable,
        "-c",
        "import sys; from miron_jax.cli import main\ntry: main()\nfinally: print('jax' in sys.modules)",
    ]
    ran = subprocess.run([*script, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    text, _, has_jax = ran.stdout.rstrip().rpartition("\n")
    assert has_jax == "False", "help is quick"
    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_one_screen_that_names_every_flag(command: str) -> None:
    lines = printed_help(command, "--help").splitlines()
    assert len(lines) <= SCREEN
    assert all(len(line) <= 120 for line in lines)
    named = set(re.findall(r"--(?:\[no\])?(\w+)", "\n".join(lines)))
    assert named >= {*OF_COMMAND[command], "flagfile"}


def test_the_command_alone_says_where_to_begin(miron) -> None:
    for arguments in ((), ("--help",), ("help",)):
        ran = miron(*arguments)
        assert ran.status == 0
        assert "Begin here:\n  miron-jax eval " in ran.out
        assert all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert miron("--version").out == f"miron-jax {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_full_help_has_a_screen_a_topic_and_the_flags_of_its_command_alone(command: str) -> None:
    topics = help_of(command)
    if command in ("eval", "plan", "bench"):
        assert list(topics) == [
            "Model",
            "Tasks",
            "Fewer examples",
            "Output",
            "Screen",
            "Devices",
            "Hosts",
            "Flag files",
        ]
    assert all(len(lines) < 44 for lines in topics.values())
    assert all(len(line) <= 110 for lines in topics.values() for line in lines)
    named = re.findall(r"^  --(?:\[no\])?(\w+)", "\n".join(line for lines in topics.values() for line in lines), re.M)
    assert sorted(named) == sorted([*OF_COMMAND[command], "flagfile"])


def test_help_tells_defaults_and_values() -> None:
    topics = help_of("eval")
    tasks = "\n".join(topics["Tasks"])
    assert "--items_per_category=N\n      Items of each language and category of miron-gen. (default: 500)" in tasks
    assert "--human_baseline=A|B" in tasks
    assert "Only the first n examples of each task, after the suite's own shuffle.\n" in tasks, "no default is none"
    assert "--[no]resume" in "\n".join(topics["Output"])
    assert "(default: 60)" in "\n".join(topics["Hosts"])


NEW = {
    "topology",
    "task_path",
    "requests",
    "save_requests",
    "save_byte_losses",
    "results_format",
    "stride",
    "describe",
    "check",
    "metric",
    "last",
    "json",
    "html",
    "markdown",
    "csv",
    "against",
    "until",
    "budget",
    "human",
    "mde",
    "params_key",
    "write",
    "quiet",
    "verbose",
}  # since then; fmt: skip


def test_every_flag_of_before_is_a_flag_of_a_command() -> None:
    """The flags of the command when one list served all of its parts."""
    before = (
        "model steps checkpoint param_map watch watch_timeout tensorboard wandb tokenizer tasks data_dir icl_tasks "
        "eval_gauntlet limit items_per_category output dtype attention sharding mesh distributed coordinator num_processes "
        "process_id peer_timeout max_length token_budget human_baseline detox_scorer seed export articles stories "
        "mask_number_words resume allow_code_execution allow_unsandboxed_code allow_changed_data compilation_cache "
        "annotations input_columns answer_column control_column worker_column project skills gold mera_submission "
        "check_submission robustness mera_version"
    )
    assert set(before.split()) | NEW == set(EVERY) == {name for names in OF_COMMAND.values() for name in names}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_every_flag_of_another(miron, command: str) -> None:
    for name in set(EVERY) - set(OF_COMMAND[command]):
        ran = miron(command, f"--{name}=1")
        others = ", ".join(other for other, names in OF_COMMAND.items() if name in names)
        assert ran.status == 2
        assert ran.err.startswith(f"miron-jax {command}: --{name} is a flag of {others}, not of {command}; "), ran.err
        assert ran.err.endswith(f"miron-jax {command} --help lists the flags\n")
        assert ran.err.count("\n") == 1
        assert not ran.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["tasks", "--limit=3"],
            "miron-jax tasks: --limit is a flag of eval, plan, bench, not of tasks; miron-jax tasks",
        ),
        (["tasks", "--noresume"], "miron-jax tasks: --resume is a flag of eval, plan, bench, not of tasks"),
        (["humans", "--input_column=a"], "humans: there is no flag --input_column; the nearest is --input_columns; "),
        (
            ["eval", "--limt", "3"],
            "miron-jax eval: there is no flag --limt; the nearest is --limit; miron-jax eval --help",
        ),
        (["mera", "--mera_submision=x"], "the nearest is --mera_submission"),
        (["report", "--export=x"], "--export is a flag of tasks, not of report"),
        (["eval", "--mask_number_words"], "--mask_number_words is a flag of tasks, not of eval"),
        (["tasks", "--tasks=core"], "not of tasks; the nearest of tasks is --icl_tasks; "),
        (["eval", "--noresume=3"], "--noresume=3 does not take an argument; miron-jax eval --help"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest(miron, arguments: list[str], sentence: str) -> None:
    ran = miron(*arguments)
    assert ran.status == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_a_flagfile_holds_flags_of_its_command(miron, tmp_path) -> None:
    path = tmp_path / "job.flags"
    path.write_text(f"--limit=3\n--data_dir={tmp_path}\n")
    ran = miron("tasks", f"--flagfile={path}")
    assert ran.status == 2
    assert (
        "--limit is a flag of eval, plan, bench, not of tasks (it stands in a --flagfile, which may hold only"
        in ran.err
    )
    assert miron("tasks", f"--flagfile={path}", "--undefok=limit").status == 0
    path.write_text("--distributd\n")
    assert "there is no flag --distributd (it stands in a --flagfile" in miron("eval", f"--flagfile={path}").err


def test_what_makes_another_run_and_what_names_files() -> None:
    """The two lists that stood beside RunConfig, before its fields said so themselves."""
    assert {name for name, own in SETTINGS.items() if not own.identity} == {
        "output", "resume", "token_budget", "sharding", "mesh", "steps", "watch", "watch_timeout", "tensorboard", "wandb",
        "save_requests", "save_byte_losses", "results_format", "against",
    }  # fmt: skip
    assert {name for name, own in SETTINGS.items() if own.is_path} == {
        "model", "tokenizer", "data_dir", "icl_tasks", "eval_gauntlet", "output", "checkpoint", "param_map", "tensorboard",
        "task_path", "requests", "against",
    }  # fmt: skip


def test_a_flag_that_is_not_given_leaves_the_fields_default() -> None:
    code = """
from miron_jax.cli.parse import parse
from miron_jax.cli.run_config import run_config
from miron_jax.config import RunConfig

assert parse("plan", ["x"]) == ["x"]
assert run_config() == RunConfig(model="demo", tasks=("miron-gen",)), run_config()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_command_sets_the_backend_flag_itself(place, tmp_path):
    # conftest sets it for this process; the command has to do so where nobody else did.
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    probe = (
        "import os, sys; from miron_jax import cli; sys.argv = ['miron-jax', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "finally: print('FLAGS', os.environ.get('XLA_FLAGS', ''))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe, "plan", *common(place, tmp_path / "out", "--limit=11")],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    applies = (0, 10, 2) <= tuple(map(int, jaxlib.version.__version__.split(".")[:3])) < (0, 12)
    assert ("--xla_cpu_experimental_ynn_fusion_type=individual_dot" in ran.stdout) == applies
