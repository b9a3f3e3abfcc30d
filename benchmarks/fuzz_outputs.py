"""Files of runs that benchmarks/fuzz.py damages, a sane one of each and what reads it: results and
samples, segments of a journal, the eval bundle's archive."""

import io
import json
import os
import tempfile
import zipfile
from pathlib import Path

from fuzz import Target
from fuzz_data import MULTIPLE, quietly, write_lines

from miron_jax.errors import InputError
from miron_jax.files.store import Store
from miron_jax.report.compare.runs import compare
from miron_jax.report.html.page import page_of
from miron_jax.report.tables.console import console
from miron_jax.report.tables.results import print_results
from miron_jax.report.tables.robustness import print_robustness
from miron_jax.results.run_folder import read_runs
from miron_jax.runtime.journal import FOLDER, Journal, JournalText, _checksum
from miron_jax.runtime.progress import Lines
from miron_jax.tasks import core, eval_bundle
from miron_jax.tasks.mera.site import export


def _write_results(folder: Path) -> None:
    entry = {"value": 0.5, "stderr": 0.1, "cluster_stderr": None, "n": 4, "clusters": 2}
    robustness = {
        "main": "accuracy",
        "cluster": "story",
        "clusters": 2,
        "metrics": {"accuracy": entry},
        "by": {"template": {"1": entry}},
    }
    means = {
        name: {"value": 0.5, "stderr": 0.1, "ci95": [0.3, 0.7]}
        for name in ("accuracy", "bits_per_byte")
    }
    task = {
        "n": 2, "kind": "multiple_choice", "main": "accuracy", "section": None, "metrics": means,
        "robustness": robustness,
        "baselines": {"random": 0.5, "human": None}, "human": [], "rescaled": None,
        "reference": {"m": 0.5}, "skipped": 0,
        "profile": {"num_fewshot": 0, "categories": "pooled"},
        "data": {"file": "a", "state": "as published"},
    }  # fmt: skip
    composite = {
        "value": 0.5,
        "stderr": 0.1,
        "ci95": [0.3, 0.7],
        "weights": {"mera-v1/parus": 1.0},
        "missing": [],
    }
    run = {
        "schema": 1, "config": {"model": "m"}, "environment": {"device": "cpu"},
        "speed": {"requests": 2},
        "suites": {"mera-v1": {"composites": {"all": composite}},
            "eval-ua-tion": {"composites": {}}},
    }  # fmt: skip
    (folder / "results.json").write_text(
        json.dumps({**run, "tasks": {"eval-ua-tion/a": task, "mera-v1/parus": task}})
    )
    option = {
        "text": " 1",
        "logprob": -1.5,
        "num_tokens": 1,
        "token_logprobs": [-1.5],
        "greedy": False,
    }
    sample = {
        "id": 0, "row": 0, "prompt": "q", "prompt_sha256": "0", "meta": {"id": 0},
        "options": [option, option],
        "gold": 1, "prediction": 1, "correct": True, "generated": None,
        "metrics": {"accuracy": 1.0, "bits_per_byte": 0.5},
    }  # fmt: skip
    for name in ("mera-v1/parus", "eval-ua-tion/a"):
        wrong = {
            **sample,
            "id": 1,
            "row": 1,
            "meta": {"id": 1},
            "metrics": {"accuracy": 0.0, "bits_per_byte": 0.5},
        }
        write_lines(folder / f"samples/{name}.jsonl", sample, wrong)


def _read_results(folder: Path) -> None:
    export(folder, folder / "out.zip", "v1")
    [run] = runs = read_runs([str(folder)])
    quietly(lambda: print_results(console(), run.result))
    quietly(lambda: print_robustness(console(), run))
    compare(run, run)
    page_of(runs)


def _write_journal(folder: Path) -> None:
    """The members of a segment, a file each: the checksums of the segment and of its zip would
    refuse all damage."""
    with tempfile.TemporaryDirectory() as scratch:
        with Journal(Store(scratch), "k", "0") as journal:
            journal.add_text("d", JournalText("a text", (1, 2), "eos"))
        [segment] = Path(scratch).rglob("*.npz")
        with zipfile.ZipFile(segment) as members:
            members.extractall(folder)


def _read_journal(folder: Path) -> None:
    """A segment of the damaged members is taken in or set aside, which counts as refused."""
    segment, said = io.BytesIO(), list[str]()
    with zipfile.ZipFile(segment, "w") as members:
        for path in folder.glob("*.npy"):
            members.writestr(path.name, path.read_bytes())
    content = segment.getvalue()
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(scratch)
        store.put(f"{FOLDER}/k/0-a-000001-{_checksum(content)}.npz", content)
        with Journal(store, "k", "0", Lines(said.append)):
            if said:
                raise InputError(said[0])


def _write_bundle(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "eval_bundle/eval_data/commonsense_reasoning/copa.jsonl", json.dumps(MULTIPLE)
        )
        archive.writestr("eval_bundle/core.yaml", "icl_tasks: []")


def _read_bundle(folder: Path) -> None:
    os.environ["MIRON_JAX_DATA"] = str(folder / "cache")
    eval_bundle.BUNDLE_URL = (folder / "bundle.zip").as_uri()
    task = next(task for task in core.SUITE.tasks if task.name == "core/copa")
    eval_bundle.locate_files(None, True, {task.file.path: None}, "CORE")


TARGETS = [
    Target("results", _write_results, _read_results),
    Target("journal", _write_journal, _read_journal),
    Target("bundle", _write_bundle, _read_bundle),
]
