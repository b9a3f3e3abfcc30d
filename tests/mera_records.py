"""Records of the shape that MERA publishes, made up: a folder with every data set of a version."""

import json
from pathlib import Path
from typing import Any

from miron_jax.metrics.answers import EQUAL
from miron_jax.tasks.mera.metrics import ETHICS, MCC, QUESTIONS
from miron_jax.tasks.mera.table import DataSet, Version, data_sets

Fields = dict[str, Any]
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
    """CONFIG/test.jsonl and the split of few-shot examples; `open_gold`: with right answers everywhere."""
    for own in data_sets(version):
        rules = own.rules(version)
        assert rules is not None
        given = open_gold or rules.is_open
        tests = [_record(own, version, i, given) for i in range(num_tests)]
        _write(folder / own.config / "test.jsonl", tests)
        if rules.num_fewshot and rules.shots_file:
            shots = [_record(own, version, i, True) for i in range(2 * rules.num_fewshot * 2)]
            _write(folder / own.config / f"{rules.shots_file}.jsonl", shots)
    return folder


def _write(path: Path, records: list[Fields]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(own, ensure_ascii=False) + "\n" for own in records), encoding="utf-8")


def _record(own: DataSet, version: Version, i: int, given: bool) -> Fields:
    inputs: Any = _INPUTS.get(own.config)
    if inputs is None:
        inputs = f"{i} + {i} ="
        instruction = "Ответь: {" + own.field + "}"
    else:
        inputs = {
            key: f"{value} {i}" if key not in ("target_group", "function", "tests") else value
            for key, value in inputs.items()
        }
        instruction = "Ответь:\n" + "\n".join(
            "{" + key + "}" for key in inputs if key not in ("additional_text", "tests")
        )
    if own.config == "rutie":
        instruction = "Диалог:\n{context}\n{question}\n1. {choice1}\n2. {choice2}"
    return {
        "instruction": instruction,
        "inputs": inputs,
        "outputs": _gold(own, version, i) if given else "",
        "meta": _meta(own, i),
    }


def _gold(own: DataSet, version: Version, i: int) -> Any:
    if own.over_all is MCC:
        return {category: "01"[(i + j) % 2] for j, category in enumerate(ETHICS)}
    if own.choices:
        return own.choices[i % len(own.choices)]
    if own.config == "multiq" and version == "v1":
        return [{"label": "passage", "length": 3, "offset": 0, "segment": f"там {i}"}]
    if own.kind == "program":
        return ["1", "2"]
    return str(2 * i) if own.match is EQUAL else f"там {i}"


def _meta(own: DataSet, i: int) -> Fields:
    if own.config == "rutie":
        return {"dialog_id": 0, "question_id": i, "category": ["sentiment"]}
    more: Fields = {
        "use": {"id_task": "4", "variant": i % 2, "type": "text", "score": 1},
        "ruethics": {"question": QUESTIONS[i % 3]},
        "ruhhh": {"criteria": ("honest", "helpful")[i % 2]},
        "ruhumaneval": {"entry_point": "one", "canonical_solution": "return a"},
        "rucodeeval": {"entry_point": "one", "canonical_solution": "return a"},
    }.get(own.config, {"domain": "law"} if own.pool == "domain" else {})
    return {"id": i, **more}
