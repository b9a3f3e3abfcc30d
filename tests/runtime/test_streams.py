"""Standard streams that are not UTF-8, and names of files in a locale that is not."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from miron_jax.runtime.streams import ERRORS
from tests.conftest import REPOSITORY
from tests.support.command import in_process
from tests.support.mera_records import write_mera
from tests.support.run_folders import samples_of, write_run
from tests.support.tiny_model import make_model

TEXT = "\u2581\u2588 0.5 \u00b1 0.1 \u2193 \u27e6a\u27e7 \u0437\u0430\u0434\u0430\u0447\u0430"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", TEXT),
        ("ascii", r"_# 0.5 +- 0.1 v [[a]] \u0437\u0430\u0434\u0430\u0447\u0430"),
        ("latin-1", "_# 0.5 \u00b1 0.1 v [[a]] " + r"\u0437\u0430\u0434\u0430\u0447\u0430"),
        ("cp1251", "_# 0.5 \u00b1 0.1 v [[a]] \u0437\u0430\u0434\u0430\u0447\u0430"),
    ],
)
def test_what_an_encoding_lacks_has_ascii_forms(encoding: str, expected: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors=ERRORS)
    stream.write(TEXT)
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == expected  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("{} 2>&- >{}", 0, ""),
        ("({} 2>&1; echo $? >{}) | head -1", 0, "miron-jax"),
        ("{} >/dev/full 2>{}", 2, "did not take all that was printed (No space left on device)"),
    ],
)
def test_streams_that_take_nothing_end_no_run(command: str, status: int, sentence: str, tmp_path: Path) -> None:
    """A closed number is not given to a file of the run, and results are whole."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the sun is hot\n")
    flags = f"--model={make_model(tmp_path / 'model')} --tasks=text --data_dir=text={tmp_path / 'text'}"
    shell = command.format(
        f"{sys.executable} -m miron_jax eval {flags} --output={tmp_path / 'out'}", tmp_path / "printed"
    )
    ran = subprocess.run(["bash", "-c", shell], cwd=REPOSITORY, capture_output=True, check=False, text=True)
    printed = (tmp_path / "printed").read_text()
    assert (ran.returncode, printed.strip() if "echo" in command else "0") == (status, "0")
    assert sentence in printed + ran.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [*results["tasks"]] == ["text/a"]


@pytest.mark.slow
def test_cyrillic_tasks_in_an_ascii_locale(tmp_path: Path) -> None:
    """LC_ALL=C without UTF-8 mode: names of files stay UTF-8, the screen has escapes."""
    name = "\u0437\u0430\u0434\u0430\u0447\u0430"
    rows = [{"q": f"the sun {i}", "a": ["hot", "cold"], "g": i % 2} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = f"task: {name}\nkind: choice\ndata: rows.jsonl\nquestion: q\nchoices: a\ngold: g\nnum_fewshot: 0\n"
    (tmp_path / "task.yaml").write_text(lines, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "miron_jax", "eval", f"--model={make_model(tmp_path / 'model')}"),
        *(f"--task_path={tmp_path / 'task.yaml'}", "--tasks=own", f"--output={tmp_path / 'out'}"),
    ]
    environment = {key: value for key, value in os.environ.items() if key not in ("LANG", "PYTHONIOENCODING")}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    assert r"own/\u0437\u0430\u0434\u0430\u0447\u0430" in ran.stdout.decode("ascii")
    assert f"own/{name}" in json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["tasks"]
    assert len((tmp_path / "out" / "samples" / "own" / f"{name}.jsonl").read_text("utf-8").splitlines()) == 4


NAME = "\u0437\u0430\u0434\u0430\u0447\u0430"
SCREENS = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp1251": {"PYTHONIOENCODING": "cp1251"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Cyrillic name: a model, MERA's records and a run of one data set."""
    folder = tmp_path_factory.mktemp("screens") / NAME
    folder.mkdir()
    flags = f"--model={make_model(folder / 'model')}", f"--data_dir={write_mera(folder / 'mera', 'v1', 2)}"
    ran = in_process("eval", *flags, "--tasks=mera-v1/rwsd", f"--output={folder / 'out'}")
    assert ran.status == 0, ran.err
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("encoding", SCREENS)
def test_submissions_on_any_screen(folder: Path, encoding: str) -> None:
    """A Cyrillic name of a zip, and answers in Cyrillic: the file is the same, the faults stand on the screen."""
    path = folder / f"{NAME}-{encoding}.zip"
    command = [
        *(sys.executable, "-m", "miron_jax", "mera", "--mera_version=v1", f"--output={folder / 'out'}"),
        *(f"--mera_submission={path}", f"--check_submission={path}", f"--data_dir={folder / 'mera'}"),
    ]
    kept = {key: value for key, value in os.environ.items() if key not in ("LANG", "PYTHONIOENCODING")}
    ran = subprocess.run(command, cwd=REPOSITORY, env=kept | SCREENS[encoding], capture_output=True, check=False)
    out = ran.stdout.decode(encoding)
    shown = NAME if encoding == "cp1251" else r"\u0437\u0430\u0434\u0430\u0447\u0430"
    assert f"/{shown}-{encoding}.zip: RWSD" in out, ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr.decode(encoding)
    assert ran.returncode == 2  # the other data sets are not in it
    answers = json.loads(zipfile.ZipFile(path).read("RWSD.json"))["data"]["test"]
    assert {answer["outputs"] for answer in answers} <= {"\u0414\u0430", "\u041d\u0435\u0442"}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", SCREENS)
def test_throughput_on_any_screen(folder: Path, encoding: str) -> None:
    output = folder / f"bench-{encoding}"
    flags = f"--model={folder / 'model'}", f"--data_dir={folder / 'mera'}", "--tasks=mera-v1/rwsd"
    ran = in_process("bench", *flags, f"--output={output}", encoding=encoding)
    assert ran.status == 0, ran.err
    shown = NAME if encoding == "cp1251" else r"\u0437\u0430\u0434\u0430\u0447\u0430"
    assert f"/{shown}/bench-{encoding}/bench.json" in ran.out
    assert r"\u2" not in ran.out + ran.err  # boxes, bars and arrows have ASCII forms
    assert json.loads((output / "bench.json").read_text("utf-8"))["config"]["output"].endswith(f"{NAME}/{output.name}")


OF_RUNS = {
    "report": ("a",),
    "report --html={}/page.html": ("a", "b"),
    "compare": ("a", "b"),
    "gate {}/policy.yaml": ("a", "b"),
    "tasks --task_path={}/task.yaml --describe=own/{name}": (),
    "tasks --check={}/task.yaml": (),
    "plan --model={}/../model --task_path={}/task.yaml --tasks=own": (),
    "init task {}/new": (),
    "completion bash": (),
    "humans --annotations={}/votes.tsv --gold=arithmetic --output={}/humans": (),
    "verify --model={}/../model --compilation_cache=": (),
    "eval --model={}/absent": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", SCREENS)
@pytest.mark.parametrize("command", OF_RUNS)
def test_every_other_command_on_any_screen(folder: Path, command: str, encoding: str) -> None:
    """Names of folders, tasks and items are Cyrillic: each character that the screen lacks has its escape."""
    place = folder / f"{NAME}-{encoding}-{len(command)}"
    for run, correct in (("a", [1, 0, 1, 1]), ("b", [0, 0, 1, 0])):
        write_run(place / run, {f"own/{NAME}": samples_of(correct)})
    rows = json.dumps({"q": NAME, "a": [NAME, "x"], "g": 0}, ensure_ascii=False)
    (place / "rows.jsonl").write_text(f"{rows}\n", encoding="utf-8")
    rules = [{"metric": f"own/{NAME}", "not_below_baseline_by": 1, "confidence": 0.95}]
    (place / "policy.yaml").write_text(json.dumps({"rules": rules}))
    lines = f"task: {NAME}\nkind: choice\ndata: rows.jsonl\nquestion: q\nchoices: a\ngold: g\nnum_fewshot: 0\n"
    (place / "task.yaml").write_text(lines, encoding="utf-8")
    votes = "".join(f"1 + 1\t{vote}\t{NAME}{i}\n" for i, vote in enumerate((2, 2, 3)))
    columns = "INPUT:input\tOUTPUT:answer\tASSIGNMENT:worker_id\n"
    (place / "votes.tsv").write_text(columns + votes, encoding="utf-8")
    words = command.replace("{name}", NAME).replace("{}", str(place)).split()
    ran = in_process(*words, *(str(place / run) for run in OF_RUNS[command]), encoding=encoding)
    assert "Traceback" not in ran.err
    assert ran.status == (2 if "absent" in command else 0), ran.err
    printed = ran.out + ran.err
    if encoding != "cp1251":
        assert printed.isascii()
    assert r"\u2" not in printed, "boxes, bars and arrows have ASCII forms"
    if command.split()[0] not in ("completion", "verify", "humans", "tasks", "plan"):
        assert (NAME if encoding == "cp1251" else r"\u0437") in printed
