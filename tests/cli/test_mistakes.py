"""Mistakes of somebody's first hour: each is one sentence that says what is wrong and what to do, and exit status 2."""

import shutil
from pathlib import Path

import pytest

from tests.support import docs_folder

CORE = "--tasks=core/copa --data_dir=EVAL_BUNDLE --allow_changed_data"
# What is typed, and two parts of the sentence: what is wrong, what to do.
MISTAKES = {
    "evla --model=MODEL": ("unknown command 'evla'", "eval is the nearest"),
    "--model=MODEL --tasks=core": ("a command comes before its flags", "miron-jax eval --model=MODEL"),
    "eval --modle=MODEL": ("there is no flag --modle", "the nearest is --model"),
    "eval model=MODEL": ("'model=MODEL' is no flag", "expected --name=value"),
    "eval --tasks core arc_easy": ("'arc_easy' is no flag", "lists have commas and no spaces"),
    "report --model=MODEL": (
        "--model is a flag of eval, plan, bench, tasks, verify, not of report",
        "report --help lists",
    ),
    "eval --model=nowhere": ("no such folder here", "name a local folder or go online"),
    "eval --model=notes.txt": ("notes.txt", "folder"),
    "eval --model=empty " + CORE: ("empty", "config.json"),
    "eval --model=no_weights " + CORE: ("no_weights", "model.safetensors"),
    "eval --model=no_tokenizer " + CORE: ("no_tokenizer", "tokenizer"),
    "eval --model=my_model " + CORE: ("my_model.py is here", "--model=my_model:make"),
    "eval --model=my_model.py:make " + CORE: ("names a file, expected its module", "--model=my_model:function"),
    "eval --model=my_model:broken " + CORE: (
        "fails in my_model.py, line 4 (ZeroDivisionError",
        "run the function by itself",
    ),
    "eval --task_path=capitals.yaml --tasks=capitals": ("'capitals' is no suite", "did you mean own/capitals?"),
    "eval --model=my_model:create " + CORE: ("has no function create", "name one that it has"),
    "eval --model=my_model:make " + CORE: ("my_model:make", "OwnModel"),
    "eval --model=missing:make " + CORE: ("no module missing", "run where it lies, or set PYTHONPATH"),
    "eval --model=MODEL --tokenizer=nowhere " + CORE: ("--tokenizer=nowhere", "name a local folder or go online"),
    "eval --model=MODEL --checkpoint=RUN_DIR": ("--checkpoint=RUN_DIR", "name the checkpoint's folder with --model"),
    "eval --model=RUN_DIR --steps=5 " + CORE: ("5", "200, 600, 1500"),
    "eval --steps=last": ("--steps is 'last'", "expected latest, a list such as 1000,2000"),
    "eval --tasks=cor": ("'cor' is no suite, task or matching glob", "did you mean core?"),
    "eval --tasks=core/arc_eazy": ("'core/arc_eazy' is no suite", "did you mean core/arc_easy?"),
    "eval --tasks=": ("--tasks is empty", "such as --tasks=core"),
    "eval --limit=0": ("--limit is 0", "expected 1 or more"),
    "eval --limit=ten": ("--limit is 'ten'", "expected a whole number"),
    "eval --dtype=fp16": ("--dtype is 'fp16'", "expected one of float32, bfloat16"),
    "eval --model=MODEL --tasks=core --data_dir=TEXTS": ("no CORE data there", "unpack https://"),
    "eval --tasks=core --data_dir=cores=EVAL_BUNDLE": ("'cores' in 'cores=EVAL_BUNDLE' is no suite", "one of core,"),
    "eval --model=MODEL --tasks=core/copa --data_dir=EVAL_BUNDLE": ("not the published file", "--allow_changed_data"),
    "eval --model=MODEL --tasks=text": ("text wants --data_dir=text=FOLDER", "documents"),
    "eval --output=notes.txt": ("notes.txt is a file", "expected a folder or a new name"),
    "eval --output=results": ("results holds another run", "name another folder"),
    "eval --sharding=mesh": ("--sharding=mesh wants the mesh's axes", "--mesh=data=4,model=2"),
    "eval --sharding=mesh --mesh=model=64": ("takes 64 devices, this host has", "name sizes whose product is that"),
    "eval --flagfile=nowhere.flags": ("--flagfile=nowhere.flags cannot be read", "one flag a line"),
    "eval --task_path=nowhere.yaml": ("nowhere.yaml cannot be read", "docs/own_tasks.md"),
    "eval --task_path=bad.yaml": ("questions", "question"),
    "eval --until=0.01": ("--until='0.01' is not understood", "expected ci<=0.01"),
    "eval --until=decided": ("--until=decided wants the run to compare with", "add --against=RUN"),
    "eval --max_length=1": ("--max_length is 1", "expected 2 or more"),
    "eval --json=no/such/folder.json": ("--json=no/such/folder.json cannot be written", "a folder that is there"),
    "report": ("miron-results is not there", "name the --output folder of a finished eval"),
    "compare run1": ("run1 is the only run", "name a second one"),
    "compare run1 run2 --metric=acuracy": ("no task has 'acuracy'", "expected one of accuracy"),
    "plan --topology=v5": ("'v5' is not a known topology", "such as v5e:4x4"),
    "mera": ("mera wants --mera_submission=out.zip", "--check_submission=in.zip"),
    "humans": ("humans wants --annotations", "Toloka TSV"),
    "completion": ("completion wants the name of a shell", "bash, zsh, fish"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = docs_folder.write(tmp_path_factory.mktemp("mistakes"))
    (here / "empty").mkdir()
    (here / "notes.txt").write_text("not a model")
    (here / "my_model.py").write_text("def make():\n    return 1\ndef broken():\n    return 1 / 0\n")
    (here / "bad.yaml").write_text("task: x\ndata: capitals.jsonl\nquestions: a\n")
    for name, missing in (("no_weights", "model.safetensors"), ("no_tokenizer", "tokenizer*")):
        shutil.copytree(here / "MODEL", here / name)
        for path in (here / name).glob(missing):
            path.unlink()
    return here


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_remedy(typed: str, folder: Path, miron, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    before = sorted(folder.rglob("*"))
    ran = miron(*typed.split())
    assert (ran.status, ran.out) == (2, ""), ran.err
    errors = [line for line in ran.err.splitlines() if not line.startswith("miron-jax 0.")]
    assert len(errors) == 1, ran.err
    for part in MISTAKES[typed]:
        assert part in errors[0]
    after = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts]
    assert after == before, "nothing is half-written"
