"""The rows of eval-ua-tion-gen, made once a process and when they are first asked for."""

from collections.abc import Iterator, Mapping
from functools import cache

from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.eval_uation.records import ChoiceQuestion, reader
from miron_jax.tasks.generators.eval_uation_gen import table
from tools.eval_uation_gen import sets

META = "additionalMetadata_"
BY_NAME = {generated.name: generated for generated in table.GENERATED}


class _Rows(Mapping[str, Mapping[str, list[JsonObject]]]):
    """Rows by set and split."""

    def __getitem__(self, name: str) -> Mapping[str, list[JsonObject]]:
        return _files(name)

    def __iter__(self) -> Iterator[str]:
        return iter(BY_NAME)

    def __len__(self) -> int:
        return len(BY_NAME)


ROWS = _Rows()


@cache
def _files(name: str) -> Mapping[str, list[JsonObject]]:
    return sets.make(BY_NAME[name])


@cache
def items(name: str, split: str = "train") -> list[ChoiceQuestion]:
    read = reader(BY_NAME[name].data_set)
    return [read(fields, row) for row, fields in enumerate(ROWS[name][split])]


def meta(fields: JsonObject, name: str) -> Json:
    return fields.get(META + name)
