"""The data of a user's task: files beside its YAML, or a data set of the Hugging Face hub.

Arrives: what `data` or `fewshot_data` says.  Leaves: `Data`, which reads its records.  It
deliberately does not know what a record means.

    data: hills.jsonl
    data: {hub: owner/name, config: default, split: test}          the hub's own Parquet of it
    data: {hub: owner/name@revision, files: data/test-*.jsonl}     files as they lie there
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from miron_jax.definitions.data_files import FORMATS, Located, located_rows
from miron_jax.definitions.records import AnyExample, DataFile
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, cache_folder, fetch_data_set, parse_name
from miron_jax.files.readers import JsonObject, shown
from miron_jax.tasks.own_tasks.keys import Keys

_PARQUET = "refs/convert/parquet"  # the branch where the hub keeps every data set as Parquet


# (all records, the place of a record in words) -> what parses each of them.
Parser = Callable[
    [Sequence[JsonObject], Callable[[int], str]], Callable[[JsonObject, int], AnyExample]
]


class Data(NamedTuple):
    path: Path  # a file, or the folder of a data set's files
    repository: Repository | None  # None: the file is the user's
    pattern: str  # of the data set's files

    @property
    def file(self) -> DataFile:
        return DataFile(str(self.path), None, None)

    def fetch(self) -> None:
        """Download a data set that is not in the cache.  Raises InputError."""
        if self.repository is not None:
            fetch_data_set(
                self.repository, self.path, [self.pattern], "own", f", then copy {self.path} here"
            )

    def examples(self, name: str, parser: Parser) -> list[AnyExample]:
        """All examples in file order.  Raises InputError, which names file and line."""
        files = [self.path] if self.repository is None else self._files()
        read = [(file, _records(file, name)) for file in files]
        records = [record for _, located in read for record in located.records]
        places = [
            (file, f"{located.unit} {number}")
            for file, located in read
            for number in located.numbers
        ]
        keys = f"the keys of {name.partition('/')[2]}'s YAML file"
        try:
            parse = parser(records, lambda row: places[row][1])
        except ValueError as error:
            raise InputError(f"{name}: {self.path}: {error}; correct the data, or {keys}") from None
        examples = []
        for row, (record, (file, place)) in enumerate(zip(records, places, strict=True)):
            try:
                examples.append(parse(record, row))
            except ValueError as error:
                unit = place.partition(" ")[0]
                raise InputError(
                    f"{name}: {file}, {place}: {error}; correct the {unit}, or {keys}"
                ) from None
        return examples

    def _files(self) -> list[Path]:
        files = sorted(
            file for file in self.path.rglob("*") if file.is_file() and file.suffix in FORMATS
        )
        files = [file for file in files if fnmatch(str(file.relative_to(self.path)), self.pattern)]
        if not files:
            raise InputError(
                f"{self.path} holds no file {self.pattern}: name another config, split or files"
            )
        return files


def _records(file: Path, name: str) -> Located:
    try:
        return located_rows(file.read_bytes(), file, name, remedy="correct the file")
    except OSError as error:
        raise InputError(
            f"{name}: {file} cannot be read ({error.strerror}): mend or replace it"
        ) from None


def read_data(keys: Keys, key: str) -> Data:
    """Raises InputError."""
    value: Any = keys.fields.get(key)
    if isinstance(value, dict):
        return _of_hub(keys, key, value)
    name = keys.text(key)
    if Path(name).suffix not in FORMATS:
        raise keys.wrong(
            f"{key} is {shown(name)}, expected a file that ends in {', '.join(FORMATS)}, or a hub "
            "data set"
        )
    file = (keys.path.parent / name).resolve()
    if not file.is_file():
        raise keys.wrong(f"{key} names {file}, and there is no such file")
    return Data(file, None, "")


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
    return Data(cache_folder("own", repository.revision) / folder, repository, pattern)
