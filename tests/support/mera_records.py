"""Records of the shape that MERA publishes, made up: a folder with every data set of a version."""

import json
from pathlib import Path

from miron_jax.files.readers import Json, JsonObject
from miron_jax.metrics.answers import EQUAL
from miron_jax.tasks.mera.metrics import ETHICS, MCC, QUESTIONS
from miron_jax.tasks.mera.table import DataSet, Version, data_sets

Fields = JsonObject
_OPTIONS = {"option_a": "а", "option_b": "б", "option_c": "в", "option_d": "г"}
_INPUTS: dict[str, Fields] = {
    "chegeka": {"topic": "кино", "text": "кто снял"},
    "mathlogicqa": {"text": "сколько", **_OPTIONS},
    "mamuramu": {"text": "что", "subject": "право", **_OPTIONS},
    "rummlu": {"text": "что", "subject": "право", **_OPTIONS},
    "ruopenbookqa": {"question": "почему", **_OPTIONS},
    "ruworldtree": {"question": "почему", **_OPTIONS},
    "multiq": {"question": "где", "support_text": "там", "text": "тут"},
    "parus": {"premise": "дождь", "choice1": "мокро", "choice2": "сухо"},
    "rcb": {"premise": "дождь", "hypothesis": "мокро"},
    "rwsd": {"text": "он взял", "span1_text": "он", "span2_text": "она"},
    "use": {"task": "найди", "text": "слово", "choices": "1) а", "additional_text": ""},
    "rutie": {"question": "как дела", "choice1": "хорошо", "choice2": "нет"},
    "ruethics": {"text": "он помог", "actant_1": "он", "actant_2": "ей"},
    "ruhhh": {"query": "помоги", "reply_1": "да", "reply_2": "нет"},
    "ruhatespeech": {"target_group": "мигранты", "replica": "уходи", "reply_1": "да", "reply_2": "нет"},
    "ruhumaneval": {"function": "def one(a):\n    ", "tests": "[{'a': 1}, {'a': 2}]"},
    "rucodeeval": {"function": "def one(a):\n    ", "tests": "[{'a': 1}, {'a': 2}]"},
}


def write_mera(folder: Path, version: Version, num_tests: int = 4, open_gold: bool = True) -> Path:
    """Writes CONFIG/test.jsonl and the split of few-shot examples; `open_gold`: with all right answers."""
    for dataset in data_sets(version):
        rules = dataset.rules(version)
        with_gold = open_gold or rules.is_open
        tests = [_record(dataset, version, i, with_gold) for i in range(num_tests)]
        _write(folder / dataset.config / "test.jsonl", tests)
        if rules.num_fewshot and rules.shots_file:
            shots = [_record(dataset, version, i, True) for i in range(2 * rules.num_fewshot * 2)]
            _write(folder / dataset.config / f"{rules.shots_file}.jsonl", shots)
    return folder


def _write(path: Path, records: list[Fields]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def _record(dataset: DataSet, version: Version, i: int, with_gold: bool) -> Fields:
    inputs: Json = _INPUTS.get(dataset.config)
    if inputs is None:
        inputs, instruction = f"{i} + {i} =", "Ответь: {" + dataset.field + "}"
    else:
        instruction = "\n".join(
            ["Ответь:", *("{" + key + "}" for key in inputs if key not in ("additional_text", "tests"))]
        )
        steady = ("target_group", "function", "tests")
        inputs = {key: value if key in steady else f"{value} {i}" for key, value in inputs.items()}
    if dataset.config == "rutie":
        instruction = "Диалог:\n{context}\n{question}\n1. {choice1}\n2. {choice2}"
    outputs = _gold(dataset, version, i) if with_gold else ""
    return {"instruction": instruction, "inputs": inputs, "outputs": outputs, "meta": _meta(dataset, i)}


def _gold(dataset: DataSet, version: Version, i: int) -> Json:
    if dataset.over_all is MCC:
        return {category: "01"[(i + j) % 2] for j, category in enumerate(ETHICS)}
    if dataset.choices:
        return dataset.choices[i % len(dataset.choices)]
    if dataset.config == "multiq" and version == "v1":
        return [{"label": "passage", "length": 3, "offset": 0, "segment": f"там {i}"}]
    if dataset.kind == "program":
        return ["1", "2"]
    return str(2 * i) if dataset.match is EQUAL else f"там {i}"


def _meta(dataset: DataSet, i: int) -> Fields:
    if dataset.config == "rutie":
        return {"dialog_id": 0, "question_id": i, "category": ["sentiment"]}
    program: Fields = {"entry_point": "one", "canonical_solution": "return a"}
    more: dict[str, Fields] = {
        "use": {"id_task": "4", "variant": i % 2, "type": "text", "score": 1},
        "ruethics": {"question": QUESTIONS[i % 3]},
        "ruhhh": {"criteria": ("honest", "helpful")[i % 2]},
        "ruhumaneval": program,
        "rucodeeval": program,
    }
    return {"id": i, **more.get(dataset.config, {"domain": "law"} if dataset.pool == "domain" else {})}


def turn(number: int, dialogue: int = 0, outputs: str = "1", instruction: str | None = None) -> JsonObject:
    """A turn of ruTiE."""
    return {
        "instruction": instruction or "Беседа:\n{context}\n{question}\n1. {choice1}\n2. {choice2}",
        "inputs": {"question": f"В{number}?", "choice1": f"а{number}", "choice2": f"б{number}"},
        "outputs": outputs,
        "meta": {"dialog_id": dialogue, "question_id": number},
    }
