"""A run that was killed goes on: whole parts are used, damaged ones set aside, and nothing is reused that changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.engine.scores import score_planned
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.files.store import Lock, Store
from miron_jax.model.costs import cost_model
from miron_jax.model.fingerprint import tokenizer_fingerprint, weights_fingerprint
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.runtime.journal import FOLDER, Entries, Journal, Text, run_key
from miron_jax.runtime.progress import Lines
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.conftest import REPOSITORY
from tests.support.kept_runs import WRITES_AT_ONCE, done, environment, parts_in, same_results
from tests.support.requests import some_requests
from tests.support.tiny_model import make_model, write_core_data
from tests.support.tolerances import TOKEN

pytestmark = pytest.mark.slow


def entries_of(*sizes: int, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    return Entries(
        rng.integers(0, 256, (len(sizes), 16)).astype(np.uint8),
        np.cumsum([0, *sizes]).astype(np.int64),
        -rng.random(total).astype(np.float32),
        rng.integers(0, 9, total).astype(np.int32),
        -rng.random(len(sizes)).astype(np.float32),
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    store, own = Store(str(tmp_path)), entries_of(3, 1, 0, 4)
    texts = {"d" * 32: Text("caf\u00e9 \ud800", (1, 2), "eos"), "e" * 32: Text("", (), "length")}
    with Journal(store, "k", "0") as journal:
        journal.add(own)
        for digest, text in texts.items():
            journal.add_text(digest, text)
    assert len(parts_in(tmp_path)) == 1
    with Journal(store, "k", "0") as again:
        digests = [own.digests[i].tobytes() for i in (3, 0, 2)]
        assert again.known([*digests, b"x" * 16]).tolist() == [True, True, True, False]
        found = again.scores_of(digests)
        assert found.offsets.tolist() == [0, 4, 7, 7]
        np.testing.assert_array_equal(found.logprob, own.logprob[[4, 5, 6, 7, 0, 1, 2]])
        np.testing.assert_array_equal(found.rank, own.rank[[4, 5, 6, 7, 0, 1, 2]])
        np.testing.assert_array_equal(found.set_logprob, own.set_logprob[[3, 0, 2]])
        assert {digest: again.text_of(digest) for digest in texts} == texts
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
    with Journal(store, "k", "0", Lines(said.append)) as journal:
        assert journal.known([own.tobytes() for own in entries_of(2, 2, seed=0).digests]).tolist() == [False, False]
        assert journal.known([own.tobytes() for own in entries_of(2, 2, seed=1).digests]).tolist() == [True, True]
    assert len(said) == 1
    assert "is damaged: set aside" in said[0]
    assert (path.parent / "damaged" / path.name).is_file()
    assert not path.exists()


def test_an_unfinished_part_of_a_killed_run_is_nothing(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "k").mkdir(parents=True)
    (tmp_path / FOLDER / "k" / ".0-1-000001-ab.npz.77.partial").write_bytes(b"PK")
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        assert journal.num_known == 0


def test_a_resumed_run_scores_only_what_is_missing(tmp_path: Path) -> None:
    """Part of a journal, another batch size: the same scores, and no row computed whose requests are all there."""
    model = load_model(make_model(tmp_path / "model"), "float32")
    cost = cost_model(model.config)
    [part] = plan_request_batches([some_requests()], cost, Totals())

    def run(folder: Path, stop_after: int | None = None, budget: int = 256) -> tuple[Any, set[int]]:
        forward, rows = Forward(model, budget), set[int]()
        run_rows = forward.run

        def watched(*arguments: Any) -> Any:
            for i, scored in enumerate(run_rows(*arguments)):
                if i == stop_after:
                    raise KeyboardInterrupt
                rows.update(scored.rows)
                yield scored

        forward.run = watched  # type: ignore[method-assign]
        with Journal(Store(str(folder)), "k", "0") as journal:
            return next(iter(score_planned([part], forward, SelfCheck(TOLERANCE["float32"]), journal=journal))), rows

    whole, every = run(tmp_path / "whole")
    assert every == set(range(part.plan.num_rows))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", stop_after=2)
    resumed, rest = run(tmp_path / "cut", budget=512)
    assert 0 < len(rest) < len(every)
    np.testing.assert_allclose(resumed.logprob, whole.logprob, rtol=0, atol=TOKEN)
    np.testing.assert_array_equal(resumed.rank, whole.rank)
    third, nothing = run(tmp_path / "cut")
    assert nothing == set(), "no request is scored twice"
    np.testing.assert_array_equal(third.logprob, resumed.logprob)


def test_nan_stays_out_of_the_journal(tmp_path: Path) -> None:
    model = load_model(make_model(tmp_path / "model"), "float32")
    broken = model._replace(state=jax.tree.map(lambda leaf: leaf * jnp.nan, model.state))
    [part] = plan_request_batches([some_requests(groups=2)], cost_model(model.config), Totals())
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        [scores] = score_planned([part], Forward(broken, 256), SelfCheck(TOLERANCE["float32"]), journal=journal)
    assert np.isnan(scores.logprob).all()
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        assert journal.num_known == 0


def test_fingerprints_see_every_bit_and_no_place(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state = {"a": jnp.asarray(rng.normal(size=(5, 7)), jnp.float32), "b": jnp.asarray(rng.normal(size=6), jnp.bfloat16)}
    before = weights_fingerprint(state)
    assert before == weights_fingerprint(jax.tree.map(jnp.array, state)), "a copy is the same"
    for i in range(35):
        words = np.asarray(state["a"]).copy().view(np.uint32)
        words.flat[i] ^= 1
        assert weights_fingerprint({**state, "a": jnp.asarray(words.view(np.float32))}) != before
    assert weights_fingerprint({**state, "a": -state["a"]}) != before
    assert weights_fingerprint({**state, "a": state["a"] * 2}) != before
    for i, j in ((0, 1), (3, 17), (8, 34)):  # signs in pairs
        signs = np.ones(35, np.float32)
        signs[[i, j]] = -1
        assert weights_fingerprint({**state, "a": state["a"] * signs.reshape(5, 7)}) != before
    swapped = np.asarray(state["a"])[[1, 0, 2, 3, 4]]
    assert weights_fingerprint({**state, "a": jnp.asarray(swapped)}) != before
    assert weights_fingerprint({"a": state["a"], "c": state["b"]}) != before
    padded = jnp.concatenate([state["a"], jnp.zeros((3, 7), jnp.float32)])
    assert weights_fingerprint({**state, "a": padded}) == before, "rows that fill a vocabulary up are no weights"
    other = {"a": state["a"].astype(jnp.bfloat16), "b": state["b"]}
    assert weights_fingerprint(other) != before
    make_model(tmp_path / "a")
    first = tokenizer_fingerprint(load_tokenizer(str(tmp_path / "a")))
    text = (tmp_path / "a" / "tokenizer.json").read_text()
    (tmp_path / "a" / "tokenizer.json").write_text(
        text.replace('"add_prefix_space": false', '"add_prefix_space": true', 1)
    )
    assert tokenizer_fingerprint(load_tokenizer(str(tmp_path / "a"))) != first


def test_a_text_is_named_by_all_that_it_depends_on() -> None:
    first = TextRequest((1, 2), 5, ("\n",), Sampling(0.5, 3, 0.9, 7))
    others = [
        TextRequest((1, 3), 5, ("\n",), Sampling(0.5, 3, 0.9, 7)),
        TextRequest((1, 2), 6, ("\n",), Sampling(0.5, 3, 0.9, 7)),
        TextRequest((1, 2), 5, ("\n", "x"), Sampling(0.5, 3, 0.9, 7)),
        *(TextRequest((1, 2), 5, ("\n",), Sampling(*own)) for own in ((0.6, 3, 0.9, 7), (0.5, 2, 0.9, 7))),
        *(TextRequest((1, 2), 5, ("\n",), Sampling(*own)) for own in ((0.5, 3, 0.8, 7), (0.5, 3, 0.9, 8))),
    ]
    assert len({own.digest for own in [first, *others]}) == 1 + len(others)
    assert TextRequest((1, 2), 5, ("\n",), Sampling(0.5, 3, 0.9, 7)).digest == first.digest
    parts = {"weights": "a", "dtype": "float32", "tokenizer": "t"}
    assert len({run_key({**parts, name: "x"}) for name in parts} | {run_key(parts)}) == 4


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


def eval_command(model: Path, data: Path, output: str, *more: str) -> list[str]:
    flags = [f"--model={model}", f"--data_dir={data}", "--tasks=core,miron-gen/en", "--items_per_category=3"]
    flags += [f"--output={output}", "--allow_changed_data", "--token_budget=64", *more]
    return [sys.executable, "-c", WRITES_AT_ONCE, "eval", *flags]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any], float, Path]:
    """Model, data, results of an uninterrupted run, its seconds, and a cache of compiled programs."""
    folder = tmp_path_factory.mktemp("whole")
    model, data = make_model(folder / "model"), write_core_data(folder / "data")
    command = eval_command(model, data, str(folder / "out"), f"--compilation_cache={folder / 'programs'}")
    done(command)  # compiles
    shutil.rmtree(folder / "out")
    start = time.monotonic()
    done(command)
    seconds = time.monotonic() - start
    return model, data, json.loads((folder / "out" / "results.json").read_text()), seconds, folder / "programs"


KILLED = """
import os, pathlib, random, sys, time
import jax, miron_jax, miron_jax.cli, miron_jax.runtime.journal, miron_jax.report.table, miron_jax.run, miron_jax.files.store
seconds, rounds, arguments = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
miron_jax.runtime.journal.FLUSH_SECONDS = 0
put = type(pathlib.Path()).write_bytes

def slowly(path, data):
    with path.open("wb") as file:
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            file.write(half)
            file.flush()
            time.sleep(0.03)

def written():
    return [entry.name for folder in output.glob("journal/*") for entry in sorted(folder.iterdir())]

random.seed(1)
output = next(pathlib.Path(flag.partition("=")[2]) for flag in arguments if flag.startswith("--output="))
for i in range(rounds):  # no backend and no thread yet: a copy of this process is one that has only imported
    child = os.fork()
    if not child:
        jax.config.update("jax_num_cpu_devices", 1 + i % 3)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(2, 1)
        type(pathlib.Path()).write_bytes = slowly
        sys.argv = ["miron-jax", *arguments]
        miron_jax.cli.main()
    if i % 2:
        time.sleep(random.uniform(0.1, 1.0) * seconds)
        ended = os.waitpid(child, os.WNOHANG)[0]
    else:  # as soon as it writes, or a little later
        before, ended = written(), 0
        while written() == before and not ended:
            time.sleep(0.005)
            ended = os.waitpid(child, os.WNOHANG)[0]
        time.sleep(random.uniform(0.0, 0.1))
        ended = ended or os.waitpid(child, os.WNOHANG)[0]
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    print("ended" if ended else "killed", flush=True)
"""


@pytest.mark.parametrize("moments", [6, pytest.param(20, marks=pytest.mark.long)])
def test_kill_9_at_many_moments_loses_nothing(moments: int, whole: Any, tmp_path: Path) -> None:
    """Killed and resumed on 1, 2 and 3 devices, inside a write as well; the results are those of a run left alone."""
    model, data, expected, seconds, programs = whole
    command = eval_command(model, data, str(tmp_path / "out"), f"--compilation_cache={programs}")
    arguments = [sys.executable, "-c", KILLED, str(0.5 * seconds), str(moments), *command[3:]]
    endings = done(arguments).stdout.split()
    assert len(endings) == moments
    assert endings.count("killed") >= moments * 7 // 20, endings
    parts = len(parts_in(tmp_path / "out"))
    assert parts > 0
    finished = done(command, devices=3)
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), expected)
    before = len(parts_in(tmp_path / "out"))
    assert "scores and texts are there already" in finished.stderr
    done(command)
    assert len(parts_in(tmp_path / "out")) == before, "a finished run has nothing left to score"
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), expected)


def test_sigterm_writes_what_is_done_and_says_so(whole: Any, tmp_path: Path) -> None:
    model, data, expected, _, programs = whole
    command = eval_command(model, data, str(tmp_path / "out"), f"--compilation_cache={programs}")
    process = subprocess.Popen(command, env=environment(), cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not parts_in(tmp_path / "out") and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 75, told
    assert "interrupted; what is scored is kept, run the same command again" in told
    assert not (tmp_path / "out" / ".lock").exists()
    done(command)
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), expected)


def test_a_changed_model_or_dtype_reuses_nothing(whole: Any, tmp_path: Path) -> None:
    model, data, _, _, programs = whole
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    command = eval_command(copy, data, str(tmp_path / "out"), f"--compilation_cache={programs}")
    done(command)
    assert "there already" in done(command).stderr
    make_model(copy, seed=9)
    assert "there already" not in done(command).stderr
    assert len(list((tmp_path / "out" / FOLDER).iterdir())) == 2
