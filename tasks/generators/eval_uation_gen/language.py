"""The files of one language, in the layout of LMentry-static-UA: templates, words, categories,
sentences, numerals.

Arrives: a user's folder, a file of words; without them the folder uk of this package.  Leaves:
their records; InputError with file, place and remedy.  It deliberately does not know how rows are
sampled.

A folder with a language.yaml is a language of its own and has all the files; any other folder is
Ukrainian, and what it lacks is the package's.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from io import StringIO
from itertools import chain, zip_longest
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, are_texts, parse_yaml, shown
from miron_jax.files.regular import read_regular

UKRAINIAN = Path(__file__).with_name("uk")
LAST = "last"  # the row of the numeral for the last place
SHORT = 5  # letters of the longest short word
MID = 8  # of the longest middling one
NUM_WORDS = 5  # words of a list
SHOTS_SHARE = 10  # every tenth word and sentence is for few-shot examples, which no question uses
SHOTS_MEMBERS = 3  # of each category: every third word
# all but the templates
FILES = ("language.yaml", "words.csv", "word_classes.yaml", "sentences.txt", "numerals.csv")
_MARKS = ",.!?:;"
_CAPITALS = re.compile(r"(?<![^\W_])[^\W\d_]{2,}(?![^\W_])")


class Template(NamedTuple):
    text: str  # with its fields, and {n} for a numeral
    number: int  # template_n
    uuid: str
    kind: str | None
    type: str | None
    form: str | None  # column of the numerals; None: it has no numeral
    asks_odd: bool  # whether it asks for a word of another category, not whether there is none


class Word(NamedTuple):
    text: str
    pos: str  # "": not given
    num_tokens: int  # of a tokenizer, after a space; 0: not given

    @property
    def size(self) -> str:
        if len(self.text) <= SHORT:
            return "short"
        return "mid" if len(self.text) <= MID else "long"


class Category(NamedTuple):
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Language:
    """The files of one folder, read when they are asked for."""

    folder: Path = UKRAINIAN
    words_file: Path | None = None  # in place of words.csv

    def file(self, name: str) -> Path:
        if name == "words.csv" and self.words_file is not None:
            return self.words_file
        path = self.folder / name
        if path.is_file() or (self.folder / "language.yaml").is_file():
            return path
        return UKRAINIAN / name

    def wrong(self, name: str, problem: str) -> InputError:
        return InputError(f"{self.file(name)}: {problem}")

    def _text(self, name: str) -> str:
        try:
            content = read_regular(self.file(name)).decode("utf-8-sig")
        except OSError as error:
            raise self.wrong(
                name,
                f"cannot be read ({error.strerror}): write it (docs/eval_uation.md), or remove "
                "language.yaml and it is the package's",
            ) from None
        except UnicodeDecodeError as error:
            raise self.wrong(name, f"is no UTF-8 ({error.reason}): save it as UTF-8") from None
        return unicodedata.normalize("NFC", content)

    def mapping(self, name: str) -> JsonObject:
        try:
            fields = parse_yaml(self._text(name).encode())
        except ValueError as error:
            raise self.wrong(name, f"is no yaml ({error!s:.160}): mend it") from None
        if not isinstance(fields, dict):
            raise self.wrong(name, f"found {shown(fields)}, expected keys with values: mend it")
        return fields

    def table(self, name: str, needed: Collection[str]) -> list[tuple[int, dict[str, str]]]:
        """The rows of a CSV file with a heading, each with its line."""
        reader = csv.DictReader(StringIO(self._text(name)), strict=True)
        rows = []
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise self.wrong(
                        name,
                        f"line {reader.line_num} has not the {len(reader.fieldnames or ())} cells "
                        "of the heading: mend the line",
                    )
                rows.append((reader.line_num, row))
        except csv.Error as error:
            raise self.wrong(name, f"line {reader.line_num} is no CSV ({error}): mend it") from None
        for column in needed:
            if not rows or column not in rows[0][1]:
                raise self.wrong(name, f"has no column {column!r} or no row: add them")
        return rows

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """language.yaml: texts by name."""
        name = "language.yaml"
        fields = self.mapping(name)
        fields.setdefault("out_of_order", "out_of_order")
        keys = ("alphabet", "yes", "no", "question", "answer", "which_title", "out_of_order")
        for key in keys:
            if not isinstance(fields.get(key), str) or not fields[key].strip():
                raise self.wrong(name, f"{key} is {shown(fields.get(key))}, expected a text")
        for key in fields:
            if key not in keys:
                raise self.wrong(name, f"key {key!r} is not known, expected {', '.join(keys)}")
        if fields["yes"].strip().casefold() == fields["no"].strip().casefold():
            raise self.wrong(name, f"yes and no are both {fields['no']!r:.60}: mend one of them")
        return fields

    @cached_property
    def _rank(self) -> Mapping[str, int]:
        letters = self.settings["alphabet"]
        return dict(zip(letters, range(len(letters)), strict=True))

    def alphabet_key(self, word: str) -> tuple[int, ...]:
        """Sort key of the alphabet: Python's order is that of code points.  Other signs, such as an
        apostrophe, do not count."""
        return tuple(self._rank[letter] for letter in word.lower() if letter in self._rank)

    def words(self, split: str) -> tuple[Word, ...]:
        """The words of one split; parts of speech and lengths take turns."""
        cells: dict[tuple[str, str], list[Word]] = {}
        seen: set[str] = set()
        for line, row in self.table("words.csv", ("word",)):
            tokens = row.get("tokens") or "0"
            if not tokens.isdecimal():
                raise self.wrong(
                    "words.csv", f"line {line}: tokens is {tokens!r}, expected a number: mend it"
                )
            word = Word(row["word"], row.get("pos", ""), int(tokens))
            strangers = set(word.text.lower()).difference(self._rank)
            if strangers or word.text in seen or len(set(word.text)) < 2:
                raise self.wrong(
                    "words.csv",
                    f"line {line}: the word is {word.text!r:.60}, expected another one than before,"
                    " of letters of the alphabet in language.yaml, two of them different: mend or "
                    "remove the line",
                )
            seen.add(word.text)
            cells.setdefault((word.pos, word.size), []).append(word)
        in_turn = [*filter(None, chain.from_iterable(zip_longest(*cells.values())))]
        num_shots = len(in_turn) // SHOTS_SHARE
        return tuple(in_turn[:num_shots] if split == "fewshot" else in_turn[num_shots:])

    @cached_property
    def sentences(self) -> Mapping[str, tuple[str, ...]]:
        """sentences.txt, by split."""
        by_length = self._text("sentences.txt").splitlines()
        for line, sentence in enumerate(by_length, 1):
            words = tokens_of(sentence)
            is_spaced = sentence.split() == sentence.split(" ")
            if not is_spaced or "" in words or len(set(map(str.casefold, words))) < 2:
                raise self.wrong(
                    "sentences.txt",
                    f"line {line} is {sentence!r:.60}, expected two different words or more, one "
                    "space between words, and marks only behind words: mend or remove it",
                )
        shots = by_length[:: len(by_length) // max(1, len(by_length) // SHOTS_SHARE) or 1]
        splits = {}
        for split in ("train", "fewshot"):
            splits[split] = _of_split(split, by_length, shots)
        return splits

    def categories(self, split: str) -> tuple[Category, ...]:
        """All categories; each split has other words of them."""
        name = "word_classes.yaml"
        of_split = []
        category_of: dict[str, str] = {}
        least = SHOTS_MEMBERS * (NUM_WORDS - 1) + 2
        for category, words in self.mapping(name).items():
            if not isinstance(category, str):
                raise self.wrong(
                    name, f"the category {category!r:.60} is no text: put it in quotes"
                )
            if not are_texts(words) or len(words) < least:
                raise self.wrong(
                    name, f"{category} is {shown(words)}, expected a list of {least} words or more"
                )
            for word in words:
                if word in category_of:
                    raise self.wrong(
                        name,
                        f"{word!r} stands in {category_of[word]} and in {category}, expected it "
                        "once: remove one",
                    )
                category_of[word] = category
            by_length = sorted(words, key=lambda word: (len(word), self.alphabet_key(word)))
            shots = by_length[1::SHOTS_MEMBERS]
            of_split.append(Category(category, _of_split(split, by_length, shots)))
        if len(of_split) < 2:
            raise self.wrong(name, "has one category or none, expected at least two: add some")
        return tuple(of_split)

    @cached_property
    def numerals(self) -> Mapping[str, Mapping[str, str]]:
        """numerals.csv: 1, 2 and so on, and LAST -> form -> its words; "": it has none."""
        name = "numerals.csv"
        rows = dict[str, Mapping[str, str]]()
        for line, row in self.table(name, ("n",)):
            n = row.pop("n")
            if LAST in rows:
                raise self.wrong(
                    name, f"line {line} stands behind {LAST}, expected it at the end: move it there"
                )
            if n != LAST and n != str(len(rows) + 1):
                raise self.wrong(
                    name, f"line {line}: n is {n!r}, expected {len(rows) + 1}, or {LAST} at the end"
                )
            for form, text in row.items():
                if not text and n != LAST:
                    raise self.wrong(
                        name, f"line {line}: {n} has no form {form!r}: add it to the line"
                    )
            rows[n] = row
        for n, place in ((LAST, "last"), ("1", "first")):
            if n not in rows:
                raise self.wrong(name, f"has no row {n!r}, the word for the {place} place: add it")
        return rows

    def numeral(self, template: Template, n: str) -> str:
        """The template's numeral for a place; "": its form has none.  Raises InputError for a place
        beyond the numerals."""
        if n not in self.numerals:
            raise self.wrong(
                "numerals.csv",
                f"ends at {len(self.numerals) - 1}, and a word or sentence has {n} places: add "
                "rows, or remove what is longer",
            )
        return self.numerals[n][template.form or ""]

    @cached_property
    def number_words(self) -> frozenset[str]:
        """All words of the numerals but those for the last place."""
        words = set[str]()
        for n, forms in self.numerals.items():
            if n != LAST:
                words.update(chain.from_iterable(map(str.split, forms.values())))
        return frozenset(words)

    @property
    def is_given(self) -> bool:
        """Whether the folder has any of these files beside words.csv, which miron-gen has too."""
        names = ("*.yaml", "sentences.txt", "numerals.csv")
        return any(any(self.folder.glob(name)) for name in names)

    def has(self, task: str) -> bool:
        """Whether the folder has the templates of a task."""
        return self.file(f"{task}.yaml").is_file()

    def templates(
        self, task: str, fields: Collection[str], kinds: Sequence[str] = (), counts: bool = False
    ) -> tuple[Template, ...]:
        """The templates of a task, each with exactly these fields, one of these kinds, and a
        numeral in capitals where it `counts`."""
        name = f"{task}.yaml"
        given = self.mapping(name).get("templates")
        if not isinstance(given, list) or not given:
            raise self.wrong(name, f"templates is {shown(given)}, expected a list of templates")
        templates = []
        for i, each in enumerate(given):
            template = self._template(name, i, each, fields)
            if kinds and template.kind not in kinds:
                raise self.wrong(
                    name,
                    f"template {i}: its kind is {template.kind!r}, expected "
                    f"{' or '.join(kinds)}: add it under additional-metadata",
                )
            if counts:
                template = self._counting(name, i, template)
            templates.append(template)
        [(number, times)] = Counter(each.number for each in templates).most_common(1)
        if times > 1:
            raise self.wrong(name, f"template_n {number} comes {times} times, expected once")
        return tuple(templates)

    def _template(self, name: str, i: int, each: Json, fields: Collection[str]) -> Template:
        record = each if isinstance(each, dict) else {}
        text = record.get("template")
        meta = record.get("additional-metadata") or {}
        if not isinstance(text, str) or not isinstance(meta, dict):
            raise self.wrong(
                name,
                f"template {i} is {shown(each)}, expected template: TEXT and additional-metadata",
            )
        check_fields(text, fields, f"{self.file(name)}: template {i}", needs_all=True)
        number = meta.get("template_n", i)
        asks = record.get("asks", "all")
        if type(number) is not int or asks not in ("all", "odd"):
            raise self.wrong(
                name,
                f"template {i}: template_n is {shown(number)} and asks {shown(asks)}, expected a "
                "whole number, and all or odd",
            )
        uuid = record.get("uuid") or sha256(text.encode()).hexdigest()[:32]
        kind = meta.get("kind") and str(meta["kind"])
        of_type = meta.get("type") and str(meta["type"])
        return Template(text, number, str(uuid), kind, of_type, None, asks == "odd")

    def _counting(self, name: str, i: int, template: Template) -> Template:
        """The template with {n} in place of the numeral for 1 that it has in capitals."""
        bare = re.sub(r"\{\w*\}", lambda field: " " * len(field[0]), template.text)
        first = self.numerals["1"]
        numerals = []
        for match in _CAPITALS.finditer(bare):
            forms = [form for form, text in first.items() if text == match[0].lower()]
            if match[0].isupper() and forms:
                numerals.append((match.span(), forms[0]))
        if len(numerals) != 1:
            raise self.wrong(
                name,
                f"template {i} has {len(numerals)} numerals, expected one, in capitals, as "
                f"{self.file('numerals.csv').name} has 1: {', '.join(first.values()).upper():.120}",
            )
        [((start, end), form)] = numerals
        return template._replace(
            text=f"{template.text[:start]}{{n}}{template.text[end:]}", form=form
        )


def tokens_of(sentence: str) -> list[str]:
    """The words of a sentence without the marks behind them."""
    return [token.rstrip(_MARKS) for token in sentence.split(" ")]


def check_fields(text: str, fields: Collection[str], at: str, needs_all: bool = False) -> None:
    """Raises InputError for a text that names other fields than these, or lacks one of them."""
    try:
        parts = [*Formatter().parse(text)]
    except ValueError as error:
        raise InputError(
            f"{at} is {text!r:.60}, which cannot be filled ({error}): mend it"
        ) from None
    lacking = dict.fromkeys(fields if needs_all else ())
    for _, name, spec, how in parts:
        if name is not None and (name not in fields or spec or how):
            expected = ", ".join(map("{{{}}}".format, fields))
            raise InputError(f"{at} names the field {{{name}}}, expected {expected}: mend it")
        if name is not None and (not name.strip("0123456789") or {*".["} & set(name)):
            raise InputError(
                f"{at} names the field {{{name}}}, expected no number and no . or [ in its name: "
                "rename it"
            )
        lacking.pop(name or "", None)
    if lacking:
        raise InputError(f"{at} lacks the field {{{min(lacking)}}}: add it")


def _of_split(split: str, every: Sequence[str], shots: Collection[str]) -> tuple[str, ...]:
    if split == "fewshot":
        return tuple(shots)
    return tuple(text for text in every if text not in shots)
