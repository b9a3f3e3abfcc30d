"""Documents: every token is scored, in windows; bits per byte, character and token.

Arrives: a task of documents, a tokenizer; then scores.  Leaves: `TextScores`.  It deliberately does not know devices.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Document
from miron_jax.engine.records import Score
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.ragged import end_to_end
from miron_jax.statistics.estimate import Estimate, TaskEstimates, ratio
from miron_jax.task_kinds.entries import answer_entry, task_entry, why_unscored
from miron_jax.task_kinds.interface import Facts, Piece, Setup, Sizes, Source, TaskKind, TaskScores
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encode_each, encoder, first_tokens, prefix_token
from miron_jax.tokens.windows import byte_ends, spread, windows

BYTE_LOSSES = "byte_losses"  # folder of the output
SAMPLED = 32  # documents per task tokenized ahead
PIECE_CHARS = 2 * REQUEST_BATCH_TOKENS  # half a request batch, at four characters per token


class Cut(NamedTuple):
    """A document as it is scored."""

    document: Document
    num_windows: int
    ends: np.ndarray | None  # byte at which each token ends; None: not asked for


@dataclass(slots=True)
class TextScores(TaskScores):
    source: Source
    documents: list[Document] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)  # nats, of each document
    num_tokens: list[int] = field(default_factory=list)
    examples: list[ExampleScore] = field(default_factory=list)
    num_windows: int = 0
    beyond_trained: int = 0  # documents with windows longer than the length the model was trained at
    token_nll: list[np.ndarray] = field(default_factory=list)  # float32, if losses of bytes are asked for
    ends: list[np.ndarray] = field(default_factory=list)  # likewise

    @property
    def num_skipped(self) -> int:
        return len(self.unanswered)

    @property
    def unanswered(self) -> list[int]:
        return [i for i, nll in enumerate(self.nll) if math.isnan(nll)]

    def finish(self, detox: Scorer | None = None) -> None:
        """Do nothing: `TextKind.take` has scored every document."""

    def estimates(self) -> TaskEstimates:
        bits, tokens = np.asarray(self.nll) / math.log(2), np.asarray(self.num_tokens, np.float64)
        num_bytes, num_chars = (
            np.asarray([size(document.text) for document in self.documents], np.float64) for size in (_num_bytes, len)
        )
        units = {"bits_per_byte": num_bytes, "bits_per_char": num_chars, "bits_per_token": tokens}
        return TaskEstimates({name: ratio(bits, unit) for name, unit in units.items()}, {}, {})

    def for_composites(self) -> Mapping[str, Estimate]:
        return {"bits_per_byte": self.estimates().metrics["bits_per_byte"]}

    def entry(self, facts: Facts) -> JsonObject:
        of_kind = {
            "tokens": sum(self.num_tokens),
            "bytes": sum(_num_bytes(document.text) for document in self.documents),
            "windows": self.num_windows,
            "empty_documents": sum(not document.text for document in self.documents),
            "beyond_trained_length": self.beyond_trained,
        }
        return task_entry(self, self.estimates(), facts, of_kind)

    def samples(self) -> Iterator[JsonObject]:
        corpus = self.source.task.name.partition("/")[2]
        columns = (self.documents, self.nll, self.num_tokens, self.examples)
        for i, (document, nll, num_tokens, example) in enumerate(zip(*columns, strict=True)):
            sample = {
                "id": i,
                "row": document.row,
                "doc_id": document.doc_id,
                "corpus_id": corpus,
                "total_nll": nll,
                "scored_tokens": num_tokens,
                "num_bytes": _num_bytes(document.text),
                "text_sha256": sha256(document.text.encode()).hexdigest(),
                **answer_entry(None, None),
                "metrics": dict(example.metrics),
            }
            if not all(map(math.isfinite, (nll, *example.metrics.values()))):
                sample["reason"] = why_unscored(True) if math.isnan(nll) else "the document is empty"
            yield sample

    def further_files(self) -> Iterator[tuple[str, bytes]]:
        """Losses of bytes, if asked for: a row a document, with a loss (nats) for each byte of its text."""
        if not self.ends:
            return
        import pyarrow
        from pyarrow import parquet

        corpus = self.source.task.name.partition("/")[2]
        columns = {
            "doc_id": [document.doc_id for document in self.documents],
            "corpus_id": [corpus] * len(self.documents),
            "text_sha256": [sha256(document.text.encode()).hexdigest() for document in self.documents],
            "text": [document.text for document in self.documents],
            "num_bytes": [_num_bytes(document.text) for document in self.documents],
            "per_byte_loss": [spread(nll, ends) for nll, ends in zip(self.token_nll, self.ends, strict=True)],
            "token_byte_starts": [np.concatenate([[0], ends])[: len(ends)].astype(np.int64) for ends in self.ends],
            "token_byte_ends": self.ends,
            "token_nll": self.token_nll,
        }
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(columns), sink)
        yield f"{BYTE_LOSSES}/{self.source.task.name}.parquet", sink.getvalue().to_pybytes()


class TextKind(TaskKind[TextScores]):
    scores_spans = True

    def __init__(self, source: Source, setup: Setup) -> None:
        super().__init__(source, setup)
        assert self.max_length is not None
        self.window, profile = self.max_length, source.task.profile
        self.stride = profile.stride or self.window
        if self.stride > self.window:
            raise InputError(
                f"--stride is {self.stride}, but a window of {source.task.name} has {self.window} tokens: lower it, or "
                "raise --max_length"
            )
        first = first_tokens(profile.bos, setup.tokenizer) or (prefix_token(setup.tokenizer),)
        self.first = np.asarray(first, np.int32)
        if len(first) > self.window:
            raise InputError(
                f"--max_length is {self.window}, but the tokenizer puts {len(first)} tokens before every text: raise it"
            )
        self._encode = encoder(setup.tokenizer)

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
        further = np.maximum(0, -(-(num_tokens - self.window) // self.stride))  # windows after the first
        nodes = np.concatenate([np.minimum(num_tokens, self.window), np.full(further.sum(), self.window)])
        return Sizes(int(nodes.max()), nodes.astype(np.float64), float(nodes.sum()))

    def pieces(self) -> Iterator[tuple[list[Cut], Requests]]:
        some: list[Document] = []
        num_chars = 0
        for document in self.source.examples:
            some.append(document)
            num_chars += len(document.text)
            if num_chars >= PIECE_CHARS:
                yield self._piece(some)
                some, num_chars = [], 0
        if some:
            yield self._piece(some)

    def _piece(self, documents: Sequence[Document]) -> tuple[list[Cut], Requests]:
        texts, table = [document.text for document in documents], self.setup.table
        each, wants_ends = encode_each(self._encode, texts), self.setup.config.save_byte_losses
        cuts, rows = [], list[tuple[np.ndarray, int]]()
        for document, ids in zip(documents, each, strict=True):
            cut = windows(ids, self.first, self.window, self.stride)
            rows += cut
            ends = byte_ends(self.setup.tokenizer, table, document.text, ids.tolist()) if wants_ends else None
            cuts.append(Cut(document, len(cut), ends))
        start, flags = np.asarray([start for _, start in rows], np.int32), np.zeros(len(rows), bool)
        return cuts, Requests(*end_to_end([ids for ids, _ in rows]), start, flags, flags)

    def begin(self) -> TextScores:
        return TextScores(self.source)

    def take(self, scores: TextScores, piece: Piece, request_scores: Sequence[Score]) -> None:
        at, lengths = 0, np.diff(piece.requests.offsets)
        for document, num_windows, ends in piece.examples:
            of_document = slice(at, at := at + num_windows)
            logprobs = [score.logprob for score in request_scores[of_document]]
            nll = -sum(float(each.sum(dtype=np.float64)) for each in logprobs)
            num_tokens = sum(map(len, logprobs))
            scores.documents.append(document)
            scores.nll.append(nll)
            scores.num_tokens.append(num_tokens)
            scores.num_windows += num_windows
            scores.beyond_trained += bool((lengths[of_document] - 1 > self.setup.trained_length).any())
            scores.examples.append(_score(document.text, nll, num_tokens))
            if ends is not None:
                scores.token_nll.append(-np.concatenate([np.zeros(0, np.float32), *logprobs]))
                scores.ends.append(ends)


KINDS = {"text": TextKind}


def _score(text: str, nll: float, num_tokens: int) -> ExampleScore:
    bits, units = nll / math.log(2), {"byte": _num_bytes(text), "char": len(text), "token": num_tokens}
    metrics = {f"bits_per_{name}": bits / unit if unit else math.nan for name, unit in units.items()}
    return ExampleScore(None, None, False, not num_tokens, metrics)


def _num_bytes(text: str) -> int:
    return len(text.encode())
