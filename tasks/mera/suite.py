"""MERA v1 (of the published leaderboard) and v1.2 (the current version) as suites.

Arrives: a folder of CONFIG/test.jsonl and CONFIG/train.jsonl, the user's or fetched from the hub.
Leaves: `V1`, `V12`.  It deliberately does not know tokenizers or models.

The right answers of most test records are not published.  A run writes the model's answers to them
for a submission, which only the site can score.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from miron_jax.definitions.records import (
    AnswerProfile,
    Composite,
    DataFile,
    Measured,
    Profile,
    ProgramProfile,
    PromptedTask,
    Suite,
    Task,
)
from miron_jax.definitions.rules import GREEDY, NOTHING
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, cache_folder, fetch_data_set, revision_of
from miron_jax.metrics.choices import SUM
from miron_jax.metrics.programs import AT_STOP
from miron_jax.prompting.draws import OWN_ANSWERS
from miron_jax.tasks.groups import main_metrics, missing_of
from miron_jax.tasks.human_baselines import MERA
from miron_jax.tasks.mera.metrics import MCC
from miron_jax.tasks.mera.records import (
    DRAW,
    ORDER,
    SEPARATOR,
    arrange,
    parse_problem,
    parse_record,
)
from miron_jax.tasks.mera.rutie import IN_ORDER, TURN_PROMPT, parse_turn
from miron_jax.tasks.mera.scoring import PASS_AT, answered_record
from miron_jax.tasks.mera.table import DataSet, Version, data_sets
from miron_jax.tokens.spans import AFTER_COMMON_PREFIX, AFTER_CONTEXT, Span

CITATION = "MERA, Fenogenova et al. 2024, arXiv:2401.04531; rules of {}"
HUB = {"v1": "ai-forever/MERA", "v1.2": "MERA-evaluation/MERA"}
SUITE_NAME: dict[Version, str] = {"v1": "mera-v1", "v1.2": "mera-v1.2"}
REVISION = "MIRON_JAX_MERA_REVISION"
MAX_NEW_TOKENS = 256


def _wording(dataset: DataSet, version: Version) -> dict[str, Any]:  # keywords of both profiles
    return {
        "protocol": _protocol(version),
        "num_fewshot": dataset.rules(version).num_fewshot,
        "delimiter": "",
        "question_delimiter": "whole",
        "shot_separator": SEPARATOR,
        "strip": "nothing",
        "item_order": ORDER[version],
        "fewshot_draw": DRAW[version],
        "fewshot_pool": "other_file",
        "categories": "reported" if dataset.group and dataset.over_all is not MCC else "pooled",
        "bos": "never",
        "boundary": "joint",
        "truncation": "keep_last",
        "max_length": None,
        "over_all": dataset.over_all,
    }


class _Harness(NamedTuple):
    """What the harness of a version does alike for all data sets."""

    fork: str  # of lm-evaluation-harness
    temperature: float  # of programs
    boundary: Literal["joint", "context_kept"]
    span: Span


# v1 sums over the whole text, so only what differs between choices counts; v1.2 reads the context's
# own tokens.
_HARNESS: dict[Version, _Harness] = {
    "v1": _Harness("0.3.0", 1.0, "joint", AFTER_COMMON_PREFIX),
    "v1.2": _Harness("0.4.4", 0.6, "context_kept", AFTER_CONTEXT),
}


def _protocol(version: Version) -> str:
    return f"MERA {version}, lm-evaluation-harness fork {_HARNESS[version].fork}"


def _profile(dataset: DataSet, version: Version) -> ProgramProfile | AnswerProfile | Profile:
    if dataset.kind == "program":
        return ProgramProfile(
            protocol=_protocol(version),
            bos="never",
            max_length=None,
            num_samples=10,
            pass_at_k=1,
            also_pass_at=PASS_AT,
            temperature=_HARNESS[version].temperature,
            top_k=50,  # the default of transformers
            top_p=1.0,
            room="nothing",
            extra_tokens=MAX_NEW_TOKENS,
            cut=AT_STOP,
            stop=("\nclass", "\ndef", "\n#", "\nif", "\nprint"),
            judge="answers",
            test_seconds=3.0,
            cpu_seconds=12.0,
        )
    wording = _wording(dataset, version)
    if dataset.kind == "text":
        return AnswerProfile(
            **wording,
            decoding=GREEDY,
            extra_tokens=MAX_NEW_TOKENS,
            stop=dataset.rules(version).stop,
            answer_after="",
            answer_normalizer=dataset.normalizer,
            match=dataset.match,
        )
    if dataset.kind == "dialogue":
        wording |= {"item_order": IN_ORDER, "fewshot_draw": OWN_ANSWERS, "num_fewshot": 0}
    wording["boundary"] = _HARNESS[version].boundary
    return Profile(
        **wording,
        continuation_space="as_written",
        joined_delimiter=" ",
        span=_HARNESS[version].span,
        normalizer=SUM,
        tie=dataset.rules(version).tie,
        empty_span="error",
    )


_KINDS = {"program": "code", "text": "generation", "choice": "multiple_choice"}


def _task(dataset: DataSet, version: Version) -> PromptedTask:
    # keywords of Task
    options: dict[str, Any] = {"main": dataset.main, "human": MERA.get(dataset.config, ())}
    if dataset.kind == "program":
        parse = partial(parse_problem, dataset, version)
    elif dataset.kind == "dialogue":
        parse = partial(parse_turn, dataset)
        options |= {"arrange": IN_ORDER.call, "turn_prompt": TURN_PROMPT[version]}
    else:
        parse = partial(parse_record, dataset, version)
        options["arrange"] = partial(arrange, dataset, version)
    if dataset.over_all is not NOTHING:
        options["answered"] = lambda example, answer: answered_record(
            dataset, example.published, answer, version
        )
    return Task(
        f"{SUITE_NAME[version]}/{dataset.config}",
        _KINDS.get(dataset.kind, dataset.kind),
        _profile(dataset, version),
        DataFile(f"{dataset.config}/test.jsonl", dataset.rules(version).tests, None),
        {"random": dataset.random, "human": None},
        parse,
        CITATION.format(HUB[version]),
        **options,
    )


def locate(version: Version, data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds bps/test.jsonl and its like: the user's, or in the cache, which is
    filled once."""
    suite = SUITE_NAME[version]
    revision = revision_of(data_dir)
    top = data_dir
    if top is None or revision is not None:
        top = cache_folder(suite, revision)
        if fetch:
            _fetch(version, revision, top)
    for folder in (top / "data", top):
        if any(folder.glob("*/test.jsonl")):
            return folder
    raise InputError(
        f"{top}: no {suite} data there, expected CONFIG/test.jsonl (bps/test.jsonl and so on), "
        f"as {HUB[version]} on the Hugging Face hub has them: pass --data_dir={suite}=FOLDER"
    )


def _fetch(version: Version, revision: str | None, folder: Path) -> None:
    """Downloads the commit that the user names; both repositories were edited in place (v1's now
    describes v1.2's tasks)."""
    suite = SUITE_NAME[version]
    revision = revision or os.environ.get(REVISION)
    if not revision and not folder.is_dir():
        raise InputError(
            f"{suite} data are not in {folder}: pass --data_dir={suite}=FOLDER, or =@COMMIT (or "
            f"set {REVISION}) for the commit of {HUB[version]} on the Hugging Face hub to fetch, "
            "which was edited in place"
        )
    fetch_data_set(Repository(HUB[version], revision), folder, ["*.jsonl"], suite)


def _composites(version: Version, measured: Mapping[str, Measured]) -> Mapping[str, Composite]:
    """total_score: the plain mean, over the data sets that count, of their main metric."""
    counted = []
    for dataset in data_sets(version):
        if dataset.counts(version):
            counted.append(f"{SUITE_NAME[version]}/{dataset.config}")
    main_of = main_metrics(measured)
    missing = missing_of(counted, main_of)
    total = None
    if not missing:
        total = sum(map(main_of.__getitem__, counted)) / len(counted)
    weights = dict.fromkeys(counted, 1 / len(counted))
    return {"total_score": Composite(total, not missing, missing, weights)}


def _suite(version: Version) -> Suite[PromptedTask]:
    tasks = tuple(_task(dataset, version) for dataset in data_sets(version))
    return Suite(
        SUITE_NAME[version], tasks, partial(_composites, version), partial(locate, version)
    )


V1 = _suite("v1")
V12 = _suite("v1.2")
SUITES = (V1, V12)
