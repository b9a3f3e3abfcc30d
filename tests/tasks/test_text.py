"""Texts: windows as lm-eval cuts them, every byte's loss, documents of every format, wrong folders."""

import gzip
import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from miron_jax.definitions.data_files import read_examples
from miron_jax.errors import InputError
from miron_jax.statistics.estimate import ratio
from miron_jax.tasks.text import read_suite
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.truncation import LengthLimit
from miron_jax.tokens.windows import byte_ends, spread, windows
from tests.support.command import Place, run, samples
from tests.support.needs import needs
from tests.support.tolerances import FLOAT64, TOKEN
from tests.support.torch_folders import FOLDERS, tokenizer_of

DOCUMENTS = ["the sun is hot and the rain is cold " * 6, "é over ñ ☀ hill", "hot", "", "on a\n\ngreen hill\t" * 3]


def write(folder: Path) -> Path:
    """Two groups: a folder of two files, and a file."""
    (folder / "news" / "deep").mkdir(parents=True)
    rows = [{"text": text, "id": i} for i, text in enumerate(DOCUMENTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows[:3])
    (folder / "news" / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    parquet.write_table(pa.Table.from_pylist(rows[3:]), folder / "news" / "deep" / "b.parquet")
    (folder / "list one.json").write_text(json.dumps(DOCUMENTS[:2]))
    (folder / "c.txt").write_text(DOCUMENTS[4])
    return folder


@pytest.mark.slow
def test_documents_of_every_format(miron: Any, place: Place, tmp_path: Path) -> None:
    folder = write(tmp_path / "text")
    flags = ("--tasks=text", f"--data_dir=text={folder}", "--max_length=16", "--save_byte_losses")
    results = run(miron, place.model, tmp_path / "out", *flags)
    assert set(results["tasks"]) == {"text/news", "text/list_one", "text/c"}
    news = results["tasks"]["text/news"]
    assert (news["n"], news["skipped"], news["empty_documents"]) == (5, 0, 1)
    computed = samples(tmp_path / "out", "text/news")
    assert [sample["doc_id"] for sample in computed] == ["0", "1", "2", "3", "4"]
    texts = [text.encode() for text in DOCUMENTS]
    assert [sample["num_bytes"] for sample in computed] == [len(text) for text in texts]
    assert [sample["text_sha256"] for sample in computed] == [sha256(text).hexdigest() for text in texts]
    nll, tokens = (sum(sample[key] for sample in computed) for key in ("total_nll", "scored_tokens"))
    for name, unit in (("byte", news["bytes"]), ("char", sum(map(len, DOCUMENTS))), ("token", tokens)):
        assert news["metrics"][f"bits_per_{name}"]["value"] == pytest.approx(nll / math.log(2) / unit, rel=FLOAT64)
    assert news["bytes"] == sum(map(len, texts))
    assert computed[3]["reason"] == "the document is empty"
    named = samples(tmp_path / "out", "text/list_one")
    assert [sample["doc_id"] for sample in named] == ["list one.json:1", "list one.json:2"]
    assert [sample["total_nll"] for sample in named] == [sample["total_nll"] for sample in computed[:2]]
    macro = results["suites"]["text"]["composites"]["macro_mean"]["value"]
    each = [task["metrics"]["bits_per_byte"]["value"] for task in results["tasks"].values()]
    assert macro == pytest.approx(sum(each) / 3, rel=FLOAT64)
    losses = parquet.read_table(tmp_path / "out" / "byte_losses" / "text" / "news.parquet").to_pylist()
    for row, sample, text in zip(losses, computed, texts, strict=True):
        assert row["text_sha256"] == sample["text_sha256"]
        assert len(row["per_byte_loss"]) == row["num_bytes"] == len(text)
        assert math.fsum(row["per_byte_loss"]) == pytest.approx(sample["total_nll"], abs=TOKEN)
        assert len(row["token_nll"]) == sample["scored_tokens"]
        assert row["token_byte_starts"][1:] == row["token_byte_ends"][:-1]


@pytest.mark.slow
def test_a_stride_gives_every_token_more_to_go_by(miron: Any, place: Place, tmp_path: Path) -> None:
    """With a stride of one, every token has a whole window before it: the loss of each is that of a request of its own."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(DOCUMENTS[0])
    flags = ("--tasks=text", f"--data_dir=text={tmp_path / 'text'}", "--max_length=12", "--save_byte_losses")
    nll = []
    for name, stride in (("one", "--stride=1"), ("all", "--stride=12")):
        run(miron, place.model, tmp_path / name, *flags, stride)
        table = parquet.read_table(tmp_path / name / "byte_losses" / "text" / "a.parquet")
        nll.append(table.to_pylist()[0]["token_nll"])
    one, whole = nll
    assert one[:12] == pytest.approx(whole[:12], abs=TOKEN), "the first window is the same"
    assert len(one) == len(whole)
    assert one != pytest.approx(whole, abs=TOKEN)
    for arguments, sentence in (
        ((*flags, "--stride=13"), "--stride is 13, but a window of text/a has 12 tokens"),
        (("--tasks=text",), "--tasks: text wants --data_dir=text=FOLDER"),
    ):
        ran = miron("eval", f"--model={place.model}", f"--output={tmp_path / 'no'}", *arguments)
        assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1)
        assert sentence in ran.err
        assert not (tmp_path / "no" / "results.json").exists()


def test_names_of_special_tokens(miron: Any, tmp_path: Path) -> None:
    """One document of two says </s>, twice: two tokens, or their letters; another suite has no such rule."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.json").write_text(json.dumps(["the sun</s> is </s>", "hot"]))
    flags = ("--tasks=text", f"--data_dir=text={tmp_path / 'text'}")
    control = run(miron, Path("demo"), tmp_path / "control", *flags)["tasks"]["text/a"]
    text = run(miron, Path("demo"), tmp_path / "as_text", *flags, "--special_tokens=text")["tasks"]["text/a"]
    assert control["control_tokens"] == {"</s>": 1}
    assert "special_tokens" not in control["profile"], "files of older versions have no such rule"
    assert "control_tokens" not in text
    assert text["profile"]["special_tokens"] == "text"
    assert text["tokens"] > control["tokens"]
    assert text["bytes"] == control["bytes"] == len("the sun</s> is </s>hot")

    ran = miron("eval", "--model=demo", "--tasks=miron-gen", f"--output={tmp_path / 'no'}", "--special_tokens=text")
    assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1)
    assert "--special_tokens=text is of --tasks=text alone" in ran.err


def test_a_tokens_loss_lies_on_its_bytes() -> None:
    """Tokens of 1, 0, 2, 0 bytes with losses 1, 2, 3, 4: the second joins the third, the fourth the last with bytes."""
    losses = spread(np.asarray([1.0, 2.0, 3.0, 4.0]), np.asarray([1, 1, 3, 3]), 3)
    assert losses.tolist() == [1.0, 4.5, 4.5]
    assert spread(np.asarray([2.0]), np.asarray([0]), 0).tolist() == []
    assert spread(np.zeros(0), np.zeros(0, np.int64), 2).tolist() == [0.0, 0.0], "a text of two bytes and no token"


@pytest.mark.slow  # lm-eval takes seconds to import
@settings(max_examples=60)
@given(st.integers(0, 70), st.integers(1, 20), st.integers(1, 20))
def test_windows_are_those_of_lm_eval(num_tokens: int, length: int, stride: int) -> None:
    lm_eval = needs("lm_eval.utils")
    stride = min(stride, length)
    ids = np.arange(1, num_tokens + 1, dtype=np.int32)
    ours = windows(ids, np.zeros(1, np.int32), length, stride)
    theirs = lm_eval.get_rolling_token_windows(ids.tolist(), 0, length, length - stride + 1)
    pairs = [(rest[: len(rest) - len(scored) + 1], scored) for rest, scored in theirs]  # make_disjoint_window
    assert [(each[:start].tolist(), each[start:].tolist()) for each, start in ours] == pairs
    assert [token for each, start in ours for token in each[start:].tolist()] == ids.tolist(), "each once, in order"
    assert all(len(each) <= length + 1 for each, _ in ours)


@settings(max_examples=60)
@given(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_several_tokens_before_a_document(num_tokens: int, length: int, stride: int, num_first: int) -> None:
    first = -np.arange(1, min(num_first, length) + 1, dtype=np.int32)
    ids = np.arange(1, num_tokens + 1, dtype=np.int32)
    cut = windows(ids, first, length, min(stride, length))
    assert [token for each, start in cut for token in each[start:].tolist()] == ids.tolist(), "each once, in order"
    assert all(1 <= start < len(each) <= length + 1 for each, start in cut)


def test_windows_are_as_long_as_was_asked_for(tmp_path: Path) -> None:
    """Without a wish they have the length that the model was trained at; learned positions are a hard limit."""
    profile = read_suite(write(tmp_path / "text")).tasks[0].profile
    for limit, expected in (((None, None, 16), 16), ((512, None, 256), 512), ((512, 384, 256), 384)):
        assert LengthLimit(*limit).of(profile) == expected


TOKENIZERS = {kind: tokenizer_of(kind) for kind in FOLDERS}
TABLES = {kind: TokenBytes(tokenizer) for kind, tokenizer in TOKENIZERS.items()}


@settings(max_examples=60)
@given(st.sampled_from(FOLDERS), st.text(max_size=40), st.integers(0, 2**32 - 1))
def test_every_byte_has_its_share(kind: str, text: str, seed: int) -> None:
    """For any Unicode: as many losses as bytes, their sum is that of the tokens, and no token's bytes overlap another's."""
    tokenizer, table = TOKENIZERS[kind], TABLES[kind]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    nll = np.random.default_rng(seed).exponential(size=len(ids))
    ends = byte_ends(tokenizer, table, text, ids)
    losses = spread(nll, ends, len(text.encode()))
    assert len(losses) == len(text.encode())
    assert losses.sum() == pytest.approx(nll.sum(), rel=FLOAT64)
    assert (np.diff(ends, prepend=0) >= 0).all()
    if table.ends(ids, text) is not None and ids:  # each token's bytes are those that it decodes to
        starts = [0, *ends[:-1].tolist()]
        pieces = [text.encode()[a:b] for a, b in zip(starts, ends.tolist(), strict=True)]
        spelled = [table.of[token] or b"" for token in ids]
        assert pieces[1:] == spelled[1:]
        assert spelled[0].endswith(pieces[0])


def test_special_tokens_in_a_text_keep_its_bytes() -> None:
    text = "the <|endoftext|>sun ☀<|endoftext|>"
    tokenizer, table = TOKENIZERS["gpt2"], TABLES["gpt2"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert table.ends(ids, text) is None, "a special token has no bytes"
    ends = byte_ends(tokenizer, table, text, ids)
    losses = spread(np.ones(len(ids)), ends, len(text.encode()))
    assert len(losses) == len(text.encode())
    special = text.encode().index(b"<|endoftext|>")
    assert losses[special : special + 13].sum() == pytest.approx(1.0)


def test_a_ratio_is_that_of_the_sums() -> None:
    a, b = np.array([1.0, 4.0, math.nan, 7.0]), np.array([2.0, 4.0, 1.0, 10.0])
    estimate = ratio(a, b)
    assert estimate.value == pytest.approx(12 / 16)
    residuals = np.array([1 - 1.5, 4 - 3, 7 - 7.5])
    assert estimate.stderr == pytest.approx(math.sqrt(3 / 2 * (residuals**2).sum()) / 16)
    assert (estimate.num_examples, estimate.num_undefined) == (3, 1)
    assert math.isnan(ratio(np.zeros(0), np.zeros(0)).value)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):  # documents of very different lengths, 100 a draw
        size = rng.lognormal(5, 1, 100)
        low, high = ratio(size * rng.normal(0.8, 0.2, 100), size).ci95
        covered += low <= 0.8 <= high
    assert covered / 400 >= 0.9


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", '{"txt": "x"}\n', "record 1: field 'text' holds None, expected a text"),
        ("a.jsonl", '{"text": "x"}\n{"text": 3}\n', "record 2: field 'text' holds 3"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "nothing\n", "found no valid JSON"),
        ("a.jsonl.gz", "plain", "cannot be read"),
        ("a.jsonl.gz", gzip.compress(b"xy" * 99, mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
        (".a.txt", "x", "holds no document"),
        ("a.txt", b"\xff", "byte 1 is not UTF-8"),
        ("a.json", '["\\ud83d"]', "half a surrogate pair"),
        ("a.parquet", "no", "cannot be read"),
        ("a.pdf", "x", "holds no document, expected files that end in .jsonl"),
        ("twice", "", "is the group text/a too: rename one of them"),
    ],
)
def test_wrong_folders_are_one_sentence(tmp_path: Path, name: str, content: str | bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if name == "twice":
        (tmp_path / "a.txt").write_text("x")
        (tmp_path / "a.json").write_text("[]")
    with pytest.raises(InputError) as error:
        read_examples(read_suite(tmp_path).tasks[0], tmp_path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="there is no such folder"):
        read_suite(tmp_path / "absent")
