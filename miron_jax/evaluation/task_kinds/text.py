"""Documents: every token is scored, in windows; bits per byte, character and token.

Arrives: a task of documents, a tokenizer; then scores.  Leaves: `TextRow`s.  It deliberately does
not know devices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Document
from miron_jax.engine.records import Score
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import (
    Facts,
    Piece,
    Row,
    Setup,
    Sizes,
    Source,
    TaskKind,
    TaskScores,
)
from miron_jax.evaluation.task_kinds.summary import task_result, why_unscored
from miron_jax.metrics.choices import ExampleScore
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.results.details import TextDetails
from miron_jax.results.output import BYTE_LOSSES
from miron_jax.results.records import TaskResult
from miron_jax.results.samples import AskedDocument, ExampleResult
from miron_jax.statistics.estimate import TaskEstimates, ratio
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encode_each, encoder, first_tokens, prefix_token
from miron_jax.tokens.windows import byte_ends, spread, windows

SAMPLED = 32  # documents per task tokenized ahead
PIECE_CHARS = 2 * REQUEST_BATCH_TOKENS  # half a request batch, at four characters per token


class Cut(NamedTuple):
    """A document as it is scored."""

    document: Document
    num_windows: int
    ends: np.ndarray | None  # byte at which each token ends; None: not asked for


@dataclass(slots=True)
class TextRow(Row):
    example: ExampleScore  # pyright: ignore[reportIncompatibleVariableOverride] - always spelled
    document: Document
    nll: float  # nats
    num_tokens: int
    num_windows: int
    beyond_trained: bool = False  # a window is longer than the length the model was trained at
    token_nll: np.ndarray | None = None  # float32, if losses of bytes are asked for
    ends: np.ndarray | None = None  # byte at which each token ends, likewise

    @property
    def is_nan(self) -> bool:
        return math.isnan(self.nll)

    @property
    def is_unscored(self) -> bool:
        return self.is_nan


class TextKind(TaskKind[TextRow]):
    scores_spans = True

    def __init__(self, source: Source, setup: Setup) -> None:
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

    def sizes(self, cost: CostModel) -> Sizes:
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
        return Sizes(int(nodes.max()), nodes.astype(np.float64), float(nodes.sum()))

    def pieces(self) -> Iterator[tuple[list[Cut], Requests]]:
        some: list[Document] = []
        num_chars = 0
        for document in self.source.examples:
            some.append(document)
            num_chars += len(document.text)
            if num_chars >= PIECE_CHARS:
                yield self._piece(some)
                some = []
                num_chars = 0
        if some:
            yield self._piece(some)

    def _piece(self, documents: Sequence[Document]) -> tuple[list[Cut], Requests]:
        texts = [document.text for document in documents]
        table = self.setup.table
        each = encode_each(self._encode, texts)
        wants_ends = self.setup.config.save_byte_losses
        cuts = []
        rows = list[tuple[np.ndarray, int]]()
        for document, ids in zip(documents, each, strict=True):
            cut = windows(ids, self.first, self.window, self.stride)
            rows += cut
            ends = (
                byte_ends(self.setup.tokenizer, table, document.text, ids.tolist())
                if wants_ends
                else None
            )
            cuts.append(Cut(document, len(cut), ends))
        start = np.asarray([start for _, start in rows], np.int32)
        flags = np.zeros(len(rows), bool)
        return cuts, Requests(*end_to_end([ids for ids, _ in rows]), start, flags, flags)

    def take(
        self, scores: TaskScores[TextRow], piece: Piece, request_scores: Sequence[Score]
    ) -> None:
        lengths = np.diff(piece.requests.offsets)
        end = 0
        for document, num_windows, ends in piece.examples:
            of_document = slice(end, end + num_windows)
            end = of_document.stop
            logprobs = [score.logprob for score in request_scores[of_document]]
            nll = -sum(float(each.sum(dtype=np.float64)) for each in logprobs)
            num_tokens = sum(map(len, logprobs))
            row = TextRow(
                len(scores.rows),
                _score(document.text, nll, num_tokens),
                document,
                nll,
                num_tokens,
                num_windows,
                beyond_trained=bool((lengths[of_document] - 1 > self.setup.trained_length).any()),
            )
            if ends is not None:
                row.token_nll = -np.concatenate([np.zeros(0, np.float32), *logprobs])
                row.ends = ends
            scores.rows.append(row)

    def result(self, scores: TaskScores[TextRow], facts: Facts) -> TaskResult:
        rows = scores.rows
        sizes = [_num_bytes(row.document.text) for row in rows]
        details = TextDetails(
            tokens=sum(row.num_tokens for row in rows),
            bytes=sum(sizes),
            windows=sum(row.num_windows for row in rows),
            empty_documents=sum(not row.document.text for row in rows),
            beyond_trained_length=sum(row.beyond_trained for row in rows),
        )
        bits = np.asarray([row.nll for row in rows]) / math.log(2)
        units = {
            "bits_per_byte": sizes,
            "bits_per_char": [len(row.document.text) for row in rows],
            "bits_per_token": [row.num_tokens for row in rows],
        }
        metrics = {name: ratio(bits, np.asarray(unit, np.float64)) for name, unit in units.items()}
        return task_result(scores, TaskEstimates(metrics, {}, {}), facts, details)

    def example_results(self, scores: TaskScores[TextRow]) -> Iterator[ExampleResult]:
        for row in scores.rows:
            document = row.document
            reason = ""
            if not all(map(math.isfinite, (row.nll, *row.example.metrics.values()))):
                empty = "the document has no token" if document.text else "the document is empty"
                reason = why_unscored(True) if row.is_nan else empty
            yield ExampleResult(
                id=row.id,
                row=document.row,
                asked=AskedDocument(
                    doc_id=document.doc_id,
                    corpus_id=self.corpus,
                    total_nll=row.nll,
                    scored_tokens=row.num_tokens,
                    num_bytes=_num_bytes(document.text),
                    text_sha256=sha256(document.text.encode()).hexdigest(),
                ),
                metrics=row.example.metrics,
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

        ends = [np.asarray(row.ends) for row in rows]
        token_nll = [np.asarray(row.token_nll) for row in rows]
        documents = [row.document for row in rows]
        sizes = [_num_bytes(document.text) for document in documents]
        columns = {
            "doc_id": [document.doc_id for document in documents],
            "corpus_id": [self.corpus] * len(rows),
            "text_sha256": [sha256(document.text.encode()).hexdigest() for document in documents],
            "text": [document.text for document in documents],
            "num_bytes": sizes,
            "per_byte_loss": [
                spread(*of_row) for of_row in zip(token_nll, ends, sizes, strict=True)
            ],
            "token_byte_starts": [
                np.concatenate([[0], of_row])[: len(of_row)].astype(np.int64) for of_row in ends
            ],
            "token_byte_ends": ends,
            "token_nll": token_nll,
        }
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(columns), sink)
        yield f"{BYTE_LOSSES}/{self.source.task.name}.parquet", sink.getvalue().to_pybytes()


KINDS = {"text": TextKind}


def _score(text: str, nll: float, num_tokens: int) -> ExampleScore:
    bits = nll / math.log(2)
    units = {"byte": _num_bytes(text), "char": len(text), "token": num_tokens}
    metrics = {
        f"bits_per_{name}": bits / unit if unit else math.nan for name, unit in units.items()
    }
    return ExampleScore(None, None, False, not num_tokens, metrics)


def _num_bytes(text: str) -> int:
    return len(text.encode())
