"""Documents: every token is scored, in windows; bits per byte, character and token.

Arrives: a task of documents, a tokenizer; then scores.  Leaves: `TextRow`s.  It deliberately does
not know devices.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Document
from miron_jax.engine.records import Score, Scores
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import (
    LoadedTask,
    RowSizes,
    ScoredRow,
    Setup,
    TaskKind,
    TaskScores,
    TokenizedExamples,
)
from miron_jax.evaluation.task_kinds.summary import (
    option_of,
    task_result,
    why_unscored,
    with_token_stats,
)
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.token_stats import TOKEN_STATS
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.prompting.prompts import Prompt
from miron_jax.results.details import TextDetails
from miron_jax.results.output import BYTE_LOSSES
from miron_jax.results.records import TaskResult
from miron_jax.results.samples import AskedDocument, ExampleResult
from miron_jax.runtime.timeline import spent_on
from miron_jax.statistics.estimate import TaskEstimates, ratio
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encode_each, encoder, first_tokens, prefix_token
from miron_jax.tokens.windows import byte_ends, spread, windows

SAMPLED = 32  # documents per task tokenized ahead
PIECE_CHARS = 2 * REQUEST_BATCH_TOKENS  # half a request batch, at four characters per token


class DocumentWindows(NamedTuple):
    """A document as it is scored."""

    id: int  # its place in the suite's own order
    document: Document
    num_windows: int
    ends: np.ndarray | None  # byte at which each token ends; None: not asked for


@dataclass(slots=True)
class TextRow(ScoredRow):
    score: ExampleScore  # pyright: ignore[reportIncompatibleVariableOverride] - always spelled
    document: Document
    nll: float  # nats
    num_tokens: int
    num_windows: int
    beyond_trained: bool = False  # a window is longer than the length the model was trained at
    token_nll: np.ndarray | None = None  # float32, if losses of bytes are asked for
    ends: np.ndarray | None = None  # byte at which each token ends, likewise
    span: Score | None = None  # with --token_stats

    @property
    def is_nan(self) -> bool:
        return math.isnan(self.nll)

    @property
    def is_unscored(self) -> bool:
        return self.is_nan


class TextKind(TaskKind[TextRow]):
    scores_spans = True

    def __init__(self, source: LoadedTask, setup: Setup) -> None:
        super().__init__(source, setup)
        assert self.max_length is not None
        self.window = self.max_length
        profile = source.task.profile
        self.stride = profile.stride or self.window
        if self.stride > self.window:
            raise InputError(
                f"--stride is {self.stride}, but a window of {source.task.name} has {self.window} "
                "tokens: lower it, or raise --max_length"
            )
        tokenizer = self.setup.tokenizer
        first = first_tokens(profile.bos, tokenizer) or (prefix_token(tokenizer),)
        self.first = np.asarray(first, np.int32)
        if len(first) > self.window:
            raise InputError(
                f"--max_length is {self.window}, but the tokenizer puts {len(first)} tokens before "
                "every text: raise it"
            )
        self._encode = encoder(tokenizer)

    @classmethod
    def load(cls, task: object, folder: Path, config: RunConfig, runs: bool) -> list[Document]:
        return read_examples(task, folder)[: config.limit]  # pyright: ignore[reportArgumentType]

    @classmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterator[Prompt]:
        for idx, document in enumerate(source.examples):
            text = document.text
            yield Prompt(idx, document.row, (text,), ("",), None, digest=_digest(text))

    @spent_on("tokenize")
    def sizes(self, cost: CostModel) -> RowSizes:
        """Estimates the tokens of documents from their bytes, at the rate of some of them."""
        texts = [document.text for document in self.source.examples]
        num_bytes = np.asarray([max(1, _num_bytes(text)) for text in texts])
        tried = np.argsort(num_bytes, kind="stable")[:: max(1, len(texts) // SAMPLED)]
        # The beginning is enough: a document of a megabyte would take as long as all others.
        begun = [texts[i][: 8 * self.window] for i in tried]
        tokens = sum(map(len, self._encode(begun)))
        rate = tokens / max(1, sum(map(_num_bytes, begun)))
        num_tokens = np.ceil(num_bytes * rate).astype(np.int64)
        # windows after the first
        further = np.maximum(0, -(-(num_tokens - self.window) // self.stride))
        nodes = np.concatenate(
            [np.minimum(num_tokens, self.window), np.full(further.sum(), self.window)]
        )
        total = float(nodes.sum())
        return RowSizes(int(nodes.max()), nodes.astype(np.float64), total, total)

    def pieces(self) -> Iterator[tuple[list[DocumentWindows], Requests]]:
        some: list[tuple[int, Document]] = []
        num_chars = 0
        for i, document in enumerate(self.source.examples):
            some.append((i, document))
            num_chars += len(document.text)
            if num_chars >= PIECE_CHARS:
                yield self._piece(some)
                some = []
                num_chars = 0
        if some:
            yield self._piece(some)

    @spent_on("tokenize")
    def _piece(
        self, documents: Sequence[tuple[int, Document]]
    ) -> tuple[list[DocumentWindows], Requests]:
        """`documents`: with their ids."""
        each = encode_each(self._encode, [document.text for _, document in documents])
        cuts = []
        token_ids = list[np.ndarray]()
        span_start = list[int]()
        for (i, document), ids in zip(documents, each, strict=True):
            cut = windows(ids, self.first, self.window, self.stride)
            for ids_of_window, start in cut:
                token_ids.append(ids_of_window)
                span_start.append(start)
            ends = None
            if self.setup.config.save_byte_losses:
                ends = byte_ends(
                    self.setup.tokenizer, self.setup.table, document.text, ids.tolist()
                )
            cuts.append(DocumentWindows(i, document, len(cut), ends))
        flags = np.zeros(len(token_ids), bool)
        start = np.asarray(span_start, np.int32)
        return cuts, Requests(*end_to_end(token_ids), start, flags, flags)

    def rows_of(self, piece: TokenizedExamples, scores: Scores) -> list[TextRow]:
        rows = list[TextRow]()
        lengths = np.diff(piece.requests.offsets)
        end = 0
        for i, document, num_windows, ends in piece.examples:
            of_document = (end, end + num_windows)
            end += num_windows
            of_windows = scores.of_requests(*of_document)
            logprobs = [score.logprob for score in of_windows]
            nll = -sum(float(each.sum(dtype=np.float64)) for each in logprobs)
            num_tokens = sum(map(len, logprobs))
            # the windows' spans lie end to end
            whole = Score(
                of_windows.logprob,
                of_windows.rank,
                distribution=of_windows.distribution,
                token_ids=of_windows.token_ids,
            )
            row = TextRow(
                i,
                with_token_stats(_score(document.text, nll, num_tokens), whole),
                document,
                nll,
                num_tokens,
                num_windows,
                beyond_trained=bool(
                    (lengths[slice(*of_document)] - 1 > self.setup.trained_length).any()
                ),
                span=whole if whole.has_distribution else None,
            )
            if ends is not None:
                row.token_nll = -np.concatenate([np.zeros(0, np.float32), *logprobs])
                row.ends = ends
            rows.append(row)
        return rows

    def result(self, scores: TaskScores[TextRow]) -> TaskResult:
        rows = scores.rows
        texts = [row.document.text for row in rows]
        units = {
            "bits_per_byte": np.asarray([*map(_num_bytes, texts)], np.float64),
            "bits_per_char": np.asarray([*map(len, texts)], np.float64),
            "bits_per_token": np.asarray([row.num_tokens for row in rows], np.float64),
        }
        details = TextDetails(
            tokens=sum(row.num_tokens for row in rows),
            bytes=sum(map(_num_bytes, texts)),
            windows=sum(row.num_windows for row in rows),
            empty_documents=texts.count(""),
            beyond_trained_length=sum(row.beyond_trained for row in rows),
        )
        bits = np.asarray([row.nll for row in rows]) / math.log(2)
        metrics = {name: ratio(bits, unit) for name, unit in units.items()}
        for name in TOKEN_STATS if any(row.span for row in rows) else ():
            means = np.asarray([row.score.metrics[name] for row in rows])
            metrics[name] = ratio(means * units["bits_per_token"], units["bits_per_token"])
        return task_result(scores, TaskEstimates(metrics, {}, {}), details)

    def example_results(self, scores: TaskScores[TextRow]) -> Iterator[ExampleResult]:
        for row in scores.rows:
            document = row.document
            reason = ""
            if row.is_nan:
                reason = why_unscored(True)
            elif not all(map(math.isfinite, (row.nll, *row.score.metrics.values()))):
                reason = f"the document {'has no token' if document.text else 'is empty'}"
            yield ExampleResult(
                id=row.id,
                row=document.row,
                asked=AskedDocument(
                    doc_id=document.doc_id,
                    corpus_id=self.corpus,
                    total_nll=row.nll,
                    scored_tokens=row.num_tokens,
                    num_bytes=_num_bytes(document.text),
                    text_sha256=_digest(document.text),
                ),
                options=(option_of("", row.span),) if row.span and row.num_tokens else (),
                metrics=row.score.metrics,
                reason=reason,
            )

    @property
    def corpus(self) -> str:
        return self.source.task.name.partition("/")[2]

    def further_files(self, scores: TaskScores[TextRow]) -> Iterator[tuple[str, bytes]]:
        """Losses of bytes, if asked for: a row a document, with a loss (nats) for each byte of its
        text."""
        rows = [row for row in scores.rows if row.ends is not None and row.token_nll is not None]
        if not rows:
            return
        import pyarrow
        from pyarrow import parquet

        columns = defaultdict[str, list[object]](list)
        for row in rows:
            document = row.document
            ends = np.asarray(row.ends)
            nll = np.asarray(row.token_nll)
            size = _num_bytes(document.text)
            columns["doc_id"].append(document.doc_id)
            columns["corpus_id"].append(self.corpus)
            columns["text_sha256"].append(sha256(document.text.encode()).hexdigest())
            columns["text"].append(document.text)
            columns["num_bytes"].append(size)
            columns["per_byte_loss"].append(spread(nll, ends, size))
            columns["token_byte_starts"].append(np.insert(ends, 0, 0)[:-1].astype(np.int64))
            columns["token_byte_ends"].append(ends)
            columns["token_nll"].append(nll)
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(columns), sink)
        yield f"{BYTE_LOSSES}/{self.source.task.name}.parquet", sink.getvalue().to_pybytes()


KINDS = {"text": TextKind}


def _score(text: str, nll: float, num_tokens: int) -> ExampleScore:
    bits = nll / math.log(2)
    metrics = {}
    for name, unit in (("byte", _num_bytes(text)), ("char", len(text)), ("token", num_tokens)):
        metrics[f"bits_per_{name}"] = bits / unit if unit else math.nan
    return ExampleScore(None, None, False, not num_tokens, metrics)


def _num_bytes(text: str) -> int:
    return len(text.encode())


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
