"""Eval-UA-tion as suites: by log-probability, by generated texts, and by texts judged as lm-evaluation-harness does.

Arrives: a folder that holds the nine data sets, each in a folder named as its repository on the hub; given or fetched.
Leaves: `SUITE`, `TEXT`, `TEXT_REFCOMPAT`.  It deliberately does not know tokenizers or models.

`eval-ua-tion` asks which of the possible answers is most probable, and beside it whether greedy decoding would write the
right one (greedy_exact).  `eval-ua-tion-text` generates, as the authors did, and compares what can be compared: no blank at
either end, one apostrophe, one alphabet for option letters.  `eval-ua-tion-text-refcompat` compares as the authors' task
files do, by which a tokenizer that keeps a leading space scores 0 on three of the data sets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from miron_jax.definitions.data_files import git_blob_sha1, json_rows
from miron_jax.definitions.records import AnswerProfile, DataFile, Example, Profile, Question, Suite, Task
from miron_jax.definitions.rules import GREEDY
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, fetch_data_set, revision_of
from miron_jax.files.places import data_cache
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
# What the authors' task files say: strings that end a text, white space compared or not, worked examples.
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


def _shots(own: DataSet, form: Form) -> int:
    if form == "cloze":
        return 0
    return _REFERENCE_SHOTS.get(own.shape, NUM_FEWSHOT) if form == "refcompat" else NUM_FEWSHOT


def _wording(own: DataSet, form: Form, protocol: str) -> dict[str, Any]:
    return {
        "protocol": protocol,
        "num_fewshot": _shots(own, form),
        "delimiter": "",
        "question_delimiter": "whole",
        "shot_separator": SEPARATOR,
        "strip": "nothing",
        "item_order": FILE_ORDER,
        "fewshot_draw": DRAW,
        "fewshot_pool": "other_file" if own.shots_file else "whole_file",
        "categories": "reported" if own.shape == "story" else "pooled",
        "bos": "as_tokenizer",
        "boundary": "joint",
        "truncation": "whole_shots",
        "max_length": None,
    }


def options_task(own: DataSet, form: Form, suite: str, file: DataFile, citation: str, protocol: str) -> Task[Profile]:
    """Scored by log-probability: the option with the largest sum wins, in a cloze by the character."""
    profile = Profile(
        **_wording(own, form, protocol),
        continuation_space="as_written",
        span=AFTER_CONTEXT,
        normalizer=CHAR if form == "cloze" else SUM,
        tie=FIRST,
        empty_span="error",
        endings=() if form == "cloze" else ("\n", SEPARATOR),
    )
    name = f"{suite}/{own.name}{'_cloze' if form == 'cloze' else ''}"
    return Task(
        name,
        "multiple_choice",
        profile,
        file,
        {"random": None, "human": None},
        _parser(own, form),
        citation,
        arrange=partial(_arranged, own, _shots(own, form), file),
        chance=partial(_chance, own.random),
        clusters=own.clusters,
        human=_human(own),
        reference=own.reference,
    )


def text_task(
    own: DataSet, form: Form, suite: str, file: DataFile, citation: str, protocol: str
) -> Task[AnswerProfile]:
    """Generated and compared with the right answer."""
    reference = form == "refcompat"
    compared = LM_EVAL if own.shape in _REFERENCE_KEEPS_SPACE else LM_EVAL_NO_SPACE
    profile = AnswerProfile(
        **_wording(own, form, protocol),
        decoding=GREEDY,
        extra_tokens=EXTRA_TOKENS,
        stop=_STOP[own.shape],
        answer_after="",
        answer_normalizer=compared if reference else UKRAINIAN,
        match=NORMALIZED,
        decoded="alone" if reference else "after_prompt",
    )
    return Task(
        f"{suite}/{own.name}",
        "generation",
        profile,
        file,
        {"random": None, "human": None},
        _parser(own, form),
        citation,
        arrange=partial(_arranged, own, _shots(own, form), file),
        chance=partial(_chance, own.random),
        clusters=own.clusters,
        human=_human(own),
        reference=own.reference,
    )


def _human(own: DataSet) -> Any:
    """People were asked about the published data alone; about up_masked they read what it shows, not the whole text of
    up_masked_refcompat.  Of a file of another size no gap is drawn."""
    human = EVAL_UATION.get(own.name, ()) if own.random is not None else ()
    return tuple(replace(value, tests=own.rows) for value in human)


def _parser(own: DataSet, form: Form) -> Callable[[dict[str, Any], int], Any]:
    read = reader(own)

    def parse(fields: dict[str, Any], row: int) -> Example | Question:
        item = read(fields, row)
        category = dict(item.traits).get("taskType")
        traits = {"cluster": item.cluster, "swapped": item.swapped, "traits": item.traits, "category": category}
        if form == "options":
            options = tuple(f" {option}" for option in item.options)
            return Example(row, (item.ask,), options, item.gold, neutral=NEUTRAL, **traits)
        if form == "cloze":
            # Without its story, what is left of the question tells how probable each end is anyway.
            return Example(row, (item.before,), item.fills, item.gold, neutral=item.question or None, **traits)
        return Question(
            row, (item.ask,), ("",), None, accepted=(item.answer,), room_for=(f" {item.answer}\n",), **traits
        )

    return parse


def _arranged(own: DataSet, num_shots: int, file: DataFile, examples: list[Any], folder: Path) -> list[Any]:
    """Worked examples as lm-evaluation-harness 0.4 draws them: one random.Random(1234) serves all rows in file order; where
    they come from the test rows, one more is drawn and the row itself left out."""
    if own.shape in ("odd_word", "yes_no"):
        names = joined_draws([example.cluster for example in examples])
        examples = [replace(example, cluster=name) for example, name in zip(examples, names, strict=True)]
    if not num_shots:
        return [replace(example, shots=()) for example in examples]
    own_file = own.shots_file is None
    pool = _shown(own, file.below(folder) if own_file else _shots_path(own, folder))
    wanted = num_shots + own_file
    if len(pool) < wanted:
        raise InputError(
            f"{NAME}'s {own.name}: {len(pool)} rows to draw worked examples from, expected at least {wanted}: fetch the "
            "file again"
        )
    stream, rows = DRAW.call(len(examples)), range(len(pool))
    draws = [stream.sample(rows, wanted) for _ in examples]
    texts = [f"{item.ask} {item.answer}{SEPARATOR}" for item in pool]
    return [
        replace(example, shots=tuple([texts[i] for i in drawn if not own_file or i != example.row][:num_shots]))
        for example, drawn in zip(examples, draws, strict=True)
    ]


def _shown(own: DataSet, path: Path) -> list[Item]:
    read, content = reader(own), path.read_bytes()
    if own.shots_blob is not None and git_blob_sha1(content) != own.shots_blob:
        raise InputError(
            f"{own.hub}: {path} is not what this program writes (git blob {git_blob_sha1(content)}, expected "
            f"{own.shots_blob}), so its worked examples would be others: remove the folder {path.parent}, it is made anew"
        )
    rows = json_rows(content, path, f"{NAME}'s {own.name}")
    found = []
    for row, fields in enumerate(rows):
        try:
            found.append(read(fields, row))
        except ValueError as error:
            raise InputError(
                f"{NAME}'s {own.name}: {path}, record {row + 1}: {error}; mend the record or fetch the file again"
            ) from None
    return found


def _shots_path(own: DataSet, folder: Path) -> Path:
    places = [folder / place for place in own.shots_places()]
    found = next((place for place in places if place.is_file()), None)
    if found is None or found == own.data_file.below(folder):
        raise InputError(
            f"{NAME}'s {own.name}: {places[0]} is missing, where its worked examples come from: fetch the whole of {own.hub}"
        )
    return found


def _chance(published: float | None, examples: Sequence[Any]) -> Mapping[str, float]:
    """random: the mean over examples of 1 / (different possible answers).  random_published: the authors', for LOW and WIS
    1 / (mean number of possible answers, repeated ones counted).  most_frequent: how often the option that its story
    mentions most often is right."""
    traits = [dict(example.traits) for example in examples]
    found = {"random": sum(1 / int(own["num_options"]) for own in traits) / len(traits)}
    if published is not None:
        found["random_published"] = published
    frequent = [own["most_frequent"] == "gold" for own in traits if "most_frequent" in own]
    return {**found, "most_frequent": sum(frequent) / len(frequent)} if frequent else found


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds lmes_LOW, ua_cbt and so on, as the hub's repositories are named."""
    if (revision := revision_of(data_dir)) is not None:
        raise InputError(
            f"--data_dir={NAME}=@{revision}: its data are nine repositories: fetch them and name their folder"
        )
    top = data_dir or data_cache(NAME)
    if data_dir is None and fetch:
        for hub_id, folder in dict.fromkeys((dataset.hub, dataset.folder) for dataset in DATA_SETS):
            fetch_data_set(Repository(hub_id, None), top / folder, ["*.json", "*.jsonl"], NAME)
    if not any((top / dataset.folder).is_dir() for dataset in DATA_SETS):
        folders = ", ".join(dict.fromkeys(dataset.folder for dataset in DATA_SETS))
        raise InputError(
            f"{top}: no {NAME} data there, expected folders {folders} as the Hugging Face hub has them (such as "
            f"{DATA_SETS[0].hub}): pass --data_dir={NAME}=FOLDER"
        )
    return top


def no_composites(measured: Mapping[str, Any]) -> Mapping[str, Any]:
    """The authors report data sets one by one."""
    return {}


_PROTOCOL = "Eval-UA-tion, {}"
_BY_LOGPROB = _PROTOCOL.format("log-probability over the possible answers")
SUITE: Suite[Task[Profile]] = Suite(
    NAME,
    tuple(
        options_task(own, form, NAME, own.data_file, CITATION, _BY_LOGPROB)
        for own in DATA_SETS
        for form in (("options", "cloze") if own.shape == "story" else ("options",))
    ),
    no_composites,
    locate,
)
TEXT, TEXT_REFCOMPAT = (
    Suite(
        suite,
        tuple(text_task(own, form, suite, own.data_file, CITATION, _PROTOCOL.format(how)) for own in DATA_SETS),
        no_composites,
        locate,
        files_of=NAME,
    )
    for suite, form, how in (
        (f"{NAME}-text", "text", "generated texts"),
        (f"{NAME}-text-refcompat", "refcompat", "generated texts, compared as its lm-evaluation-harness files do"),
    )
)
SUITES = (SUITE, TEXT, TEXT_REFCOMPAT)
