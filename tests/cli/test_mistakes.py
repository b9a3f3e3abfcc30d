"""Mistakes of somebody's first hour: each is one sentence that says what is wrong and what to do, and exit status 2."""

import errno
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import pytest

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation import parts
from miron_jax.evaluation.task_kinds.interface import TokenizedExamples
from miron_jax.model import demo
from miron_jax.results.output import check_output
from miron_jax.tasks.registry import SUITES
from tests.support.command import common
from tests.support.docs_folder import CAPITALS_YAML
from tests.support.requests import requests_of
from tests.support.run_folders import samples_of, write_run
from tests.support.tiny_model import make_model, write_core_data

CORE = "--tasks=core/copa --data_dir=EVAL_BUNDLE --allow_changed_data"
# What is typed, and two parts of the sentence: what is wrong, what to do.
MISTAKES = {
    "evla --model=MODEL": ("unknown command 'evla'", "eval is the nearest"),
    "--model=MODEL --tasks=core": ("a command comes before its flags", "miron-jax eval --model=MODEL"),
    "eval --modle=MODEL": ("there is no flag --modle", "the nearest is --model"),
    "eval model=MODEL": ("'model=MODEL' is no flag", "expected --name=value"),
    "eval --tasks core arc_easy": ("'arc_easy' is no flag", "lists have commas and no spaces"),
    "report --model=MODEL": (
        "--model is a flag of eval, plan, bench, tasks, memorized, verify, not",
        "report --help lists",
    ),
    "eval --model=nowhere": ("no such folder here", "name a local folder or go online"),
    "eval --model=notes.txt": ("notes.txt", "folder"),
    "eval --model=empty " + CORE: ("empty", "config.json"),
    "eval --model=no_weights " + CORE: ("no_weights", "model.safetensors"),
    "eval --model=no_tokenizer " + CORE: ("no_tokenizer", "tokenizer"),
    "eval --model=my_model " + CORE: ("my_model.py is here", "--model=my_model:make"),
    "eval --model=my_model.py:make " + CORE: ("names a file, expected its module", "--model=my_model:function"),
    "eval --model=my_model:broken " + CORE: ("my_model.py, line 4 (ZeroDivisionError", "run the function by itself"),
    "eval --task_path=capitals.yaml --tasks=capitals": ("'capitals' is no suite", "did you mean own/capitals?"),
    "eval --model=my_model:create " + CORE: ("has no function create", "name one that it has"),
    "eval --model=my_model:make " + CORE: ("my_model:make", "OwnModel"),
    "eval --model=missing:make " + CORE: ("no module missing", "run where it lies, or set PYTHONPATH"),
    "eval --model=MODEL --tokenizer=nowhere " + CORE: ("--tokenizer=nowhere", "name a local folder or go online"),
    "eval --model=ORBAX " + CORE: (
        "--model=ORBAX holds Orbax checkpoints",
        "(miron-jax init model --checkpoint=ORBAX writes such code to begin with)",
    ),
    "eval --model=MODEL --checkpoint=RUN_DIR": ("--checkpoint=RUN_DIR", "name the checkpoint's folder with --model"),
    "eval --model=RUN_DIR --steps=5 " + CORE: ("5", "200, 600, 1500"),
    "eval --steps=last": ("--steps is 'last'", "expected latest, a list such as 1000,2000"),
    "eval --tasks=cor": ("'cor' is no suite, task or matching glob", "did you mean core?"),
    "eval --tasks=core/arc_eazy": ("'core/arc_eazy' is no suite", "did you mean core/arc_easy?"),
    "eval --tasks=@absent.json": ("--tasks=@absent.json holds no tasks", "such as compare --subset writes"),
    "eval --tasks=@notes.txt": (
        "--tasks=@notes.txt holds no tasks (Expecting value",
        "such as compare --subset writes",
    ),
    "eval --tasks=@MODEL/config.json": ("it has no list of names under tasks", "such as compare --subset writes"),
    "eval --tasks=": ("--tasks is empty", "such as --tasks=core"),
    "eval --limit=99999999999999999999": ("--limit is 99999999999999999999", "or less; leave the flag out"),
    "humans --votes_needed=0": ("--votes_needed is 0, expected 1 or more", "leave the flag out"),
    "memorized --test_rows=0": ("--test_rows is 0, expected 1 or more", "leave the flag out"),
    "eval --limit=ten": ("--limit is 'ten'", "expected a whole number"),
    "eval --dtype=fp16": ("--dtype is 'fp16'", "expected one of float32, bfloat16"),
    "eval --model=MODEL --tasks=core --data_dir=TEXTS": ("no CORE data there", "unpack https://"),
    "eval --tasks=core --data_dir=cores=EVAL_BUNDLE": ("'cores' in 'cores=EVAL_BUNDLE' is no suite", "one of core,"),
    "eval --model=MODEL --tasks=core/copa --data_dir=EVAL_BUNDLE": ("not the published file", "--allow_changed_data"),
    "eval --model=MODEL --tasks=core/squad --data_dir=EVAL_BUNDLE": ("squad.jsonl is missing",),
    "eval --tasks=core --data_dir=core=": ("has no folder",),
    "eval --tasks=core --data_dir=EVAL_BUNDLE,TEXTS": ("is named twice",),
    "eval --output=/dev/null/x": ("expected a folder",),
    "eval --model=MODEL --tasks=text": ("text wants --data_dir=text=FOLDER", "whose files are to be scored"),
    "eval --output=notes.txt": ("notes.txt is a file", "expected a folder or a new name"),
    "eval --output=results": ("results holds another run", "name another folder"),
    "eval --sharding=mesh": ("--sharding=mesh wants the mesh's axes", "--mesh=data=4,model=2"),
    "eval --sharding=mesh --mesh=model=64": ("takes 64 devices, this host has", "name sizes whose product is that"),
    "eval --flagfile=nowhere.flags": ("--flagfile=nowhere.flags cannot be read", "one flag a line"),
    "eval --task_path=nowhere.yaml": ("nowhere.yaml cannot be read", "docs/own_tasks.md"),
    "eval --task_path=bad.yaml": ("questions", "question"),
    "eval --until=0.01": ("--until='0.01' is not understood", "expected ci<=0.01"),
    "eval --until=decided": ("--until=decided wants the run to compare with", "add --against=RUN"),
    "eval --json=no/such/folder.json": ("--json=no/such/folder.json cannot be written", "a folder that is there"),
    "report --data_dir=EVAL_BUNDLE": ("of --html alone", "add --html=FILE, or leave it out"),
    "report": ("miron-results is not there", "name the --output folder of a finished eval"),
    "compare run1": ("run1 is the only run", "name a second one"),
    "compare run1 run2 --metric=acuracy": ("no task has 'acuracy'", "expected one of accuracy"),
    "plan --topology=v5": ("'v5' is not a known topology", "such as v5e:4x4"),
    "init": ("init is given nothing, expected task or model", "miron-jax init task my_folder"),
    "init modle": ("init is given modle", "expected task or model"),
    "init task . RUN_DIR": ("init is given task . RUN_DIR", "perhaps a folder"),
    "init model": ("./my_model.py is there already and is never overwritten", "miron-jax init model FOLDER"),
    "eval --model=RUN_DIR --output=scores\udcff": (r"--output=scores\udcff holds bytes that are not UTF-8", "rename"),
    "report run1\udcff": (r"run1\udcff holds bytes that are not UTF-8", "rename the file or folder"),
    "init task RUN_DIR --checkpoint=ORBAX": ("--checkpoint is of init model", "leave it out"),
    "init task notes.txt": ("notes.txt",),
    "init model RUN_DIR --checkpoint=nowhere": ("--checkpoint=nowhere: no such folder", "expected an Orbax"),
    "init model RUN_DIR --checkpoint=MODEL": ("MODEL: holds", "expected a finished Orbax checkpoint"),
    "mera": ("mera wants --mera_submission=out.zip", "--check_submission=in.zip"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("mistakes")
    make_model(here / "MODEL")
    write_core_data(here / "EVAL_BUNDLE")
    for name in ("RUN_DIR", "TEXTS", "empty"):
        (here / name).mkdir()
    for step in ("100", "200"):
        (here / "ORBAX" / step).mkdir(parents=True)
        (here / "ORBAX" / step / "_METADATA").write_text('{"tree_metadata": {}}')
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo.FOLDER / name, here / "RUN_DIR" / name)
    for step in ("200", "600", "1500"):
        shutil.copytree(demo.FOLDER / "steps" / step, here / "RUN_DIR" / step)
    for name in ("results", "run1", "run2"):
        write_run(here / name, {"core/copa": samples_of([1, 0, 1])})
    for name, text in (
        ("TEXTS/news.jsonl", '{"text": "A small hill.", "id": "x"}\n'),
        ("capitals.jsonl", '{"question": "Where?", "options": ["Oslo", "Rome"], "answer": "Oslo"}\n' * 7),
        ("capitals.yaml", CAPITALS_YAML),
        ("notes.txt", "not a model"),
        ("my_model.py", "def make():\n    return 1\ndef broken():\n    return 1 / 0\n"),
        ("bad.yaml", "task: x\ndata: capitals.jsonl\nquestions: a\n"),
    ):
        (here / name).write_text(text)
    for name, missing in (("no_weights", "model.safetensors"), ("no_tokenizer", "tokenizer*")):
        shutil.copytree(here / "MODEL", here / name, ignore=shutil.ignore_patterns(missing))
    return here


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_remedy(typed: str, folder: Path, miron, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    before = sorted(folder.rglob("*"))
    ran = miron(*typed.split())
    sys.modules.pop("my_model", None)  # pages of docs have one too
    assert (ran.status, ran.out) == (2, ""), ran.err
    errors = [line for line in ran.err.splitlines() if not line.startswith("miron-jax 0.")]
    assert len(errors) == 1, ran.err
    for part in MISTAKES[typed]:
        assert part in errors[0]
    assert sorted(folder.rglob("*")) == before, "nothing is half-written"


def test_bench_of_texts_alone_is_refused(miron, place, tmp_path):
    (place.data / "eval_data" / "symbolic_problem_solving").mkdir(exist_ok=True, parents=True)
    lines = [{"context": "1+1=", "answer": "2"}] * 4
    path = place.data / "eval_data" / "symbolic_problem_solving" / "svamp.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = [f"--model={place.model}", f"--data_dir={place.data}", f"--output={tmp_path / 'out'}"]
    ran = miron("bench", *flags, "--tasks=gauntlet/svamp", "--allow_changed_data", "--limit=2")
    assert ran.status == 2
    assert "generate texts" in ran.err


def test_a_bad_line_is_named(miron, place, tmp_path):
    data = write_core_data(tmp_path / "data")
    path = data / "eval_data/commonsense_reasoning/copa.jsonl"
    good = path.read_text()
    for line, sentence in (
        ("{", "no valid JSON"),
        ('{"query": "a", "choices": ["b", "c"]}', "'gold' (the right answer) is missing"),
        ('{"query": "a", "choices": ["b", "c"], "gold": 2}', "expected a whole number from 0 to 1"),
        ('{"query": "a", "choices": ["b", ""], "gold": 0}', "is empty"),
    ):
        path.write_text(good + line + "\n")
        ran = miron("eval", *common(place, tmp_path / "out", f"--data_dir={data}"))
        assert ran.status == 2
        assert f"{path}, line 15: " in ran.err
        assert sentence in ran.err
        assert not (tmp_path / "out").exists()


def test_an_output_that_holds_something_else(miron, place, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    ran = miron("eval", *common(place, tmp_path))
    assert ran.status == 2
    assert "holds no results.json" in ran.err
    (tmp_path / "notes.txt").rename(tmp_path / "plan.json")  # as `plan --topology` leaves it: a run may follow
    check_output(RunConfig("demo", ("core",), output=str(tmp_path)))
    (tmp_path / "results.json").write_text("{")
    assert "cannot be read" in miron("eval", *common(place, tmp_path)).err
    for content in ("[1]", '{"config": null}', '"x"'):
        (tmp_path / "results.json").write_text(content)
        assert "cannot be read" in miron("eval", *common(place, tmp_path)).err


def test_bounds_and_choices_come_from_the_declarations() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"limit": 0}, "--limit is 0, expected 1 or more; leave the flag out for its default"),
        ({"items_per_category": 0}, "--items_per_category is 0, expected 1 or more"),
        ({"max_length": 1}, "--max_length is 1, expected 2 or more"),
        ({"token_budget": 0}, "--token_budget is 0, expected 1 or more"),
        ({"watch_timeout": 0.0}, "--watch_timeout is 0, expected seconds, more than 0"),
        ({"watch_timeout": math.nan}, "--watch_timeout is nan, expected seconds, more than 0"),
        ({"dtype": None}, "--dtype is None, expected one of float32, bfloat16"),
        ({"params_key": ""}, "--params_key is empty, expected a path such as ema_params"),
        ({"sharding": "one"}, "--sharding is 'one', expected one of pmap, mesh"),
        ({"attention": "hopper"}, "--attention is 'hopper', expected one of xla, cudnn, tpu"),
    ]
    for change, sentence in changes:
        with pytest.raises(InputError) as refused:
            RunConfig("demo", ("core",), **change)
        assert sentence in str(refused.value), change


def test_requests_that_do_not_fit_the_model_are_refused(miron, place, tmp_path):
    make_model(tmp_path / "small", vocabulary=257)
    for flag, sentence in (
        (f"--model={tmp_path / 'small'}", "vocabulary has 257"),
        ("--max_length=3", "raise --max_length"),
    ):
        ran = miron("eval", *common(place, tmp_path / "out", flag))
        assert ran.status == 2
        assert sentence in ran.err
        assert not (tmp_path / "out").exists()


def test_the_first_token_id_past_the_vocabulary_is_refused() -> None:
    part = [TokenizedExamples(0, [], requests_of([([1, 255], 1), ([0, 256], 1)]))]
    assert len(parts.requests_of(part, 257)) == 2
    with pytest.raises(InputError, match="token id 256, but the model's vocabulary has 256"):
        parts.requests_of(part, 256)


def test_the_folder_that_names_a_suite_precedes_a_plain_one() -> None:
    suite = next(suite for suite in SUITES.values() if suite.files_of)
    assert suite.named_folder([]) is None
    for folders, expected in (
        ([("", "plain")], "plain"),
        ([("", "plain"), (suite.files_of, "other")], "other"),
        ([("", "plain"), (suite.files_of, "other"), (suite.name, "named")], "named"),
        ([("somebody's", "x"), ("", "plain")], "plain"),
    ):
        assert suite.named_folder(folders) == Path(expected), folders


def test_without_a_home_programs_are_not_kept_and_a_line_says_so(miron, monkeypatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # KeyError, as for an unknown uid of a container
    kept = jax.config.values["jax_compilation_cache_dir"]
    ran = miron("plan", "--model=demo", "--tasks=miron-gen/en", "--limit=1", "--items_per_category=12")
    assert ran.status == 0, ran.err
    assert "this user has no home folder, so compiled programs are not kept" in ran.err
    assert "set HOME, or name a folder with --compilation_cache" in ran.err
    assert jax.config.values["jax_compilation_cache_dir"] == kept


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)  # fmt: skip
def test_memory_and_threads_that_cannot_be_had_are_one_sentence(error: Exception, miron, monkeypatch) -> None:
    def refused(*_: Any) -> None:
        raise error

    monkeypatch.setattr("miron_jax.cli.eval.start_jax", refused)
    ran = miron("eval", "--model=demo", "--tasks=miron-gen/en")
    assert ran.status == 1
    [line] = ran.err.splitlines()
    assert line.startswith("miron-jax: this process was refused memory or threads")
    assert (str(error) or "out of memory") in line
    assert "ulimit -v" in line
    assert "the same command goes on" in line


def test_what_the_system_refuses_names_the_file_and_what_to_do(miron, monkeypatch) -> None:
    """No space: the same command goes on.  No permission: the file is not called missing."""
    cases = (
        (errno.ENOSPC, None, "--output=scores: No space left on device: free space there", "the same command goes on"),
        (errno.EACCES, "/a/b", "/a/b: Permission denied: change its permissions", "or name another"),
        (errno.ENOENT, "/a/b", "/a/b: No such file or directory: check that it is there", "used"),
    )
    for number, path, *words in cases:
        monkeypatch.setattr(
            "miron_jax.cli.eval.start_jax", Mock(side_effect=OSError(number, os.strerror(number), path))
        )
        ran = miron("eval", "--model=demo", "--tasks=miron-gen/en", "--output=scores")
        assert ran.status == 2
        for word in words:
            assert word in ran.err
