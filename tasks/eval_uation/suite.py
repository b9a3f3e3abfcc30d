"""Eval-UA-tion as suites: by log-probability, by completions, and by completions judged as
lm-evaluation-harness does.

Arrives: a folder that holds the nine data sets, each in a folder named as its repository; the
user's or fetched.  Leaves: `SUITE`, `TEXT`, `TEXT_REFCOMPAT`.  It deliberately does not know
tokenizers or models.

`eval-ua-tion` scores which of the possible answers is most probable, and whether greedy decoding
would write the right one (greedy_exact).  `eval-ua-tion-text` generates, as the authors did, and
normalizes white space at the ends, apostrophes and the alphabet of choice letters before it
compares.  `eval-ua-tion-text-refcompat` compares as the authors' task files do: a model whose
tokenizer keeps a leading space scores 0 on three of the data sets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from miron_jax.definitions.data_files import (
    FETCH_AGAIN,
    git_blob_sha1,
    located_rows,
    parse_each,
)
from miron_jax.definitions.records import (
    AnswerProfile,
    DataFile,
    Example,
    Profile,
    Question,
    Suite,
    Task,
)
from miron_jax.definitions.rules import GREEDY
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, fetch_data_set, revision_of
from miron_jax.files.places import data_cache
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.answers import NORMALIZED
from miron_jax.metrics.choices import CHAR, FIRST, SUM
from miron_jax.prompting.draws import FILE_ORDER, STREAM_1234_RECORDS
from miron_jax.tasks.eval_uation.records import NEUTRAL, Item, joined_draws, reader
from miron_jax.tasks.eval_uation.table import CITATION, DATA_SETS, DataSet
from miron_jax.tasks.eval_uation.ukrainian import LM_EVAL, LM_EVAL_NO_SPACE, UKRAINIAN
from miron_jax.tasks.human_baselines import EVAL_UATION
from miron_jax.tokens.spans import AFTER_CONTEXT

NAME = "eval-ua-tion"
Form = Literal["options", "cloze", "text", "refcompat"]
NUM_FEWSHOT = 3
SEPARATOR = "\n\n"
EXTRA_TOKENS = 8
# From the authors' task files: stop strings, shapes whose comparison keeps white space, numbers of
# shots.
_STOP = {
    "letters": ("\n\n", "\n", "</s>", "."),
    "words": ("\n\n", "\n", "</s>", "."),
    "odd_word": ("\n\n", "\n", "</s>"),
    "yes_no": ("\n", "</s>"),
    "two_words": ("\n\n",),
    "story": ("\n\n", ":", "\n", "</s>"),
    "article": ("\n\n", "\n", ")", "</s>"),
}
_REFERENCE_KEEPS_SPACE = ("yes_no", "story", "article")
_REFERENCE_SHOTS = {"story": 2}
DRAW = STREAM_1234_RECORDS


def _shots(dataset: DataSet, form: Form) -> int:
    reference = _REFERENCE_SHOTS.get(dataset.shape, NUM_FEWSHOT)
    return {"cloze": 0, "refcompat": reference}.get(form, NUM_FEWSHOT)


def _profile(dataset: DataSet, form: Form, protocol: str) -> Profile | AnswerProfile:
    """By log-probability the choice with the largest sum wins, in a cloze the largest mean per
    character; a completion is compared with the right answer."""
    wording: dict[str, Any] = {
        "protocol": protocol,
        "num_fewshot": _shots(dataset, form),
        "delimiter": "",
        "question_delimiter": "whole",
        "shot_separator": SEPARATOR,
        "strip": "nothing",
        "item_order": FILE_ORDER,
        "fewshot_draw": DRAW,
        "fewshot_pool": "other_file" if dataset.shots_file else "whole_file",
        "categories": "reported" if dataset.shape == "story" else "pooled",
        "bos": "as_tokenizer",
        "boundary": "joint",
        "truncation": "whole_shots",
        "max_length": None,
    }
    if form in ("options", "cloze"):
        return Profile(
            **wording,
            continuation_space="as_written",
            joined_delimiter=" ",
            span=AFTER_CONTEXT,
            normalizer=CHAR if form == "cloze" else SUM,
            tie=FIRST,
            empty_span="error",
            endings=() if form == "cloze" else ("\n", SEPARATOR),
        )
    is_reference = form == "refcompat"
    reference_normalizer = LM_EVAL if dataset.shape in _REFERENCE_KEEPS_SPACE else LM_EVAL_NO_SPACE
    return AnswerProfile(
        **wording,
        decoding=GREEDY,
        extra_tokens=EXTRA_TOKENS,
        stop=_STOP[dataset.shape],
        answer_after="",
        answer_normalizer=reference_normalizer if is_reference else UKRAINIAN,
        match=NORMALIZED,
        decoded="alone" if is_reference else "after_prompt",
    )


def suite_of(
    sets: Sequence[tuple[DataSet, DataFile]],
    locate: Callable[[Path | None, bool], Path],
    citation: str,
    name: str,
    forms: Sequence[Form],
    protocol: str,
    files_of: str = "",
) -> Suite[Task[Any]]:
    """A suite of every set in every form; a cloze is made of stories only.  The authors report each
    set by itself, so there are no composites."""
    tasks = [
        _task(dataset, form, name, file, citation, protocol)
        for dataset, file in sets
        for form in forms
        if form != "cloze" or dataset.shape == "story"
    ]
    return Suite(name, tuple(tasks), lambda measured: {}, locate, files_of)


def _task(
    dataset: DataSet, form: Form, suite: str, file: DataFile, citation: str, protocol: str
) -> Task[Any]:
    human = EVAL_UATION.get(dataset.name, ()) if dataset.random is not None else ()
    return Task(
        f"{suite}/{dataset.name}{'_cloze' if form == 'cloze' else ''}",
        "multiple_choice" if form in ("options", "cloze") else "generation",
        _profile(dataset, form, protocol),
        file,
        {"random": None, "human": None},
        partial(_parse, reader(dataset), form),
        citation,
        arrange=partial(_with_shots, dataset, _shots(dataset, form), file),
        chance=partial(_chance, dataset.random),
        clusters=dataset.clusters,
        # Of a published set.  People read the masked text of up_masked, not up_masked_refcompat's.
        # A file of another size has no human gap.
        human=tuple(replace(baseline, tests=dataset.rows) for baseline in human),
        reference=dataset.reference,
    )


def _parse(
    parse_row: Callable[[JsonObject, int], Item], form: Form, fields: JsonObject, row: int
) -> Example:
    item = parse_row(fields, row)
    category = dict(item.traits).get("taskType")
    traits = {
        "cluster": item.cluster,
        "swapped": item.swapped,
        "traits": item.traits,
        "category": category,
    }
    if form == "options":
        options = tuple(f" {option}" for option in item.options)
        return Example(row, (item.ask,), options, item.gold, neutral=NEUTRAL, **traits)
    if form == "cloze":
        # The question without its story gives the prior probability of each continuation.
        return Example(
            row, (item.before,), item.fills, item.gold, neutral=item.question or None, **traits
        )
    return Question(
        row,
        (item.ask,),
        ("",),
        None,
        accepted=(item.answer,),
        room_for=(f" {item.answer}\n",),
        **traits,
    )


def _with_shots(
    dataset: DataSet, num_shots: int, file: DataFile, examples: list[Example], folder: Path
) -> list[Example]:
    """Examples with the shots that lm-evaluation-harness 0.4 samples: one random.Random(1234)
    serves all rows in file order. If shots come from the test rows, one more is sampled and the row
    itself left out."""
    if dataset.shape in ("odd_word", "yes_no"):
        names = joined_draws(
            [example.cluster for example in examples if example.cluster is not None]
        )
        examples = [
            replace(example, cluster=name) for example, name in zip(examples, names, strict=True)
        ]
    if not num_shots:
        return [replace(example, shots=()) for example in examples]
    from_test_rows = dataset.shots_file is None
    pool = _shot_items(
        dataset, file.below(folder) if from_test_rows else _shots_path(dataset, folder)
    )
    num_sampled = num_shots + from_test_rows
    if len(pool) < num_sampled:
        raise InputError(
            f"{NAME}'s {dataset.name}: {len(pool)} rows to sample few-shot examples from, expected "
            f"at least {num_sampled}: fetch the file again"
        )
    stream = DRAW.call(len(examples))
    rows = range(len(pool))
    samples = [stream.sample(rows, num_sampled) for _ in examples]
    texts = [f"{item.ask} {item.answer}{SEPARATOR}" for item in pool]
    return [
        replace(
            example,
            shots=tuple(
                [texts[i] for i in sample if not from_test_rows or i != example.row][:num_shots]
            ),
        )
        for example, sample in zip(examples, samples, strict=True)
    ]


def _shot_items(dataset: DataSet, path: Path) -> list[Item]:
    content = path.read_bytes()
    if dataset.shots_blob is not None and git_blob_sha1(content) != dataset.shots_blob:
        raise InputError(
            f"{dataset.hub}: {path} is not what this program writes (git blob "
            f"{git_blob_sha1(content)}, expected {dataset.shots_blob}), so its few-shot examples "
            f"would be others: remove the folder {path.parent}, it is made anew"
        )
    name = f"{NAME}'s {dataset.name}"
    remedy = f"; mend the record or {FETCH_AGAIN}"
    rows = located_rows(content, path, name)
    return parse_each(rows, reader(dataset), f"{name}: {path}", remedy)


def _shots_path(dataset: DataSet, folder: Path) -> Path:
    paths = [folder / path for path in dataset.shots_places()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None or path == dataset.data_file.below(folder):
        raise InputError(
            f"{NAME}'s {dataset.name}: {paths[0]} is missing, where its few-shot examples come "
            f"from: fetch the whole of {dataset.hub}"
        )
    return path


def _chance(published: float | None, examples: Sequence[Example]) -> Mapping[str, float]:
    """random: the mean over examples of 1 / (number of different choices).  random_published: the
    authors' value, for LOW and WIS 1 / (mean number of choices, repeated ones counted).
    most_frequent: how often the choice that the story mentions most often is right."""
    traits = [dict(example.traits) for example in examples]
    baselines = {"random": sum(1 / int(trait["num_options"]) for trait in traits) / len(traits)}
    if published is not None:
        baselines["random_published"] = published
    frequent = [trait["most_frequent"] == "gold" for trait in traits if "most_frequent" in trait]
    return {**baselines, "most_frequent": sum(frequent) / len(frequent)} if frequent else baselines


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds lmes_LOW, ua_cbt and so on, as the hub's repositories are named."""
    if (revision := revision_of(data_dir)) is not None:
        raise InputError(
            f"--data_dir={NAME}=@{revision}: its data are nine repositories: fetch them and name "
            "their folder"
        )
    top = data_dir or data_cache(NAME)
    if data_dir is None and fetch:
        for hub_id, name in dict.fromkeys((dataset.hub, dataset.folder) for dataset in DATA_SETS):
            fetch_data_set(Repository(hub_id, None), top / name, ["*.json", "*.jsonl"], NAME)
    if not any((top / dataset.folder).is_dir() for dataset in DATA_SETS):
        folders = ", ".join(dict.fromkeys(dataset.folder for dataset in DATA_SETS))
        raise InputError(
            f"{top}: no {NAME} data there, expected folders {folders} as the Hugging Face hub has "
            f"them (such as {DATA_SETS[0].hub}): pass --data_dir={NAME}=FOLDER"
        )
    return top


_published = partial(
    suite_of, [(dataset, dataset.data_file) for dataset in DATA_SETS], locate, CITATION
)
SUITE = _published(
    NAME, ("options", "cloze"), "Eval-UA-tion, log-probability over the possible answers"
)
TEXT = _published(f"{NAME}-text", ("text",), "Eval-UA-tion, generated texts", NAME)
_REFERENCE = "Eval-UA-tion, generated texts, compared as its lm-evaluation-harness files do"
TEXT_REFCOMPAT = _published(f"{NAME}-text-refcompat", ("refcompat",), _REFERENCE, NAME)
SUITES = (SUITE, TEXT, TEXT_REFCOMPAT)
