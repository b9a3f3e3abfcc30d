"""Made-up files under the names of published ones: rows of every shape, the same bytes on every machine.

Arrives: an empty folder.  Leaves: one folder a family of suites below it.  It deliberately does not know how anything is
scored: rows are varied so that a rule that changes (strip, delimiter, tie, normalizer, categories) moves a number.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.support.mera_records import write_mera
from tests.support.olmes_package import write_package
from tests.support.uation_records import write as write_uation

Fields = dict[str, Any]
WORDS = (  # noqa: SIM905
    "the sun is hot and cold rain falls on a green hill where small birds sing in old trees while we walk home to sleep"
).split()


class Draw:
    """Words from a seed.  Only `random()` is drawn: of Python's draws it alone is promised never to change."""

    def __init__(self, seed: str):
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return int(self._random.random() * limit)

    def text(self, num_words: int) -> str:
        return " ".join(WORDS[self.below(len(WORDS))] for _ in range(num_words))


def _options(draw: Draw, i: int, num: int) -> Fields:
    """Every fourth row has two equal options among others, and every fourth an option that another one begins with."""
    choices = [draw.text(1 + (i + j) % 4) for j in range(num)]
    if i % 4 == 2 and num > 2:
        choices[-1] = choices[0]
    if i % 4 == 3:
        choices[1] = f"{choices[0]} {draw.text(2)}"
    if i % 4 == 1:
        choices[0] = f"{choices[0]} "
    query = f"Question {i}: {draw.text(5)}?"
    query = f" {query}\t" if i % 4 == 1 else query
    return {"query": query, "choices": choices, "gold": i * 5 % num, "category": ("sea", "land", "sky")[i % 3]}


def _schema(draw: Draw, i: int, num: int) -> Fields:
    contexts = [f"{draw.text(3 + (i + j) % 3)}{' ' * (i % 2)}" for j in range(num)]
    return {"context_options": contexts, "continuation": f"{' ' * (i % 3)}{draw.text(2)}.", "gold": i // 2 % num}


def _text(draw: Draw, i: int, num: int) -> Fields:
    context, continuation = draw.text(4 + i % 5) + " " * (i % 2), " " * (i % 3 == 1) + draw.text(1 + i % num)
    return {"context": context, "continuation": continuation, "category": ("sea", "land", "sky")[i % 3]}


def _question(draw: Draw, i: int, num: int) -> Fields:
    """`num` > 0: with reasoning.  The alias "(a" is nothing once normalized, which every text begins with."""
    answer = ("A", "12", "the Sun")[i % 3]
    reasoning = {"chain_of_thought": f"{draw.text(4)} " if i % 5 else ""} if num else {}
    aliases = {"aliases": [answer.upper(), "(a"] if i % 4 == 2 else [answer]} if i % 2 == 0 else {}
    return {"context": f"{draw.text(5)}? ", **reasoning, "answer": f" {answer}" if i % 3 == 2 else answer, **aliases}


# File below eval_data: its rows, their number, and how many options they have (words of a continuation, reasoning or none).
_ICL: dict[str, tuple[Callable[[Draw, int, int], Fields], int, int]] = {
    "language_understanding/hellaswag": (_options, 13, 4), "world_knowledge/jeopardy_all": (_text, 14, 2),
    "world_knowledge/bigbench_qa_wikidata": (_text, 12, 1), "world_knowledge/arc_easy": (_options, 15, 4),
    "world_knowledge/arc_challenge": (_options, 12, 3), "world_knowledge/mmlu": (_options, 13, 4),
    "world_knowledge/triviaqa_sm_sub": (_question, 8, 0), "commonsense_reasoning/copa": (_options, 9, 2),
    "commonsense_reasoning/commonsense_qa": (_options, 12, 5), "commonsense_reasoning/piqa": (_options, 11, 2),
    "commonsense_reasoning/openbook_qa": (_options, 8, 4), "language_understanding/lambada_openai": (_text, 11, 1),
    "language_understanding/winograd_wsc": (_schema, 10, 2), "language_understanding/winogrande": (_schema, 9, 2),
    "language_understanding/bigbench_language_identification": (_options, 12, 6),
    "symbolic_problem_solving/bigbench_dyck_languages": (_text, 12, 3),
    "symbolic_problem_solving/agi_eval_lsat_ar": (_options, 7, 4),
    "symbolic_problem_solving/bigbench_cs_algorithms": (_text, 13, 1),
    "symbolic_problem_solving/bigbench_operators": (_text, 11, 2),
    "symbolic_problem_solving/bigbench_repeat_copy_logic": (_text, 12, 4),
    "symbolic_problem_solving/aqua": (_question, 8, 1), "symbolic_problem_solving/gsm8k": (_question, 9, 1),
    "symbolic_problem_solving/svamp": (_question, 7, 1), "symbolic_problem_solving/agi_eval_sat_math": (_question, 8, 1),
    "reading_comprehension/squad": (_text, 12, 3), "reading_comprehension/coqa": (_text, 8, 2),
    "reading_comprehension/boolq": (_options, 12, 2), "safety/winogender_mc_female": (_options, 12, 2),
    "safety/bbq": (_options, 9, 3),
}  # fmt: skip


def write_icl(folder: Path) -> None:
    """What CORE and the Gauntlet read, and the Gauntlet's programs beside it."""
    for stem, (row, rows, num) in _ICL.items():
        name = f"{stem}.jsonl"
        draw = Draw(name)
        _write(folder / "eval_data" / name, [row(draw, i, num) for i in range(rows)])
    for name, (language, num_tests) in _PROGRAMS.items():
        _write(folder / "eval_data/programming" / name, [_problem(language, i, num_tests) for i in range(3)])


Language = Literal["python", "c++", "javascript"]
_PROGRAMS: dict[str, tuple[Language, int]] = {
    "human_eval.jsonl": ("python", 2),
    "human_eval-0.5.jsonl": ("python", 1),
    "processed_human_eval_cpp.jsonl": ("c++", 1),
    "processed_human_eval_js.jsonl": ("javascript", 1),
}
# A prompt that ends within a remark: a model's words there change nothing, so that some of its programs pass.  A prompt in
# C++ has to leave its function open, so there only the solution passes.
_DONE = {
    "python": ("def f{i}(a):\n    return a + {i}  # and", "\n"),
    "javascript": ("const f{i} = (a) => a + {i}  // and", "\n"),
}
_OPEN = {
    "python": ("def f{i}(a):\n", "    return a + {i}\n"),
    "c++": ("int f{i}(int a) {{\n", "    return a + {i};\n}}\n"),
    "javascript": ("const f{i} = (a) => {{\n", "  return a + {i}\n}}\n"),
}


def _problem(language: Language, i: int, num_tests: int) -> Fields:
    """The second wants another number than its solution returns: no program passes it."""
    prompt, solution = (_OPEN if i == 2 or language == "c++" else _DONE)[language]
    return {
        "task_id": f"{language}/{i}",
        "prompt": prompt.format(i=i),
        "entry_point": f"f{i}",
        "language": language,
        "test_inputs": [f"({a},)" if language == "python" else f"{a}" for a in range(num_tests)],
        "test_outputs": [str(a + i + (i == 1)) for a in range(num_tests)],
        "canonical_solution": solution.format(i=i),
    }


def write_miron(folder: Path) -> None:
    """Both languages' parquet; the last rows of each are noisy twins of the first ones."""
    import pyarrow
    import pyarrow.parquet as parquet

    small = ("rain falls on a small", " hill where the sun")
    english = [("the sun is", " hot"), ("a green hi", "ll"), small, ("Two", "")]
    russian = [("Мама мыла", " раму"), ("Зелёный хол", "м"), ("Дождь идёт над малым", " полем и лесом"), ("Два", "")]
    for language, texts in {"en": english, "ru": russian}.items():
        rows = [
            {"prefix": prefix, "target": target or "\nend", "category": ("Facts", "Morphology", "Logic", "Odd")[i]}
            for i, (prefix, target) in enumerate(texts)
        ]
        rows += [{**row, "prefix": row["prefix"][:1] + row["prefix"][2:], "category": "Noise"} for row in rows[:3]]
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"miron_{language}.parquet")


def _write(path: Path, rows: Sequence[Fields]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_text(folder: Path) -> None:
    """Documents of many lengths, one longer than a window, one empty."""
    draw, path = Draw("text"), folder / "pages" / "a.jsonl"
    path.parent.mkdir(parents=True)
    texts = [draw.text(700), f"{draw.text(5)}\n\té ☀ {draw.text(2)}", ""]
    path.write_text("".join(json.dumps({"text": text, "id": f"page {i}"}) + "\n" for i, text in enumerate(texts)))


def write_expert(folder: Path) -> None:
    """Solutions, of which every second one has an expert's probabilities."""
    draw, rows = Draw("expert"), list[Fields]()
    for i in range(4):
        words = [f" {draw.text(1)}" for _ in range(4 + i)]
        row = {"prompt": f"{draw.text(6)}?", "solution": "".join(words)}
        rows.append({**row, "expert_probs": [[word, 1 / (1 + j)] for j, word in enumerate(words)]} if i % 2 else row)
    _write(folder / "proofs.jsonl", rows)


def write_all(folder: Path) -> None:
    """icl, miron, mera-v1, mera-v1.2, uation, olmes, text and expert below this folder."""
    write_icl(folder / "icl")
    write_miron(folder / "miron")
    write_mera(folder / "mera-v1", "v1")
    write_mera(folder / "mera-v1.2", "v1.2")
    write_uation(folder / "uation")
    write_package(folder / "olmes")
    write_text(folder / "text")
    write_expert(folder / "expert")
