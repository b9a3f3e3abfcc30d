"""The files of docs/extending.md, written into a copy of the tree, and its command."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from transformers import AutoTokenizer

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.registry import find_suites
from tests.conftest import REPOSITORY
from tests.support.needs import needs
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import CONTINUATION, TOKEN

pytestmark = pytest.mark.slow

PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS: dict[str, str] = dict(re.findall(r"```python\n# (.*?)\n(.*?)```", PAGE, re.DOTALL))
KERNELS = "kernels/forest_attention/__init__.py, in IMPLEMENTATIONS"
METRICS = "miron_jax/metrics/choices.py"
SIZES: JsonObject = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 12,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
WORDS = (("light", "night", "day"), ("moon", "spoon", "sun"), ("tree", "sea", "leaf"), ("house", "mouse", "barn"))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with the page's files, and its data."""
    folder = tmp_path_factory.mktemp("extended")
    for package in ("miron_jax", "kernels", "tasks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, folder / package, symlinks=True, ignore=ignored)
    for name, code in BLOCKS.items():
        path, _, entry = name.partition(", in ")
        if entry:
            source = (folder / path).read_text(encoding="utf-8")
            start = source.index(f"{entry}: ")
            end = re.compile(r"^[)}]$", re.MULTILINE).search(source, start)
            assert end is not None
            (folder / path).write_text(source[: end.start()] + code + source[end.start() :], encoding="utf-8")
        else:
            assert not (folder / path).exists(), f"{path} is an edit, not a new file"
            (folder / path).write_text(code, encoding="utf-8")
    rows = [
        {"word": word, "choices": [good, bad][:: 1 - 2 * (i % 2)], "answer": good}
        for i, (word, good, bad) in enumerate(WORDS)
    ]
    (folder / "data").mkdir()
    (folder / "data" / "rhymes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


# All that runs in the copy, in one interpreter: commands, and the page's family.
CODE = """
import contextlib, io, json, sys
from absl import flags
import miron_jax
from miron_jax import cli

def run(arguments):
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["miron-jax", *arguments]
    flags.FLAGS.unparse_flags()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code or 0
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}

commands = json.loads(sys.argv[1])
done = {name: run(arguments) for name, arguments in commands.items()}
[score] = miron_jax.score("arcee", None, [("the cat sat", " on a mat")]) if len(sys.argv) > 2 else [None]
print(json.dumps({"commands": done, "arcee": score and list(score.token_logprobs)}))
"""
[COMMANDS] = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
LISTED, SCORED = (line.split()[1:] for line in COMMANDS.splitlines())
ARGUMENTS = {
    "listed": LISTED,
    "scored": [*SCORED, "--compilation_cache="],
    "by the kernel": [
        *(flag for flag in SCORED if "=out" not in flag),
        "--attention=dense",
        "--output=dense",
        "--compilation_cache=",
    ],
    "a bad line": ["eval", "--tasks=rhymes", "--data_dir=bad", "--output=none"],
    "no data": ["eval", "--tasks=rhymes", "--output=none"],
}


class Ran(NamedTuple):
    folder: Path
    commands: Mapping[str, JsonObject]  # status, out and err of each
    arcee: list[float]  # as scored in the copy
    torch_arcee: list[float]

    def samples(self, output: str) -> list[JsonObject]:
        text = (self.folder / output / "samples/rhymes/words.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def results(self, output: str) -> JsonObject:
        return json.loads((self.folder / output / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def ran(extended: Path) -> Ran:
    (extended / "bad").mkdir()
    (extended / "bad" / "rhymes.jsonl").write_text('{"word": "a", "choices": ["b", "c"], "answer": "d"}\n')
    expected = by_torch(extended / "arcee") if importlib.util.find_spec("torch") else []
    command = [sys.executable, "-c", CODE, json.dumps(ARGUMENTS), *(["arcee"] if expected else [])]
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    done = subprocess.run(command, cwd=extended, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    received = json.loads(done.stdout.splitlines()[-1])
    return Ran(extended, received["commands"], received["arcee"], expected)


def by_torch(folder: Path) -> list[float]:
    """Log-probabilities of " on a mat" by a random Arcee, which is left in the folder."""
    import torch
    from transformers import ArceeConfig, ArceeForCausalLM

    folder.mkdir()
    make_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = ArceeForCausalLM(ArceeConfig(**SIZES, vocab_size=len(tokenizer), attention_bias=True)).eval()
    token_ids = [tokenizer.encode(text, add_special_tokens=False) for text in ("the cat sat", " on a mat")]
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(0.3 * torch.randn_like(weights))
        logits = model(torch.tensor([token_ids[0] + token_ids[1]])).logits[0]
    model.save_pretrained(folder)
    targets = torch.tensor(token_ids[1])
    return logits.log_softmax(-1)[len(token_ids[0]) - 1 : -1].gather(1, targets[:, None])[:, 0].tolist()


def test_the_page_has_the_files_that_it_tells_of() -> None:
    assert set(BLOCKS) == {
        "tasks/rhymes.py", "tasks/ranked_rhymes.py", "miron_jax/evaluation/task_kinds/ranking.py",
        "miron_jax/model/families/arcee.py", "kernels/forest_attention/dense.py", f"{METRICS}, in OF_OPTIONS", KERNELS,
    }  # fmt: skip


def test_its_suite_metric_and_kind_are_scored(ran: Ran) -> None:
    listed, scored = ran.commands["listed"], ran.commands["scored"]
    assert "rhymes/words" in listed["out"], listed["err"]
    assert scored["status"] == 0, scored["err"]
    results, samples = ran.results("out"), ran.samples("out")
    plain, ranked = (results["tasks"][name] for name in ("rhymes/words", "ranked-rhymes/words"))
    assert len(samples) == len(WORDS)
    for sample in samples:
        gold, other = (sample["options"][i]["logprob"] for i in (sample["gold"], 1 - sample["gold"]))
        assert sample["metrics"]["lead"] == pytest.approx(gold - min(gold, other), abs=CONTINUATION)
        assert sample["metrics"]["accuracy_sum"] == float(gold > other)
    lead = sum(sample["metrics"]["lead"] for sample in samples) / len(WORDS)
    assert plain["metrics"]["lead"]["value"] == pytest.approx(lead)
    assert "lead" in scored["out"]
    by_rank = sum(0.5 + 0.5 * sample["metrics"]["accuracy_sum"] for sample in samples) / len(WORDS)
    assert ranked["metrics"]["reciprocal_rank"]["value"] == pytest.approx(by_rank)
    assert ranked["kind"] == "ranking"
    composite = results["suites"]["rhymes"]["composites"]["RHYMES"]
    assert composite["value"] == plain["metrics"]["accuracy"]["value"]
    assert composite["complete"]


def test_its_family_computes_what_torch_computes(ran: Ran) -> None:
    needs("torch")
    assert ran.arcee == pytest.approx(ran.torch_arcee, abs=TOKEN)


def test_its_kernel_gives_the_scores_of_plain_xla(ran: Ran) -> None:
    dense = ran.commands["by the kernel"]
    assert dense["status"] == 0, dense["err"]
    assert "attention in plain XLA" not in dense["err"]
    assert [ran.results(output)["speed"]["attention"] for output in ("out", "dense")] == ["xla", "dense"]
    for plain, other in zip(ran.samples("out"), ran.samples("dense"), strict=True):
        for option, same in zip(plain["options"], other["options"], strict=True):
            assert same["logprob"] == pytest.approx(option["logprob"], abs=CONTINUATION)


def test_a_bad_line_of_its_file_is_named(ran: Ran) -> None:
    bad, absent = ran.commands["a bad line"], ran.commands["no data"]
    assert bad["status"] == 2
    assert "rhymes.jsonl, line 1: field 'answer' is 'd', expected one of the choices ['b', 'c']" in bad["err"]
    assert (absent["status"], "pass --data_dir=rhymes=FOLDER" in absent["err"]) == (2, True)


SUITE = """
from miron_jax.tasks.core import SUITE
from dataclasses import replace
SUITES = (replace(SUITE, name={name!r}, tasks=(replace(SUITE.tasks[0], name={task!r}),)),)
"""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.py": "import nothing_of_this_name"}, r"a\.py cannot be imported \(ModuleNotFoundError: No module named"),
        ({"a.py": "SUITES = ("}, r"a\.py cannot be imported \(SyntaxError"),
        (
            {"a.py": SUITE.format(name="one", task="x/y"), "b.py": SUITE.format(name="two", task="x/y")},
            r"b\.py: x/y is no name of its own, a\.py has it too: give it another one",
        ),
        (
            {"a.py": SUITE.format(name="one", task="x/y"), "b/suite.py": SUITE.format(name="one", task="x/z")},
            r"suite\.py: one is no name of its own, a\.py has it too",
        ),
        (
            {"a.py": SUITE.format(name="one", task="x/y"), "b/c/suite.py": SUITE.format(name="two", task="x/y")},
            r"b/c/suite\.py: x/y is no name of its own, a\.py has it too",
        ),
        ({"a.py": SUITE.format(name="one", task="one")}, r"a\.py: one is no name of its own, names it twice"),
    ],
)  # fmt: skip
def test_bad_suite_files_are_named(
    files: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"suites_of_{tmp_path.name}"
    folder = tmp_path / package
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for package_of in Path(name).parents:
            (folder / package_of / "__init__.py").touch()
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=message):
        find_suites(folder, package)
