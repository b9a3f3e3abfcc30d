"""A run that was killed goes on: whole parts are used, damaged ones set aside, and nothing is reused that changed."""

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.engine.scores import score_planned
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.evaluation import journal_key
from miron_jax.evaluation.texts import generated
from miron_jax.files.store import Lock, Store
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint, weights_fingerprint
from miron_jax.model.costs import cost_model
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import FOLDER, VERDICT, Entries, Journal, JournalText, run_key
from miron_jax.runtime.progress import Lines
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support import processes
from tests.support.command import in_process
from tests.support.kept_runs import WRITES_AT_ONCE, parts_in, same_results
from tests.support.requests import some_requests
from tests.support.tiny_model import make_model, write_core_data
from tests.support.tolerances import TOKEN


def entries_of(*sizes: int, seed: int = 0) -> Entries:
    rng, total = np.random.default_rng(seed), sum(sizes)
    digests, offsets = rng.integers(0, 256, (len(sizes), 16)).astype(np.uint8), np.cumsum([0, *sizes]).astype(np.int64)
    logprob, set_logprob = (-rng.random(size).astype(np.float32) for size in (total, len(sizes)))
    rank, distribution = (
        rng.integers(0, 9, total).astype(np.int32),
        np.stack([logprob, logprob / 2, logprob / 3], axis=1),
    )
    return Entries(digests, offsets, logprob, rank, set_logprob, distribution)


def test_scores_without_a_distribution_are_read_as_older_versions_wrote_them(tmp_path: Path) -> None:
    """Their files have no such array."""
    entries = entries_of(3, 1)._replace(distribution=np.zeros((4, 0), np.float32))
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        journal.add(entries)
    with np.load(parts_in(tmp_path)[0]) as arrays:
        assert "distribution" not in arrays
    with Journal(Store(str(tmp_path)), "k", "0") as again:
        assert again.scores_of([each.tobytes() for each in entries.digests]).distribution.shape == (4, 0)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    store, entries = Store(str(tmp_path)), entries_of(3, 1, 0, 4)
    texts = {"d" * 32: JournalText("caf\u00e9 \ud800", (1, 2), "eos"), "e" * 32: JournalText("", (), "length")}
    with Journal(store, "k", "0") as journal:
        journal.add(entries)
        for digest, text in texts.items():
            journal.add_text(digest, text)
    assert len(parts_in(tmp_path)) == 1
    with Journal(store, "k", "0") as again:
        digests = [entries.digests[i].tobytes() for i in (3, 0, 2)]
        assert again.known([*digests, b"x" * 16]).tolist() == [True, True, True, False]
        stored = again.scores_of(digests)
        assert stored.offsets.tolist() == [0, 4, 7, 7]
        np.testing.assert_array_equal(stored.logprob, entries.logprob[[4, 5, 6, 7, 0, 1, 2]])
        np.testing.assert_array_equal(stored.rank, entries.rank[[4, 5, 6, 7, 0, 1, 2]])
        np.testing.assert_array_equal(stored.distribution, entries.distribution[[4, 5, 6, 7, 0, 1, 2]])
        np.testing.assert_array_equal(stored.set_logprob, entries.set_logprob[[3, 0, 2]])
        assert {digest: again.text_of(digest) for digest in texts} == texts
        assert again.what_is_known == f"{again.num_known} scores and texts"
        scores = again.num_known
        again.add_text(f"{VERDICT}f", JournalText("", (), "ok"))
    with Journal(store, "k", "0") as again:
        assert again.what_is_known == f"{scores} scores and texts and 1 verdicts of programs"
    with Journal(store, "another key", "0") as other:
        assert other.num_known == 0, "a journal knows whose it is"


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "renamed"])
def test_a_damaged_part_is_set_aside(harm: str, tmp_path: Path) -> None:
    store, said = Store(str(tmp_path)), []
    for seed in (0, 1):
        with Journal(store, "k", str(seed)) as journal:
            journal.add(entries_of(2, 2, seed=seed))
    path = parts_in(tmp_path)[0]
    data = path.read_bytes()
    if harm == "renamed":
        path = path.rename(path.with_name("0-1-000001-0123456789abcdef.npz"))
    else:
        flipped = bytes([*data[:200], data[200] ^ 1, *data[201:]])
        path.write_bytes({"cut": data[: len(data) // 2], "flipped": flipped, "empty": b""}[harm])
    (path.parent / ".0-1-000001-ab.npz.77.partial").write_bytes(b"PK")  # of a run that was killed as it wrote
    with Journal(store, "k", "0", Lines(said.append)) as journal:
        for seed, is_whole in ((0, False), (1, True)):
            digests = [digest.tobytes() for digest in entries_of(2, 2, seed=seed).digests]
            assert journal.known(digests).tolist() == [is_whole] * 2
    assert ["is damaged: set aside" in line for line in said] == [True]
    assert (path.parent / "damaged" / path.name).is_file()
    assert not path.exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_model(make_model(tmp_path_factory.mktemp("model")), "float32")


def test_a_resumed_run_scores_only_what_is_missing(model: Any, tmp_path: Path) -> None:
    """Part of a journal, another batch size: the same scores, and no row computed whose requests are all there."""
    requests, id_sets = some_requests(), [np.asarray(ids) for ids in ([1], [7, 8, 9], range(200))]
    requests = replace(requests, id_set=np.arange(len(requests), dtype=np.int32) % 4 - 1)
    [part] = plan_request_batches([requests], cost_model(model.config), Totals(), id_sets=id_sets)

    def run(folder: Path, stop_after: int | None = None, budget: int = 256) -> tuple[Any, set[int]]:
        forward, rows = Forward(model._replace(with_distribution=True), budget, id_sets=id_sets), set[int]()
        run_rows = forward.run_all

        def watched(*arguments: Any) -> Any:
            for i, scored in enumerate(run_rows(*arguments)):
                if i == stop_after:
                    raise KeyboardInterrupt
                rows.update(scored.rows)
                yield scored

        forward.run_all = watched  # type: ignore[method-assign]
        with Journal(Store(str(folder)), "k", "0") as journal:
            [(_, scores)] = score_planned([part], forward, SelfCheck(TOLERANCE["float32"]), journal=journal)
            return scores, rows

    whole, every = run(tmp_path / "whole")
    assert every == set(range(part.plan.num_rows))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", stop_after=2)
    resumed, rest = run(tmp_path / "cut", budget=512)
    assert 0 < len(rest) < len(every)
    np.testing.assert_allclose(resumed.logprob, whole.logprob, rtol=0, atol=TOKEN)
    np.testing.assert_allclose(resumed.set_logprob, whole.set_logprob, rtol=0, atol=TOKEN)
    np.testing.assert_allclose(resumed.distribution, whole.distribution, rtol=0, atol=TOKEN)
    np.testing.assert_array_equal(resumed.rank, whole.rank)
    assert run(tmp_path / "cut")[1] == set(), "no request is scored twice"


def test_nan_stays_out_of_the_journal(model: Any, tmp_path: Path) -> None:
    with_nan = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf * jnp.nan, state))
    broken = model._replace(state=with_nan(model.state))
    [part] = plan_request_batches([some_requests(groups=2)], cost_model(model.config), Totals())
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        [(_, scores)] = score_planned([part], Forward(broken, 256), SelfCheck(TOLERANCE["float32"]), journal=journal)
    assert np.isnan(scores.logprob).all()
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        assert journal.num_known == 0


def test_completions_with_nan_stay_out_of_the_journal(tmp_path: Path) -> None:
    endings = {(1,): "eos", (2,): "nan", (3,): "length"}

    class Generator:
        def run(self, requests: list[TextRequest], finished: Any) -> list[Generated]:
            texts = [Generated("a", (5,), endings[request.token_ids]) for request in requests]  # type: ignore[arg-type]
            for request, text in zip(requests, texts, strict=True):
                finished(request, text)
            asked.append([request.token_ids for request in requests])
            return texts

    asked: list[Any] = []
    requests = [TextRequest(ids, 4) for ids in endings]
    for expected in ([(1,), (2,), (3,)], [(2,)]):
        with Journal(Store(str(tmp_path)), "k", "0") as journal:
            texts = generated(requests, Generator(), journal, Hosts(), "1")  # type: ignore[arg-type]
        assert [text.ended for text in texts] == list(endings.values())
        assert asked[-1] == expected, "NaN alone is asked again"


def test_the_key_is_of_all_that_scores_and_texts_depend_on(model: Any, tmp_path: Path, monkeypatch) -> None:
    def key(weights: str = "w", dtype: str = "float32", **architecture: Any) -> str:
        given = {"source": "llama", "eos_ids": {3, 1}, "tokenizer": tokenizer, **architecture}
        return journal_key.agreed_key(Hosts(), "1", model, SimpleNamespace(**given), weights, dtype)  # type: ignore[arg-type]

    make_model(tmp_path / "a")
    tokenizer = load_tokenizer(str(tmp_path / "a"))
    text = (tmp_path / "a" / "tokenizer.json").read_text()
    changed = text.replace('"add_prefix_space": false', '"add_prefix_space": true', 1)
    (tmp_path / "a" / "tokenizer.json").write_text(changed)
    other = load_tokenizer(str(tmp_path / "a"))
    assert tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(other)
    first = key()
    assert key(eos_ids={1, 3}) == first
    keys = [first, key("x"), key(dtype="bfloat16"), key(eos_ids={1}), key(tokenizer=other), key(source="gpt2")]
    precision = SimpleNamespace(values={"jax_default_matmul_precision": "default"})
    for name, value in (
        ("jax", SimpleNamespace(config=precision)),
        ("attention_of", lambda _: SimpleNamespace(name="another")),
        ("Placement", SimpleNamespace(of=lambda _: SimpleNamespace(device=SimpleNamespace(platform="gpu")))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(journal_key, name, value)
            keys.append(key())
    assert key() == first
    assert len(set(keys)) == len(keys)
    assert run_key({"dtype": "float32"}) != run_key({"dtype": "bfloat16"})


def test_fingerprints_see_every_bit_and_no_place() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 7)).astype(np.float32), jnp.asarray(rng.normal(size=6), jnp.bfloat16)

    def of(changed: np.ndarray, **more: Any) -> str:
        return weights_fingerprint({"a": jnp.asarray(changed), "b": b, **more})

    before = of(a)
    assert before == of(a.copy()), "a copy is the same"
    flipped = (a.view(np.uint32) ^ np.eye(35, dtype=np.uint32).reshape(35, 5, 7)).view(np.float32)
    signs = 1 - 2 * np.eye(35, dtype=np.float32)
    two_signs = [a * (signs[i] * signs[j]).reshape(5, 7) for i, j in ((0, 1), (3, 17), (8, 34))]
    others = [*flipped, -a, a * 2, *two_signs, a[[1, 0, 2, 3, 4]]]
    assert len({before, *map(of, others)}) == 1 + len(others)
    square = rng.normal(size=(6, 6)).astype(np.float32)
    assert of(a, c=jnp.asarray(square)) != of(a, c=jnp.asarray(square.T))
    padded = np.concatenate([a, np.zeros((3, 7), np.float32)])
    assert of(padded) == before, "rows that fill a vocabulary up are no weights"
    assert weights_fingerprint({"a": jnp.asarray(a), "c": b}) != before
    assert weights_fingerprint({"a": jnp.asarray(a, jnp.bfloat16), "b": b}) != before


def test_a_text_is_named_by_all_that_it_depends_on() -> None:
    first = TextRequest((1, 2), 5, ("\n",), Sampling(0.5, 3, 0.9, 7))
    fields = ({}, {"token_ids": (1, 3)}, {"max_new_tokens": 6}, {"stop": ("\n", "x")})
    rules = ({"temperature": 0.6}, {"top_k": 2}, {"top_p": 0.8}, {"seed": 8})
    requests = [replace(first, **changes) for changes in fields]
    requests += [replace(first, sampling=replace(first.sampling, **changes)) for changes in rules]
    assert len({request.digest for request in requests}) == len(requests)
    assert requests[0].digest == first.digest


def test_the_second_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "out"))
    with Lock(store), pytest.raises(InputError, match=r"is being written by another run \(.* process \d+\)"):
        Lock(store)
    assert not (tmp_path / "out").exists(), "nothing came of it"
    with Lock(store):
        store.put("results.json", b"{}")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.json"]


def test_a_lock_in_an_object_store_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miron_jax.files.store.BEAT_SECONDS", 0.1)
    monkeypatch.setattr("miron_jax.files.store.SILENT_SECONDS", 0.5)
    store = Store(f"memory://locks/{time.time_ns()}")
    with Lock(store), pytest.raises(InputError, match="is being written by another run"):
        Lock(store)
    assert not store.has(".lock")
    store.put(".lock", b"a-host process 1 dead 7")  # of a run that was killed
    with Lock(store):
        assert store.get(".lock").decode().split()[2] == str(os.getpid())


# Whole runs: killed, interrupted, of another model.


class Whole(NamedTuple):
    """An uninterrupted run that wrote each of its scores at once."""

    model: Path
    data: Path
    output: Path

    def flags(self, output: Path, model: Path | None = None) -> list[str]:
        return [
            f"--model={model or self.model}", f"--data_dir={self.data}", "--tasks=core,miron-gen/en",
            "--items_per_category=3", f"--output={output}", "--allow_changed_data", "--token_budget=64",
            "--compilation_cache=",
        ]  # fmt: skip

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.output / "results.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    run = Whole(make_model(folder / "model"), write_core_data(folder / "data"), folder / "out")
    processes.run("-c", WRITES_AT_ONCE, "eval", *run.flags(run.output), devices=1, check=True)
    assert len(parts_in(run.output)) > 12, "a run of many batches"
    return run


WRITES_SLOWLY = """
import pathlib, time

def slowly(path, data):
    with path.open("wb") as file:
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            file.write(half)
            file.flush()
            time.sleep(0.03)

type(pathlib.Path()).write_bytes = slowly
"""


@pytest.mark.slow
@pytest.mark.parametrize("moments", [6, pytest.param(20, marks=pytest.mark.long)])
def test_kill_9_at_many_moments_loses_nothing(moments: int, whole: Whole, tmp_path: Path) -> None:
    """Killed and resumed on 1 and 2 devices, inside a write as well; the results are those of a run left alone."""
    flags, output, rng = whole.flags(tmp_path / "out"), tmp_path / "out", random.Random(1)

    def written() -> list[str]:
        return [entry.name for folder in output.glob("journal/*") for entry in sorted(folder.iterdir())]

    endings = []
    for i in range(moments):
        before, start = written(), time.monotonic()
        process = processes.start("-c", WRITES_SLOWLY + WRITES_AT_ONCE, "eval", *flags, devices=1 + i // 2 % 2)
        while (written() == before or i == 1) and process.poll() is None:  # as soon as it writes, or a little later
            if i == 1 and time.monotonic() > start + 0.3:  # before it does
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        endings.append(process.poll())
        process.kill()
        process.communicate()
    assert endings.count(None) >= min(moments // 2, 6), endings  # after enough kills nothing is left to do
    assert not any(endings), endings
    assert parts_in(output)
    finished = processes.run("-c", WRITES_AT_ONCE, "eval", *flags, devices=2, check=True)
    assert "scores and texts are there already" in finished.stderr
    same_results(json.loads((output / "results.json").read_text()), whole.results)
    before = parts_in(output)
    assert in_process("eval", *flags).status == 0
    assert parts_in(output) == before, "a finished run has nothing left to score"
    same_results(json.loads((output / "results.json").read_text()), whole.results)


@pytest.mark.slow
def test_sigterm_writes_what_is_done_and_says_so(whole: Whole, tmp_path: Path) -> None:
    flags = whole.flags(tmp_path / "out")
    process = processes.start("-c", WRITES_AT_ONCE, "eval", *flags, devices=1)
    while not parts_in(tmp_path / "out") and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "interrupted; what is scored is kept, run the same command again" in err
    assert not (tmp_path / "out" / ".lock").exists()
    assert "are there already" in in_process("eval", *flags).err
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), whole.results)


@pytest.mark.slow
def test_a_changed_model_reuses_nothing(whole: Whole, tmp_path: Path) -> None:
    copy = shutil.copytree(whole.model, tmp_path / "model")
    shutil.copytree(whole.output / FOLDER, tmp_path / "out" / FOLDER)
    flags = whole.flags(tmp_path / "out", copy)
    same = in_process("eval", *flags)
    assert "there already" in same.err, same.err
    make_model(copy, seed=9)
    assert "there already" not in in_process("eval", *flags).err
    assert len(list((tmp_path / "out" / FOLDER).iterdir())) == 2
