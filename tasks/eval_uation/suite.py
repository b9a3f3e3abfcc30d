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
    PromptedTask,
    Question,
    Suite,
    Task,
)
from miron_jax.definitions.rules import GREEDY
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, fetch_data_set, revision_of
from miron_jax.files.places import data_cache
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_regular
from miron_jax.metrics.answers import NORMALIZED
from miron_jax.metrics.choices import CHAR, FIRST, SUM
from miron_jax.prompting.draws import FILE_ORDER, STREAM_1234_RECORDS, RecordDraw
from miron_jax.tasks.eval_uation.records import NEUTRAL, ChoiceQuestion, joined_draws, reader
from miron_jax.tasks.eval_uation.table import CITATION, DATA_SETS, UationSet
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
_REFERENCE_NORMALIZER = {"yes_no": LM_EVAL, "story": LM_EVAL, "article": LM_EVAL}
_REFERENCE_SHOTS = {"story": 2}
DRAW = STREAM_1234_RECORDS
# Forms that choose by log-probability: length normaliser, and what may follow a choice.
_CHOOSING = {"options": (SUM, ("\n", SEPARATOR)), "cloze": (CHAR, ())}


def _shots(dataset: UationSet, form: Form) -> int:
    reference = _REFERENCE_SHOTS.get(dataset.shape, NUM_FEWSHOT)
    return {"cloze": 0, "refcompat": reference}.get(form, NUM_FEWSHOT)


def _profile(dataset: UationSet, form: Form, protocol: str) -> Profile | AnswerProfile:
    """By log-probability the choice with the largest sum wins, in a cloze the largest mean per
    character; a completion is compared with the right answer."""
    wording: dict[str, Any] = {  # keywords of both profiles
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
    if form in _CHOOSING:
        normalizer, endings = _CHOOSING[form]
        return Profile(
            **wording,
            continuation_space="as_written",
            joined_delimiter=" ",
            span=AFTER_CONTEXT,
            normalizer=normalizer,
            tie=FIRST,
            empty_span="error",
            endings=endings,
        )
    if form == "refcompat":
        normalizer = _REFERENCE_NORMALIZER.get(dataset.shape, LM_EVAL_NO_SPACE)
        wording |= {"answer_normalizer": normalizer, "decoded": "alone"}
    else:
        wording |= {"answer_normalizer": UKRAINIAN, "decoded": "after_prompt"}
    return AnswerProfile(
        **wording,
        decoding=GREEDY,
        extra_tokens=EXTRA_TOKENS,
        stop=_STOP[dataset.shape],
        answer_after="",
        match=NORMALIZED,
    )


def suite_of(
    sets: Sequence[tuple[UationSet, DataFile]],
    locate: Callable[[Path | None, bool], Path],
    citation: str,
    name: str,
    forms: Sequence[Form],
    protocol: str,
    files_of: str = "",
) -> Suite[PromptedTask]:
    """A suite of every set in every form; a cloze is made of stories only.  The authors report each
    set by itself, so there are no composites."""
    tasks = []
    for dataset, file in sets:
        for form in forms:
            if form != "cloze" or dataset.shape == "story":
                tasks.append(_task(dataset, form, name, file, citation, protocol))
    return Suite(name, tuple(tasks), lambda measured: {}, locate, files_of)


def _task(
    dataset: UationSet, form: Form, suite: str, file: DataFile, citation: str, protocol: str
) -> PromptedTask:
    human = EVAL_UATION.get(dataset.name, ()) if dataset.random is not None else ()
    suffix = "_cloze" if form == "cloze" else ""
    return Task(
        f"{suite}/{dataset.name}{suffix}",
        "multiple_choice" if form in _CHOOSING else "generation",
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
    parse_row: Callable[[JsonObject, int], ChoiceQuestion], form: Form, fields: JsonObject, row: int
) -> Example:
    item = parse_row(fields, row)
    traits = {
        "cluster": item.cluster,
        "swapped": item.swapped,
        "traits": item.traits,
        "category": dict(item.traits).get("taskType"),
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
    dataset: UationSet,
    num_shots: int,
    file: DataFile,
    examples: list[Example],
    folder: Path,
    draw: RecordDraw,
) -> list[Example]:
    """Examples with the shots that lm-evaluation-harness 0.4 samples: one random.Random(1234)
    serves all rows in file order. If shots come from the test rows, one more is sampled and the row
    itself left out."""
    if dataset.shape in ("odd_word", "yes_no"):
        names = joined_draws([example.cluster or "" for example in examples])
        pairs = zip(examples, names, strict=True)
        examples = [replace(example, cluster=name) for example, name in pairs]
    if not num_shots:
        return [replace(example, shots=()) for example in examples]
    from_test_rows = dataset.shots_file is None
    path = file.below(folder) if from_test_rows else _shots_path(dataset, folder)
    pool = _shot_items(dataset, path)
    num_sampled = num_shots + from_test_rows
    if len(pool) < num_sampled:
        raise InputError(
            f"{NAME}'s {dataset.name}: {len(pool)} rows to sample few-shot examples from, expected "
            f"at least {num_sampled}: fetch the file again"
        )
    stream = draw.call(len(examples))
    texts = [f"{item.ask} {item.answer}{SEPARATOR}" for item in pool]
    with_shots = []
    for example in examples:
        sampled = stream.sample(range(len(pool)), num_sampled)
        if from_test_rows and example.row in sampled:
            sampled.remove(example.row)
        shots = tuple(texts[i] for i in sampled[:num_shots])
        with_shots.append(replace(example, shots=shots))
    return with_shots


def _shot_items(dataset: UationSet, path: Path) -> list[ChoiceQuestion]:
    content = read_regular(path)
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


def _shots_path(dataset: UationSet, folder: Path) -> Path:
    paths = [folder / path for path in dataset.shots_places()]
    path = next(filter(Path.is_file, paths), None)
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
    if frequent:
        baselines["most_frequent"] = sum(frequent) / len(frequent)
    return baselines


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds lmes_LOW, ua_cbt and so on, as the hub's repositories are named."""
    if (revision := revision_of(data_dir)) is not None:
        raise InputError(
            f"--data_dir={NAME}=@{revision}: its data are nine repositories: fetch them and name "
            "their folder"
        )
    top = data_dir or data_cache(NAME)
    hub_of = {dataset.folder: dataset.hub for dataset in DATA_SETS}
    if data_dir is None and fetch:
        for name, hub_id in hub_of.items():
            fetch_data_set(Repository(hub_id, None), top / name, ["*.json", "*.jsonl"], NAME)
    if not any((top / name).is_dir() for name in hub_of):
        raise InputError(
            f"{top}: no {NAME} data there, expected folders {', '.join(hub_of)} as the Hugging "
            f"Face hub has them (such as {DATA_SETS[0].hub}): pass --data_dir={NAME}=FOLDER"
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
