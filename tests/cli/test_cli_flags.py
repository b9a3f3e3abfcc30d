"""Flags: what help prints of them, which command takes which, their defaults; the flag that XLA needs."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import jaxlib.version
import pytest
from absl import flags

from miron_jax import __version__
from miron_jax.cli import COMMANDS
from miron_jax.cli.flags import EVERY, OF_COMMAND, define
from miron_jax.cli.help import SCREEN, help_of, welcome
from miron_jax.cli.parse import flags_of_others
from miron_jax.cli.run_config import run_config
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.runtime import backend
from tests.support.command import common

PAGES = """
import io, json, os, sys
from contextlib import redirect_stdout
from miron_jax.cli import COMMANDS, main

pages = {}
for arguments in [(command, flag) for command in COMMANDS for flag in ("--help", "--helpfull")]:
    sys.argv, page = ["miron-jax", *arguments], io.StringIO()
    try:
        with redirect_stdout(page):
            main()
    except SystemExit as ended:
        pages[" ".join(arguments)] = page.getvalue().rstrip() if not ended.code else f"status {ended.code}"
print(json.dumps([pages, "jax" in sys.modules, os.environ.get("XLA_FLAGS", "")]))
"""


@pytest.fixture(scope="module")
def process() -> Any:
    """Pages of help, whether jax was imported for them, and the XLA flags, of a process to which nobody gave any."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    ran = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True, env=environment)
    return json.loads(ran.stdout)


def test_help_is_quick_and_the_command_sets_the_backend_flag_itself(process: Any) -> None:
    _, has_jax, xla_flags = process
    assert not has_jax
    applies = (0, 10, 2) <= tuple(map(int, jaxlib.version.__version__.split(".")[:3])) < (0, 12)
    assert xla_flags == ("--xla_cpu_experimental_ynn_fusion_type=individual_dot" if applies else "")


def test_the_backend_flag_is_of_the_versions_that_miscompile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_too_late", False)
    for version, given, expected in (
        ("0.10.1", "", ""),
        ("0.10.2", "", "YNN=individual_dot"),
        ("0.11.9", "--other=1", "--other=1 YNN=individual_dot"),
        ("0.11.0", "YNN=off", "YNN=off"),
        ("0.12.0", "--other=1", "--other=1"),
    ):
        monkeypatch.setattr(backend, "jaxlib_version", version)
        monkeypatch.setenv("XLA_FLAGS", given.replace("YNN", backend.YNN_FLAG))
        backend.set_backend_flags()
        assert os.environ["XLA_FLAGS"] == expected.replace("YNN", backend.YNN_FLAG), (version, given)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_one_screen_and_full_help_a_screen_a_topic(command: str, process: Any) -> None:
    """Both name every flag of the command, and no other."""
    pages = process[0]
    lines = pages[f"{command} --help"].splitlines()
    assert len(lines) <= SCREEN
    assert all(len(line) <= 120 for line in lines)
    assert set(re.findall(r"--(?:\[no\])?(\w+)", "\n".join(lines))) >= {*OF_COMMAND[command], "flagfile"}

    topics = topics_of(pages[f"{command} --helpfull"])
    if command in ("eval", "plan", "bench"):
        headings = "Model, Tasks, Fewer examples, Answers of others, Output, Screen, Devices, Hosts, Flag files"
        assert ", ".join(topics) == headings
    assert all(text.count("\n") < 43 for text in topics.values())
    assert all(len(line) <= 110 for text in topics.values() for line in text.splitlines())
    named = re.findall(r"^  --(?:\[no\])?(\w+)", "\n".join(topics.values()), re.M)
    assert sorted(named) == sorted([*OF_COMMAND[command], "flagfile"])


@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_fits_the_screen_and_names_every_flag(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, welcome().partition("Commands:")[2].splitlines())) <= width
    for command in COMMANDS:
        for page in (help_of(command), help_of(command, full=True)):
            assert max(map(len, page.splitlines())) <= min(width, 110), page
            assert set(re.findall(r"--(?:\[no\])?(\w+)", page)) >= {*OF_COMMAND[command], "flagfile"}


def topics_of(page: str) -> dict[str, str]:
    """Heading -> text, of what `miron-jax COMMAND --helpfull` prints."""
    _, *topics = page.split("\n\n")
    return {heading: text for heading, _, text in (topic.partition(":\n") for topic in topics)}


def test_help_tells_defaults_and_values(process: Any) -> None:
    topics = topics_of(process[0]["eval --helpfull"])
    tasks = topics["Tasks"]
    assert "--items_per_category=N\n      Items of each language and category of miron-gen. (default: 500)" in tasks
    assert "--human_baseline=A|B" in topics["Answers of others"]
    assert "Only the first n examples of each task, after the suite's own shuffle.\n" in tasks, "no default is none"
    assert "--[no]resume" in topics["Output"]
    assert "(default: 60)" in topics["Hosts"]


def test_the_command_alone_says_where_to_begin(miron) -> None:
    for arguments in ((), ("--help",), ("help",)):
        ran = miron(*arguments)
        assert ran.status == 0
        assert "Begin here:\n  miron-jax eval\n      the demo model" in ran.out
        assert max(map(len, ran.out.partition("Commands:")[0].splitlines())) <= 80
        assert all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert miron("--version").out == f"miron-jax {__version__}\n"


FLAGS = """
    model steps checkpoint param_map params_key watch watch_timeout tensorboard wandb tokenizer tasks data_dir
    icl_tasks eval_gauntlet task_path requests limit items_per_category output dtype attention sharding mesh
    distributed coordinator num_processes process_id peer_timeout max_length token_budget human_baseline detox_scorer
    seed export articles stories story_prompts distractors mask_number_words templates words resume allow_code_execution
    allow_unsandboxed_code
    allow_changed_data compilation_cache annotations input_columns answer_column control_column worker_column project
    votes_needed skills gold mera_submission check_submission robustness mera_version topology save_requests
    save_byte_losses results_format stride describe check metric last json html markdown csv against plan_cache until budget
    larger human mde write quiet verbose special_tokens num_fewshot verify generated rows token_stats
    every_eval_ever hub_yaml hub_tasks pictures mlflow comet trackio newest_first keep_up average axis parameters
    tokens predict subset reference controls chat_template human_labels fewshot_draws
    page answers control_rows verdicts corrections planner_processes
    twins test_rows
"""


def test_every_flag_is_of_a_command_and_each_command_defines_its_flags_alone() -> None:
    assert set(FLAGS.split()) == set(EVERY) == {name for names in OF_COMMAND.values() for name in names}
    for command in COMMANDS:
        define(command)
        defined = {flag.name for flag in flags.FLAGS.flags_by_module_dict()["miron_jax.cli.flags"]}
        assert defined == set(OF_COMMAND[command]), command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("tasks --limit=3", "miron-jax tasks: --limit is a flag of eval, plan, bench, humans, not of tasks; miron-"),
        ("tasks --noresume", "miron-jax tasks: --resume is a flag of eval, plan, bench, not of tasks"),
        ("humans --input_column=a", "humans: there is no flag --input_column; the nearest is --input_columns; "),
        ("eval --limt 3", "miron-jax eval: there is no flag --limt; the nearest is --limit; miron-jax eval --help"),
        ("mera --mera_submision=x", "the nearest is --mera_submission"),
        ("eval --zzz=1", "miron-jax eval: there is no flag --zzz; miron-jax eval --help"),
        ("eval --batch_size=8", "there is no flag --batch_size: a batch has as many slots as suit the device, and --to"),
        ("eval --device cuda", "there is no flag --device: all devices of this machine run, and JAX_PLATFORMS=cpu"),
        ("eval --model_args pretrained=x", "there is no flag --model_args: --model=FOLDER names the model"),
        ("eval --max-per-task=16", "there is no flag --max-per-task: --limit=N takes the first examples of each task"),
        ("eval --token-budget=16", "there is no flag --token-budget: names of flags have underscores, --token_budget;"),
        ("report --export=x", "--export is a flag of tasks, not of report"),
        ("eval --mask_number_words", "--mask_number_words is a flag of tasks, not of eval"),
        ("tasks --tasks=core", "not of tasks; the nearest of tasks is --icl_tasks; "),
        ("eval --noresume=3", "--noresume=3 does not take an argument; miron-jax eval --help"),
        *((f"{command} --annotations=1", f"{command}: --annotations is a flag of humans, not of {command}; ")
          for command in COMMANDS if command != "humans"),
    ],
)  # fmt: skip
def test_an_unknown_flag_is_answered_with_its_command_or_the_nearest(miron, arguments: str, sentence: str) -> None:
    ran = miron(*arguments.split())
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.endswith(f"; miron-jax {arguments.split()[0]} --help lists the flags\n")
    assert ran.err.count("\n") == 1


def test_no_flag_of_another_program_is_a_flag_here() -> None:
    assert flags_of_others().keys().isdisjoint(EVERY)
    for flag, advice in flags_of_others().items():
        for name in re.findall(r"--(\w+)", advice):
            assert name in EVERY, (flag, name)


def test_a_flagfile_holds_flags_of_its_command(miron, place, tmp_path) -> None:
    path = tmp_path / "job.flags"
    path.write_text("\n".join(common(place, tmp_path / "out", "--limit=12")))
    ran = miron("plan", f"--flagfile={path}")
    assert ran.status == 0, ran.err
    assert "unique tokens" in ran.out
    assert "useful FLOPs" in ran.out
    assert not (tmp_path / "out").exists()
    path.write_text(f"--limit=3\n--data_dir={tmp_path}\n")
    ran = miron("tasks", f"--flagfile={path}")
    assert ran.status == 2
    sentence = "--limit is a flag of eval, plan, bench, humans, not of tasks (it stands in a --flagfile, which may"
    assert sentence in ran.err
    assert miron("tasks", f"--flagfile={path}", "--undefok=limit").status == 0
    path.write_text("--distributd\n")
    assert "there is no flag --distributd (it stands in a --flagfile" in miron("eval", f"--flagfile={path}").err


def test_what_makes_another_run_and_what_names_files() -> None:
    """The two lists that stood beside RunConfig, before its fields said so themselves."""
    assert {name for name, setting in SETTINGS.items() if not setting.identity} == {
        "output", "resume", "token_budget", "sharding", "mesh", "steps", "watch", "watch_timeout", "tensorboard", "wandb",
        "save_requests", "save_byte_losses", "results_format", "against", "mlflow", "comet", "trackio",
        "newest_first", "keep_up", "average",
    }  # fmt: skip
    assert {name for name, setting in SETTINGS.items() if setting.is_path} == {
        "model", "tokenizer", "data_dir", "icl_tasks", "eval_gauntlet", "output", "checkpoint", "param_map", "tensorboard",
        "task_path", "requests", "against", "generated", "human_labels",
    }  # fmt: skip


def test_tasks_of_a_file_that_compare_has_written(miron, monkeypatch, tmp_path) -> None:
    configs = []
    monkeypatch.setattr("miron_jax.cli.plan.command", lambda: configs.append(run_config()))
    (tmp_path / "subset.json").write_text('{"tasks": ["core/copa", "miron/en"], "budget": 5}')
    assert miron("plan", f"--tasks=core/piqa,@{tmp_path}/subset.json").status == 0
    assert configs[0].tasks == ("core/piqa", "core/copa", "miron/en")


def test_a_flag_that_is_not_given_leaves_the_fields_default(miron, monkeypatch) -> None:
    configs = []
    monkeypatch.setattr("miron_jax.cli.plan.command", lambda: configs.append(run_config()))
    assert miron("plan").status == 0
    assert configs == [RunConfig(model="demo", tasks=("miron-gen",))]
