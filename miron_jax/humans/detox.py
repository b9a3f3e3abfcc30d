"""ruDetox: three annotation projects -> the pairs of texts that pass all of them.

Arrives: answers to "is it fluent?" and "is it toxic?" of a rewrite, and to "does it mean the same?"
of a pair.  Leaves: the pairs whose labels are fluent, not toxic and the same.  It deliberately does
not know classifiers, which compute MERA's human J over the rewrites of these pairs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.regular import read_regular
from miron_jax.humans.annotations import (
    PROJECTS,
    Annotations,
    Columns,
    normalized,
    read_annotations,
)
from miron_jax.humans.votes import collect_votes, procedure_a, workers

TOXIC, REWRITE = "INPUT:toxic_comment", "INPUT:neutral_comment"
_MERA = PROJECTS["mera"]
_PASS = {"OUTPUT:fluent": "fluent", "OUTPUT:toxic": "false", "OUTPUT:is_match": "true"}


class Kept(NamedTuple):
    labelled: dict[str, int]  # items with three equal votes, by project
    rejected: dict[str, int]  # annotators, by project
    pairs: list[tuple[str, str]]  # (toxic text, rewrite), those that pass all three


def kept_pairs(paths: Sequence[Path]) -> Kept:
    """Applies procedure A to each project and keeps the pairs that pass all three.

    Fluency and toxicity are looked up by the rewrite's text: several toxic texts may share a
    rewrite.  Raises InputError if a project's file is missing or named twice.
    """
    kept = Kept({}, {}, [])
    passing: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        name, annotations = _project(path)
        if name in passing:
            raise InputError(
                f"{path}: a second file with {name}, expected one each of {', '.join(_PASS)}"
            )
        known = workers(annotations.answers, _MERA)
        rejected = {name for name, worker in known.items() if worker.is_rejected}
        labels = procedure_a(collect_votes(annotations.answers, rejected, _MERA), _MERA)
        kept.labelled[name] = len(labels)
        kept.rejected[name] = len(rejected)
        passing[name] = _passing(annotations, labels, _PASS[name])
    if missing := _PASS.keys() - passing.keys():
        raise InputError(
            f"--project=rudetox wants a file with each of {', '.join(_PASS)}: none has "
            f"{sorted(missing)[0]}"
        )
    fluent = {item[-1] for item in passing["OUTPUT:fluent"]}
    harmless = {item[-1] for item in passing["OUTPUT:toxic"]}
    for item in passing["OUTPUT:is_match"]:
        if item[-1] in fluent and item[-1] in harmless:
            kept.pairs.append((item[0], item[-1]))
    return kept


def _project(path: Path) -> tuple[str, Annotations]:
    header = read_regular(path).split(b"\n", 1)[0].decode("utf-8-sig", "replace").split("\t")
    name = next(filter(_PASS.__contains__, map(str.strip, header)), None)
    if name is None:
        raise InputError(
            f"{path}: none of the columns {', '.join(_PASS)}, it has {', '.join(header)}"
        )
    return name, read_annotations([path], Columns(answer=name))


def _passing(
    annotations: Annotations, labels: Mapping[tuple[str, ...], str], passing: str
) -> list[tuple[str, ...]]:
    """(toxic text, rewrite) or (rewrite,) of the items with the label `passing`, white space
    normalized."""
    columns = [
        annotations.inputs.index(name) for name in (TOXIC, REWRITE) if name in annotations.inputs
    ]
    return [
        normalized([item[i] for i in columns]) for item, label in labels.items() if label == passing
    ]
