"""The data of a user's task: files beside its YAML, or a data set of the Hugging Face hub.

Arrives: what `data` or `fewshot_data` says.  Leaves: `Data`, which reads its records.  It
deliberately does not know what a record means.

    data: hills.jsonl
    data: shards/*.parquet                                         or a list of files
    data: saved/train                                              a folder of `save_to_disk`
    data: {hub: owner/name, config: default, split: test}          the hub's own Parquet of it
    data: {hub: owner/name@revision, files: data/test-*.jsonl}     files as they lie there
"""

import os
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from miron_jax.definitions.data_files import FORMATS, Located, located_rows, parse_each
from miron_jax.definitions.records import AnyExample, DataFile
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, cache_folder, fetch_data_set, parse_name
from miron_jax.files.readers import JsonObject, shown
from miron_jax.files.regular import read_regular
from miron_jax.files.saved_data_sets import saved_files
from miron_jax.tasks.own_tasks.keys import Keys

_PARQUET = "refs/convert/parquet"  # the branch where the hub keeps every data set as Parquet


# (all records, the place of a record in words) -> what parses each of them.
Parser = Callable[
    [Sequence[JsonObject], Callable[[int], str]], Callable[[JsonObject, int], AnyExample]
]


class Data(NamedTuple):
    paths: tuple[Path, ...]  # files in order, or the folder of a data set's files
    repository: Repository | None  # None: the files are the user's
    pattern: str  # of the data set's files

    @property
    def file(self) -> DataFile:
        return DataFile(str(self.paths[0]), None, None)

    def fetch(self) -> None:
        """Download a data set that is not in the cache.  Raises InputError."""
        if self.repository is not None:
            [folder] = self.paths
            fetch_data_set(
                self.repository, folder, [self.pattern], "own", f", then copy {folder} here"
            )

    def examples(self, name: str, parser: Parser) -> list[AnyExample]:
        """All examples in file order.  Raises InputError, which names file and line."""
        read = _read(name, self.paths if self.repository is None else self._files())
        records: list[JsonObject] = []
        places: list[str] = []
        for file, located in read:
            of_file = f" of {file.name}" if len(read) > 1 else ""
            records += located.records
            places += [f"{located.unit} {number}{of_file}" for number in located.numbers]
        keys = f"the keys of {name.partition('/')[2]}'s YAML file"
        try:
            parse = parser(records, places.__getitem__)
        except ValueError as error:
            at = f"{name}: {self.paths[0]}"
            raise InputError(f"{at}: {error}; correct the data, or {keys}") from None
        examples: list[AnyExample] = []
        for file, located in read:
            remedy = f"; correct the {located.unit}, or {keys}"
            examples += parse_each(located, parse, f"{name}: {file}", remedy, len(examples))
        return examples

    def _files(self) -> list[Path]:
        [folder] = self.paths
        files = []
        for file in filter(Path.is_file, sorted(folder.rglob("*"))):
            if fnmatch(str(file.relative_to(folder)), self.pattern) and file.suffix in FORMATS:
                files.append(file)
        if not files:
            raise InputError(
                f"{folder} holds no file {self.pattern}: name another config, split or files"
            )
        return files


def _read(name: str, files: Sequence[Path]) -> list[tuple[Path, Located]]:
    """Raises InputError for files of two kinds, and for two whose records have other columns."""
    read = []
    columns: dict[frozenset[str], Path] = {}  # of the files in which all records have the same
    for file in files:
        if file.suffix != files[0].suffix:
            raise InputError(f"{name}: {files[0]} and {file} are of two kinds: name one of them")
        try:
            content = read_regular(file)
        except OSError as error:
            raise InputError(f"{name}: {file} cannot be read ({error.strerror}): mend it") from None
        located = located_rows(content, file, name, remedy="correct the file")
        read.append((file, located))
        of_records = set(map(frozenset, located.records))
        if len(of_records) == 1:
            columns |= dict.fromkeys(of_records, file)
        if len(columns) > 1:
            first, second = columns
            raise InputError(
                f"{name}: {columns[first]} and {file} differ in the columns "
                f"{', '.join(sorted(first ^ second)):.120}: name files with the same columns"
            )
    return read


def read_data(keys: Keys, key: str) -> Data:
    """Raises InputError."""
    value: Any = keys.fields.get(key)
    if isinstance(value, dict):
        return _of_hub(keys, key, value)
    names = keys.texts(key, []) if isinstance(value, list) else (keys.text(key),)
    files = [file for name in names for file in _named(keys, key, name)]
    for file in files or [Path()]:
        if file.suffix not in FORMATS:
            raise keys.wrong(
                f"{key} is {shown(value)}, expected files that end in {', '.join(FORMATS)}, or a "
                "hub data set"
            )
        if not os.path.isfile(file):
            raise keys.wrong(f"{key} names {file}, and there is no such file")
        if files.count(file) > 1:
            raise keys.wrong(f"{key} names {file} twice, expected once")
    return Data(tuple(files), None, "")


def _named(keys: Keys, key: str, name: str) -> list[Path]:
    """The files of a name: the files of a folder, those of a pattern in the order of their names,
    else the file itself."""
    folder = keys.path.parent
    path = Path(os.path.abspath(folder / name))
    if os.path.isdir(path):
        try:
            return saved_files(path)
        except ValueError as error:
            raise keys.wrong(f"{key} names the folder {path}: {error}") from None
    if os.path.isfile(path) or not re.search(r"[*?\[]", name):
        return [path]
    try:
        matches = glob(name, root_dir=folder, recursive=True)
    except ValueError:  # a name with a zero byte
        matches = []
    files = [Path(os.path.abspath(folder / match)) for match in matches]
    files = sorted(filter(Path.is_file, files))
    if not files:
        raise keys.wrong(f"{key} names {path}, and no file has such a name")
    return files


def _of_hub(keys: Keys, key: str, value: JsonObject) -> Data:
    expected = (
        "expected {hub: owner/name, config: NAME, split: NAME}, or {hub: owner/name@revision, "
        "files: PATTERN}"
    )
    is_converted = value.keys() == {"hub", "config", "split"}
    if not (is_converted or value.keys() == {"hub", "files"}) or not all(
        isinstance(each, str) for each in value.values()
    ):
        raise keys.wrong(f"{key} is {shown(value)}, {expected}")
    repository = parse_name(value["hub"])
    if repository is None or (is_converted and repository.revision is not None):
        raise keys.wrong(f"{key}: hub is {shown(value['hub'])}, {expected}")
    pattern = f"{value['config']}/{value['split']}/*.parquet" if is_converted else value["files"]
    if is_converted:
        repository = Repository(repository.id, _PARQUET)
    if ".." in pattern or pattern.startswith("/"):
        raise keys.wrong(f"{key}: {shown(pattern)} leads out of the data set, {expected}")
    folder = f"{repository.id}-{pattern}".replace("/", "--").replace("*", "+")
    return Data((cache_folder("own", repository.revision) / folder,), repository, pattern)
