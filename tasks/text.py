"""Texts of a user's own, of which every token is scored: `--tasks=text --data_dir=text=FOLDER`.

Arrives: a folder of documents.  Leaves: a `Suite` with a task for each group.  It deliberately does
not know tokens.

A folder in it is a group with all files below it, as Paloma has its sources; a file in it is a
group of its own, as uncheatable-eval has its sets.  .jsonl and .json (gzipped or not), .parquet and
.arrow hold records with a `text`, and an `id` or `doc_id` if need be; a .json may be a list of
texts; a .txt is one document.  A folder of `save_to_disk` holds its Arrow files; where TEXTS is
one of several splits, each is a group.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from miron_jax.definitions.data_files import located_rows
from miron_jax.definitions.records import (
    DataFile,
    Document,
    SpecialTokens,
    Suite,
    Task,
    TextProfile,
)
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, are_texts, parse_json, shown
from miron_jax.files.regular import read_unpacked
from miron_jax.files.saved_data_sets import SPLITS, STATE, saved_files
from miron_jax.tasks.groups import plain_mean, written

NAME = "text"
_FORMATS = (".jsonl", ".json", ".parquet", ".arrow", ".txt")
_REMEDY = "mend the file"


def read_suite(
    folder: Path, stride: int | None = None, special_tokens: SpecialTokens = "control"
) -> Suite[Task[TextProfile]]:
    """`stride`: tokens that a window scores; `special_tokens`: how their names are read.

    Raises InputError for a folder without documents.
    """
    if not folder.is_dir():
        raise InputError(
            f"--data_dir={NAME}={folder}: there is no such folder, expected one with documents"
        )
    paths = [folder] if (folder / STATE).is_file() else sorted(folder.iterdir())
    groups = {path: files for path in paths if (files := _files(path))}
    if not groups:
        raise InputError(
            f"--data_dir={NAME}={folder} holds no document, expected files that end in "
            f"{', '.join(_FORMATS)}"
        )
    tasks: dict[str, Task[TextProfile]] = {}
    for path, files in groups.items():
        name = f"{NAME}/{written(_stem(path) if path.is_file() else path.name)}"
        if name in tasks:
            raise InputError(
                f"{path}: {tasks[name].file.path} is the group {name} too: rename one of them"
            )
        tasks[name] = Task(
            name,
            NAME,
            TextProfile(stride=stride, special_tokens=special_tokens),
            DataFile(str(path.resolve()), None, None),
            {"random": None, "human": None},
            parse=_document,
            citation="",
            main="bits_per_byte",
            examples=partial(_documents, name, files),
        )
    composites = plain_mean(list(tasks)).composites
    return Suite(NAME, tuple(tasks.values()), composites, lambda data_dir, fetch: Path())


def _stem(path: Path) -> str:
    return re.sub(r"\.[a-z]+$", "", path.name.removesuffix(".gz"))


def _files(path: Path) -> list[Path]:
    """The documents' files of a group; names that begin with a dot are left out, as they are of the
    data's hash."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    saved: dict[Path, list[Path]] = {}  # folder of `save_to_disk` -> its documents' files
    for file in files:
        if file.name in (STATE, SPLITS) and file != path:
            try:
                saved[file.parent] = saved_files(file.parent)
            except ValueError as error:
                raise InputError(f"{file.parent}: {error}") from None
    documents = []
    for file in files:
        is_hidden = "/." in f"/{file.relative_to(path.parent).as_posix()}"
        is_listed = file in saved.get(file.parent, [file]) and file.name != SPLITS
        is_document = file.name.removesuffix(".gz").endswith(_FORMATS)
        if is_document and is_listed and not is_hidden and file.is_file():
            documents.append(file)
    return documents


def _documents(name: str, files: list[Path], _: Path) -> list[Document]:
    documents: list[Document] = []
    for file in files:
        for number, value in enumerate(_records(name, file), 1):
            try:
                documents.append(_document(value, len(documents), f"{file.name}:{number}"))
            except ValueError as error:
                raise InputError(f"{file}, record {number}: {error}; {_REMEDY}") from None
    return documents


def _records(name: str, file: Path) -> Sequence[JsonObject | str]:
    try:
        content = read_unpacked(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: {file} cannot be read ({error!s:.120}): {_REMEDY}") from None
    plain = Path(file.name.removesuffix(".gz"))
    if plain.suffix == ".txt":
        try:
            return [content.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}: {file}, byte {error.start + 1} is not UTF-8: {_REMEDY}"
            ) from None
    texts = _list_of_texts(content) if plain.suffix == ".json" else None
    file = file.with_name(plain.name)
    return texts or located_rows(content, file, name, remedy=_REMEDY).records


def _list_of_texts(content: bytes) -> list[str] | None:
    """The texts of a file that is a list of them; None: it is not."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return value if are_texts(value) else None


def _document(value: JsonObject | str, row: int, place: str = "") -> Document:
    """`place`: its name, where its record has none."""
    if isinstance(value, str):
        return Document(row, place, _whole(value))
    text = value.get("text")
    if not isinstance(text, str):
        raise ValueError(f"field 'text' holds {shown(text)}, expected a text")
    doc_id = next((value[key] for key in ("doc_id", "id") if value.get(key) is not None), place)
    return Document(row, str(doc_id), _whole(text))


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "the text holds half a surrogate pair, expected whole characters"
        ) from None
    return text


# Its tasks are those of the folder that a run names.
SUITES = (Suite(NAME, (), lambda measured: {}, lambda data_dir, fetch: data_dir or Path()),)
