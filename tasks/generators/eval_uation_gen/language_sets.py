"""The sets that a language's templates and words make, each as rows and as a task of the user.

Arrives: a `Language`.  Leaves: rows in the published shape, with the columns that a task takes of
them, and the task's YAML.  It deliberately does not know how files are written.
"""

import json
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.generators.eval_uation_gen import odd_words, pairs, places
from miron_jax.tasks.generators.eval_uation_gen.articles import UP_TITLES, articles
from miron_jax.tasks.generators.eval_uation_gen.language import FILES, Language, tokens_of
from miron_jax.tasks.generators.eval_uation_gen.rows import META
from miron_jax.tasks.generators.eval_uation_gen.table import GENERATED, NAME
from miron_jax.tasks.generators.eval_uation_gen.titles import masked_row, title_rows
from miron_jax.tasks.groups import part_of_task

NUM_FEWSHOT = 3
_ENDINGS = (".yaml", ".yml", ".csv", ".txt")
_GENERATED = {generated.name: generated for generated in GENERATED}


class Made(NamedTuple):
    """How a set is made, and what its task takes of a row."""

    file: str  # of its templates, without .yaml
    rows: Callable[[Language, str, int], list[JsonObject]]  # of a split, at most so many
    # (language, split, row) -> options, answer, and what examples share
    columns: Callable[[Language, str, JsonObject], JsonObject]
    traits: tuple[str, ...] = ()  # columns of metadata
    category: str = ""  # likewise; "": it has none


class LanguageSet(NamedTuple):
    """A set of a user's language."""

    name: str
    splits: Mapping[str, list[JsonObject]]
    task: str  # its YAML file


def sets_of(language: Language) -> list[LanguageSet]:
    """All sets whose templates there are.  Raises InputError."""
    check_folder(language)
    made = {name: made for name, made in MADE.items() if language.has(made.file)}
    if not made:
        raise InputError(
            f"--templates={language.folder} has no templates, expected some of "
            f"{', '.join(_template_files())}: copy the package's and edit them"
        )
    return [_set(language, name, of_set) for name, of_set in made.items()]


def check_folder(language: Language) -> None:
    """Raises InputError for what is no folder, a folder with none of a language's files, and one
    with other files of the same endings."""
    at = f"--templates={language.folder}"
    if not language.folder.is_dir():
        raise InputError(
            f"{at} is no folder: name one with the files of a language (docs/eval_uation.md)"
        )
    known = (*FILES, *_template_files())
    names = {path.name for path in language.folder.iterdir() if path.is_file()}
    if names.isdisjoint(known):
        raise InputError(
            f"{at} has none of the files of a language, {', '.join(known)}: copy the package's and "
            "edit them"
        )
    others = {"stems.txt"}  # of miron-gen
    if language.words_file is not None:
        others.add(language.words_file.name)
    for name in sorted(names.difference(known, others)):
        if name.lower().endswith(_ENDINGS) and not name.startswith("."):
            raise InputError(
                f"{at}: {name} is none of the files of a language, {', '.join(known)}: rename it, "
                "or take it out of the folder"
            )


def have_words(sets: Collection[LanguageSet]) -> bool:
    """Whether any of the sets asks of words.csv."""
    names = map(attrgetter("name"), sets)
    return not {"lmes_low", "lmes_wordalpha", "lmes_wordlength"}.isdisjoint(names)


def _template_files() -> list[str]:
    return [*dict.fromkeys(f"{made.file}.yaml" for made in MADE.values())]


def _set(language: Language, name: str, made: Made) -> LanguageSet:
    generated = _GENERATED[name]
    counts = {"train": generated.num_rows, "fewshot": generated.num_shots}
    # null where a row has none of it, as a task wants every column of every row
    traits: JsonObject = dict.fromkeys(f"{META}{trait}" for trait in made.traits)
    splits: dict[str, list[JsonObject]] = {}
    for split in generated.splits:
        splits[split] = []
        for row in made.rows(language, split, counts[split]):
            splits[split].append({**traits, **row, **made.columns(language, split, row)})
    if not splits["train"]:
        raise language.wrong(
            f"{made.file}.yaml", f"the words make no row of {name}: add words, or remove this file"
        )
    keys = _keys(language, name, made, splits)
    task = ""
    for key, value in keys.items():
        task += f"{key}: {json.dumps(value, ensure_ascii=False)}\n"
    return LanguageSet(name, splits, task)


def _keys(
    language: Language, name: str, made: Made, splits: Mapping[str, list[JsonObject]]
) -> dict[str, Json]:
    asks = language.settings["question"]
    answer = language.settings["answer"]
    question = f"{asks} {{{{question}}}}\n{answer}"
    if name.startswith("up_"):
        text = "masked_text" if name == "up_masked" else "ukr_text"
        listed = "{% for each in similar_titles %}{{loop.index0}}) {{each}}\n{% endfor %}"
        which = language.settings["which_title"]
        question = f"{{{{{text}}}}}\n{asks} {which}\n{listed}{answer}"
    first = splits["train"][0]
    keys: dict[str, Json] = {
        "task": f"{part_of_task(language.folder.resolve().name)}/{name}",
        "data": f"{name}/train.jsonl",
        "question": question,
        "choices": "options",
        "gold": "answer",
        "gold_is": "text",
        "rules": "lm_eval",
        "target_delimiter": " ",
    }
    shots = splits.get("fewshot", splits["train"][1:])
    if shots:
        keys["num_fewshot"] = min(NUM_FEWSHOT, len(shots))
    if splits.get("fewshot"):
        keys["fewshot_data"] = f"{name}/fewshot.jsonl"
    for key in ("cluster", "swapped"):
        if key in first:
            keys[key] = key
    if made.traits:
        keys["traits"] = {trait: f"{META}{trait}" for trait in made.traits}
    if made.category:
        keys |= {"category": f"{META}{made.category}", "categories": "reported"}
    return keys


def _letters(language: Language, split: str, row: JsonObject) -> JsonObject:
    word = row[f"{META}word_raw"]
    return {"options": [*dict.fromkeys(word)], "answer": row["correctAnswer"], "cluster": word}


def _words(language: Language, split: str, row: JsonObject) -> JsonObject:
    sentence = language.sentences[split][row[f"{META}sentence"]]
    by_form: dict[str, str] = {}
    for token in tokens_of(sentence):
        by_form.setdefault(token.casefold(), token)
    answer = by_form[row["correctAnswer"].casefold()]
    return {"options": [*by_form.values()], "answer": answer, "cluster": sentence}


def _listed(language: Language, split: str, row: JsonObject) -> JsonObject:
    return {
        "options": row[f"{META}all_options"],
        "answer": row["correctAnswer"],
        "cluster": _drawn(row),
    }


def _yes_no(language: Language, split: str, row: JsonObject) -> JsonObject:
    options = [language.settings["yes"], language.settings["no"]]
    answer = options[0] if row["correctAnswer"] else options[1]
    return {"options": options, "answer": answer, "cluster": _drawn(row)}


def _drawn(row: JsonObject) -> str:
    return f"{row[f'{META}cat_name_main']}: {', '.join(sorted(row[f'{META}main_cat_words']))}"


def _pair(language: Language, split: str, row: JsonObject) -> JsonObject:
    options = [row[f"{META}option_0"], row[f"{META}option_1"]]
    pair = " ".join(sorted(options))
    return {
        "options": options,
        "answer": row["correctAnswer"],
        "cluster": pair,
        "swapped": f"{pair} {row[f'{META}template_n']}",
    }


def _titles(language: Language, split: str, row: JsonObject) -> JsonObject:
    options = map(str, range(len(row["similar_titles"])))
    return {"options": [*options], "answer": str(row["label"])}


def _unmasked(language: Language, split: str, count: int) -> list[JsonObject]:
    at = f"{language.file(UP_TITLES)}: of its words"
    return title_rows(articles(language, count), NAME, at)


def _masked(language: Language, split: str, count: int) -> list[JsonObject]:
    return [*map(masked_row, _unmasked(language, split, count))]


_OF_LISTS = ("template_n", "kind", "cat_name_main", "cat_name_other")
_OF_PAIRS = (
    "template_n", "type", "kind", "reversed", "num_shared_characters", "stratum", "len_difference",
)  # fmt: skip
MADE = {
    "lmes_low": Made(
        "LOWTask", places.letters, _letters, ("template_n", "needle", "word_length", "pos", "len")
    ),
    "lmes_wis": Made(
        "WISTask", places.sentence_words, _words, ("template_n", "type", "needle", "len_haystack")
    ),
    "lmes_catsbin": Made(
        "DoAllWordsBelongToCatTask", odd_words.all_words, _yes_no, _OF_LISTS, "cat_name_main"
    ),
    "lmes_catsmc": Made(
        "WhichWordWrongCatTask", odd_words.odd_word, _listed, _OF_LISTS, "cat_name_main"
    ),
    "lmes_wordalpha": Made("WordsAlphabetOrder", pairs.alphabetical, _pair, _OF_PAIRS),
    "lmes_wordlength": Made("WordLengthComparison", pairs.by_length, _pair, _OF_PAIRS),
    "up_masked": Made("UPTitles", _masked, _titles),
    "up_unmasked": Made("UPTitles", _unmasked, _titles),
}
