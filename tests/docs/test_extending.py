"""The files of docs/extending.md, written into a copy of the tree, and its command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.registry import find_suites
from tests.conftest import REPOSITORY
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


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that sees the extended copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "miron_jax", *arguments)


def test_the_page_has_the_files_that_it_tells_of() -> None:
    assert set(BLOCKS) == {
        "tasks/rhymes.py", f"{METRICS}, in OF_OPTIONS", "miron_jax/task_kinds/ranking.py", "tasks/ranked_rhymes.py",
        "miron_jax/model/families/arcee.py", "kernels/forest_attention/dense.py", KERNELS,
    }  # fmt: skip


def test_its_suite_metric_and_kind_are_scored(extended: Path) -> None:
    [commands] = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    listed, scored = (run(extended, *line.split()[1:]) for line in commands.splitlines())
    assert "rhymes/words" in listed.stdout, listed.stderr
    assert scored.returncode == 0, scored.stderr
    results: JsonObject = json.loads((extended / "out" / "results.json").read_text(encoding="utf-8"))
    plain, ranked = (results["tasks"][name] for name in ("rhymes/words", "ranked-rhymes/words"))
    samples = [json.loads(line) for line in (extended / "out/samples/rhymes/words.jsonl").read_text().splitlines()]
    assert len(samples) == len(WORDS)
    for sample in samples:
        gold, other = (sample["options"][i]["logprob"] for i in (sample["gold"], 1 - sample["gold"]))
        assert sample["metrics"]["lead"] == pytest.approx(gold - other, abs=CONTINUATION)
        assert sample["metrics"]["accuracy_sum"] == float(gold > other)
    assert plain["metrics"]["lead"]["value"] == pytest.approx(
        sum(sample["metrics"]["lead"] for sample in samples) / len(WORDS)
    )
    assert "lead" in scored.stdout
    by_rank = sum(0.5 + 0.5 * sample["metrics"]["accuracy_sum"] for sample in samples) / len(WORDS)
    assert ranked["metrics"]["reciprocal_rank"]["value"] == pytest.approx(by_rank)
    assert ranked["kind"] == "ranking"
    composite = results["suites"]["rhymes"]["composites"]["RHYMES"]
    assert composite["value"] == plain["metrics"]["accuracy"]["value"]
    assert composite["complete"]


def test_its_family_computes_what_torch_computes(extended: Path) -> None:
    torch = pytest.importorskip("torch")
    from transformers import ArceeConfig, ArceeForCausalLM

    (extended / "arcee").mkdir()
    make_tokenizer(extended / "arcee")
    tokenizer = AutoTokenizer.from_pretrained(extended / "arcee")
    torch.manual_seed(0)
    model = ArceeForCausalLM(ArceeConfig(**SIZES, vocab_size=len(tokenizer), attention_bias=True)).eval()
    token_ids = [tokenizer.encode(text, add_special_tokens=False) for text in ("the cat sat", " on a mat")]
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(0.3 * torch.randn_like(weights))
        logits = model(torch.tensor([token_ids[0] + token_ids[1]])).logits[0]
    targets = torch.tensor(token_ids[1])
    expected = logits.log_softmax(-1)[len(token_ids[0]) - 1 : -1].gather(1, targets[:, None])[:, 0]
    model.save_pretrained(extended / "arcee")
    code = """
import miron_jax
[score] = miron_jax.score("arcee", None, [("the cat sat", " on a mat")])
print(list(score.token_logprobs))
"""
    ran = python(extended, "-c", code)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == pytest.approx(expected.tolist(), abs=TOKEN)


def test_its_kernel_gives_the_scores_of_plain_xla(extended: Path) -> None:
    samples: dict[str, list[JsonObject]] = {}
    for name in ("xla", "dense"):
        flags = ("--model=demo", "--steps=latest", "--tasks=rhymes", "--data_dir=data")
        ran = run(extended, "eval", *flags, f"--attention={name}", f"--output={name}")
        assert ran.returncode == 0, ran.stderr
        assert "attention in plain XLA" not in ran.stderr
        results = json.loads((extended / name / "results.json").read_text(encoding="utf-8"))
        assert results["speed"]["attention"] == name
        lines = (extended / name / "samples/rhymes/words.jsonl").read_text(encoding="utf-8").splitlines()
        samples[name] = [json.loads(line) for line in lines]
    for plain, dense in zip(samples["xla"], samples["dense"], strict=True):
        for option, same in zip(plain["options"], dense["options"], strict=True):
            assert same["logprob"] == pytest.approx(option["logprob"], abs=CONTINUATION)


def test_a_bad_line_of_its_file_is_named(extended: Path) -> None:
    (extended / "bad").mkdir()
    (extended / "bad" / "rhymes.jsonl").write_text('{"word": "a", "choices": ["b", "c"], "answer": "d"}\n')
    ran = run(extended, "eval", "--tasks=rhymes", "--data_dir=bad", "--output=none")
    assert ran.returncode == 2
    assert "rhymes.jsonl, line 1: field 'answer' is 'd', expected one of the choices ['b', 'c']" in ran.stderr
    ran = run(extended, "eval", "--tasks=rhymes", "--output=none")
    assert (ran.returncode, "pass --data_dir=rhymes=FOLDER" in ran.stderr) == (2, True)


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
            {
                "a.py": SUITE.format(name="one", task="x/y"),
                "b/suite.py": SUITE.format(name="one", task="x/z"),
                "b/__init__.py": "",
            },
            r"suite\.py: one is no name of its own, a\.py has it too",
        ),
        (
            {
                "a.py": SUITE.format(name="one", task="x/y"),
                "b/c/suite.py": SUITE.format(name="two", task="x/y"),
                "b/__init__.py": "",
                "b/c/__init__.py": "",
            },
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
    for name, text in {"__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=message):
        find_suites(folder, package)
