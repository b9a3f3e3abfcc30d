"""The folder in which the commands of README.md, docs/ and examples/ run: small data under the names that they use."""

import json
import shutil
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pyarrow as pa
from flax import nnx
from pyarrow import parquet

from miron_jax import load_params
from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.model import demo
from miron_jax.results.writing import write_finished
from miron_jax.runtime.timeline import Timeline
from miron_jax.tasks.generators.miron_gen.draft import package_folder
from tests.conftest import REPOSITORY
from tests.support import mera_records, uation_records
from tests.support.languages import write_language
from tests.support.tiny_model import make_model, write_core_data

CAPITALS = (("France", "Paris"), ("Italy", "Rome"), ("Norway", "Oslo"), ("Spain", "Madrid"), ("Austria", "Vienna"),
            ("Poland", "Warsaw"), ("Latvia", "Riga"))  # fmt: skip
CAPITALS_YAML = """task: capitals
data: capitals.jsonl
question: "Question: {{question}}"
choices: options
gold: answer
delimiter: "\\nAnswer: "
num_fewshot: 5
baseline: 0.25
"""
MIRON_ROWS = [
    {"prefix": "a green hi", "target": "ll", "category": "Morphology"},
    {"prefix": "rain falls on a small", "target": " hill where the sun is cold", "category": "Facts"},
    {"prefix": "the sun is hot and the rain", "target": " cold", "category": "Logic"},
    {"prefix": "the su n is", "target": " hot", "category": "Noise"},
]


def write(folder: Path) -> Path:
    """Everything that a page may name."""
    make_model(folder / "MODEL")
    _training_run(folder / "RUN_DIR")
    _other_names(folder / "other_names")
    write_core_data(folder / "EVAL_BUNDLE")
    sums = [{"context": f"one and {i}?", "chain_of_thought": "", "answer": str(i)} for i in range(6)]
    _lines(folder / "EVAL_BUNDLE" / "eval_data" / "symbolic_problem_solving" / "svamp.jsonl", sums)
    _programs(folder / "EVAL_BUNDLE" / "eval_data" / "programming")
    mera_records.write_mera(folder / "MERA", "v1")
    uation_records.write(folder / "UA")
    (folder / "MIRON_DATA").mkdir()
    for language in ("en", "ru"):
        parquet.write_table(pa.Table.from_pylist(MIRON_ROWS), folder / "MIRON_DATA" / f"miron_{language}.parquet")
    _lines(folder / "TEXTS" / "news.jsonl", [{"text": "A small hill.", "id": "x"}])
    (folder / "TEXTS" / "english").mkdir()
    (folder / "TEXTS" / "english" / "a.txt").write_text("The sun is hot and the rain is cold. " * 20)
    pairs = [(doc, text) for doc in "12" for text in (" hot", " cold")]
    request = {"task": "hills", "context": "the hill is"}
    _lines(
        folder / "SET" / "requests.jsonl",
        [{**request, "doc_id": doc, "continuation": text, "gold": 0} for doc, text in pairs],
    )
    _capitals(folder)
    _ukrainian_texts(folder)
    shutil.copy(REPOSITORY / "examples" / "nnx_model.py", folder / "my_model.py")
    shutil.copy(REPOSITORY / "examples" / "recurrent_model.py", folder / "my_recurrent.py")
    (folder / "job.flags").write_text(
        "--model=MODEL\n--tasks=core/copa\n--data_dir=EVAL_BUNDLE\n--allow_changed_data\n"
    )
    for name, seed in (("run1", 0), ("run2", 1)):
        _scored(folder, name, seed)
    shutil.copytree(folder / "run1", folder / "results")
    return folder


def _scored(folder: Path, name: str, seed: int) -> None:
    """A finished run of a model with random weights."""
    model = make_model(folder / "models" / str(seed), seed=seed)
    config = RunConfig(
        str(model), ("core/copa", "core/arc_easy"), data_dir=(("", str(folder / "EVAL_BUNDLE")),),
        output=str(folder / name), allow_changed_data=True,
    )  # fmt: skip
    write_finished(config, finished_run(config, evaluate(config, find_inputs(config))), Timeline().lap)


def _training_run(folder: Path) -> None:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo.FOLDER / name, folder / name)
    for step in ("200", "1500"):
        shutil.copytree(demo.FOLDER / "steps" / step, folder / step)


def _other_names(folder: Path) -> None:
    """The demo model under the names of the page's map.json: norms by layer, kernels stacked on their second axis."""
    weights = nnx.to_pure_dict(load_params("demo"))
    layers = weights["layers"]
    kernels = {**layers["attn"], **layers["mlp"]}
    names = ("q", "k", "v", "out", "gate", "up", "down")
    tree = {
        "wte": weights["embedding_VD"],
        "ln": weights["final_norm"]["weight"],
        "blocks": {name: kernels[name]["kernel_IO"].swapaxes(0, 1) for name in names},
    }
    for i in range(len(layers["attn_norm"]["weight"])):
        tree[f"h_{i}"] = {norm: layers[norm]["weight"][i] for norm in ("attn_norm", "mlp_norm")}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "4500", {"params": tree})
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo.FOLDER / name, folder / name)


def _ukrainian_texts(folder: Path) -> None:
    """Ten articles with similar tags, and a story with four names that it may leave out."""
    things = ("трамвай", "міст", "парк", "музей", "стадіон", "театр", "базар", "вокзал", "ліцей", "басейн")
    articles = [
        {
            "title": f"У місті за {n} днів відкриють {thing}",
            "text": f"Новий {thing} будували {n} років.",
            "tags": ["місто"],
        }
        for n, thing in enumerate(things, start=3)
    ]
    _lines(folder / "articles.jsonl", articles)
    cases = {"nom": "", "gen": "а", "dat": "у", "acc": "а", "ins": "ом", "loc": "ові"}
    words = [
        {
            "lemma": stem, "type": "NAMED_ENTITY", "gender": "m",
            "forms": {case: stem + end for case, end in cases.items()},
        }
        for stem in ("слон", "кит", "тигр", "крокодил")
    ]  # fmt: skip
    tale = (
        "Жили собі слон, кит, тигр та крокодил. Слон знайшов мед. Кит покликав слона. Тигр пішов до кита. "
        "Крокодил засміявся. Усі дивились на тигра. Потім слон віддав мед. Слона похвалили. Кит задрімав."
    )
    _lines(folder / "stories.jsonl", [{"text": tale, "words": words}])
    made_up = write_language(folder / "zena", UPTitles=None)
    (made_up / "words.csv").rename(folder / "words.csv")
    shutil.copytree(package_folder("en"), folder / "zena-miron")


def _programs(folder: Path) -> None:
    row = {
        "task_id": "t/0", "prompt": "def f(a):\n", "entry_point": "f", "language": "python", "test_inputs": ["(1,)"],
        "test_outputs": ["2"], "canonical_solution": "    return a + 1\n",
    }  # fmt: skip
    for name in ("human_eval", "human_eval-0.5"):
        _lines(folder / f"{name}.jsonl", [row])


def _capitals(folder: Path) -> None:
    cities = [city for _, city in CAPITALS]
    rows = [
        {
            "question": f"What is the capital of {land}?",
            "options": [cities[(i + k) % len(cities)] for k in range(4)],
            "answer": city,
        }
        for i, (land, city) in enumerate(CAPITALS)
    ]
    _lines(folder / "capitals.jsonl", rows)
    (folder / "capitals.yaml").write_text(CAPITALS_YAML)


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
