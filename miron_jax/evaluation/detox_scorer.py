"""--detox_scorer -> a function that scores rewrites: the user's, or MERA's classifiers in JAX.

Arrives: the flag's text.  Leaves: a `Scorer`.  It deliberately does not know tasks or metrics.

MERA's code asks one classifier whether the rewrite is neutral, one whether it says what the
original says, one whether it is fluent; each probability goes through an isotonic calibration.
MERA v1.2 and the site's code calibrate all three by the first table of s-nlp's file, which this
package has; the harness of v1 and the human baselines read three tables, which the file that the
flag names holds.  (MERA-Evaluation/MERA, lm_eval/tasks/rudetox; s-nlp/russe_detox_2022.)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.metrics.calibration import Calibration, first_calibration, read_calibrations
from miron_jax.metrics.detox import Scorer
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint, weights_fingerprint
from miron_jax.model.checkpoints.hf_reader import from_hub
from miron_jax.model.encoder import (
    PICKLED,
    Encoder,
    check_encoder,
    label_logits,
    load_encoder,
    read_encoder,
)
from miron_jax.model.own import import_from, is_factory
from miron_jax.runtime.devices import Tree
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

FLAG = "--detox_scorer"
PUBLISHED = "published"
MOST_TOKENS = 512  # of a text or a pair, which is cut there
BATCH_TOKENS = 4096  # slots of a batch
SHORTEST = 32  # slots of a row; longer ones are twice, four times, ... as long


class Role(NamedTuple):
    """What one of the three classifiers is asked."""

    name: str
    repository: str
    label: int | str  # whose probability is the score
    misnamed: tuple[str, ...]  # names that this label has only in another classifier


ROLES = (
    Role("style", "IlyaGusev/rubertconv_toxic_clf", 0, ("toxic", "toxicity", "label_1")),
    Role("meaning", "s-nlp/rubert-base-cased-conversational-paraphrase-v1", "paraphrase", ()),
    Role(
        "fluency",
        "s-nlp/ruRoberta-large-RuCoLa-v1",
        1,
        ("unacceptable", "not_acceptable", "not acceptable", "corrupted", "label_0", "toxic"),
    ),
)


def detox_scorer(name: str) -> Scorer:
    """What --detox_scorer names: `package.module:function`, `published`, or three classifiers
    STYLE,MEANING,FLUENCY, each a folder or a hub id; behind these ,CALIBRATIONS.pkl.

    Everything but the weights is read here.  Raises InputError.
    """
    if is_factory(name):
        return import_from(name, FLAG, 2)
    names = name.split(",")
    calibrations = [first_calibration()] * len(ROLES)
    if names[-1].endswith(".pkl"):
        calibrations = read_calibrations(local_path(names.pop()), len(ROLES))
    if names == [PUBLISHED]:
        names = [role.repository for role in ROLES]
    if len(names) != len(ROLES) or not all(names):
        raise InputError(
            f"{FLAG}={name}: expected package.module:function, or {PUBLISHED}, or three "
            "classifiers STYLE,MEANING,FLUENCY (folders or hub ids); behind these two may stand "
            ",CALIBRATIONS.pkl"
        )
    of_role = {}
    for role, folder, calibration in zip(ROLES, names, calibrations, strict=True):
        of_role[role.name] = (_find(role, folder), calibration)
    return Classifiers(of_role)


@dataclass(frozen=True, slots=True)
class Classifiers:
    """A `Scorer`: MERA's three classifiers."""

    of_role: Mapping[str, tuple["_Classifier", Calibration]]

    def __call__(
        self, originals: Sequence[str], rewrites: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not rewrites:
            return np.empty(0), np.empty(0), np.empty(0)
        (style, neutral), (meaning, same), (fluency, fluent) = self.of_role.values()
        return (
            neutral(style.probabilities(rewrites)),
            same(meaning.probabilities(originals, rewrites)),
            fluent(fluency.probabilities(rewrites)),
        )

    def fingerprints(self) -> dict[str, str]:
        """Of the classifiers that have scored, and of the calibrations; {} if none has."""
        digest = blake2b(digest_size=16)
        for _, table in self.of_role.values():
            digest.update(np.asarray(table).tobytes())
        items = self.of_role.items()
        every = {name: each.fingerprint for name, (each, _) in items if each.fingerprint}
        return every and {**every, "calibrations": digest.hexdigest()}


@dataclass(slots=True)
class _Classifier:
    folder: Path
    encoder: Encoder
    tokenizer: Tokenizer
    label: int
    fingerprint: str = ""  # of all that moves its numbers; "": it has scored nothing

    def probabilities(self, *texts: Sequence[str]) -> np.ndarray:
        """The label's probability for each text or pair of texts, float64 [N].

        The weights are read for this call and freed after it: three classifiers beside a language
        model may not fit.
        """
        tokens = self.tokenizer(
            *map(list, texts),
            truncation=True,
            max_length=MOST_TOKENS,
            # the general class of transformers 5 leaves them out, which BERT's own gives
            return_token_type_ids=self.encoder.family == "bert",
        )
        rows = tokens["input_ids"]
        kinds = tokens.get("token_type_ids")
        largest = max(map(max, rows))
        if largest >= self.encoder.vocab_size:
            raise InputError(
                f"{FLAG}: the tokenizer of {self.folder} gives token {largest}, but the "
                f"classifier's vocabulary has {self.encoder.vocab_size}: put its tokenizer there"
            )
        device = jax.local_devices()[0]
        weights = load_encoder(self.folder, self.encoder, device)
        self.fingerprint = self._fingerprint(weights)
        logits_NC = np.empty((len(rows), len(self.encoder.labels)), np.float32)
        for length, indices in _batches([*map(len, rows)]):
            num_rows = 1 << (len(indices) - 1).bit_length()
            token_ids_BT = np.full((num_rows, length), self.encoder.pad_id, np.int32)
            type_ids_BT = np.zeros((num_rows, length), np.int32)
            num_tokens_B = np.ones(num_rows, np.int32)
            for row, index in enumerate(indices):
                num_tokens_B[row] = len(rows[index])
                token_ids_BT[row, : len(rows[index])] = rows[index]
                if kinds is not None:
                    type_ids_BT[row, : len(rows[index])] = kinds[index]
            batch = jax.device_put((token_ids_BT, type_ids_BT, num_tokens_B), device)
            logits_NC[indices] = label_logits(self.encoder, weights, *batch)[: len(indices)]
        powers_NC = np.exp(logits_NC - logits_NC.max(1, keepdims=True))
        return (powers_NC[:, self.label] / powers_NC.sum(1)).astype(np.float64)

    def _fingerprint(self, weights: Tree) -> str:
        every = (
            weights_fingerprint(weights),
            tokenizer_fingerprint(self.tokenizer),
            self.encoder,
            self.label,
        )
        return blake2b(repr(every).encode(), digest_size=16).hexdigest()


def _batches(lengths: list[int]) -> Iterator[tuple[int, list[int]]]:
    """The slots of a row and the texts of each batch, which all together have few shapes: full
    batches, and at each length a last one that is padded to a power of two."""
    slots = SHORTEST
    left = sorted(range(len(lengths)), key=lengths.__getitem__)
    while left:
        fitting = [index for index in left if lengths[index] <= slots]
        left = left[len(fitting) :]
        most = max(1, BATCH_TOKENS // slots)
        for start in range(0, len(fitting), most):
            yield slots, fitting[start : start + most]
        slots *= 2


def _find(role: Role, name: str) -> _Classifier:
    """The classifier that the flag names for this role.  Raises InputError."""
    folder = local_path(name)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{FLAG}={name}: is a file, expected the folder of a classifier")
    if not folder.is_dir():
        folder = from_hub(name, FLAG, True, otherwise=PICKLED)
    encoder = read_encoder(folder)
    with ExitStack() as files:
        check_encoder(folder, encoder, files)
    if encoder.longest < MOST_TOKENS:
        raise InputError(
            f"{folder}: has room for {encoder.longest} tokens, expected {MOST_TOKENS}, to which "
            f"MERA cuts texts: name another classifier for {role.name}"
        )
    label = _label(role, folder, encoder.labels)
    tokenizer = load_tokenizer(str(folder.absolute()), FLAG)
    if 2 * len(tokenizer) < encoder.vocab_size:  # without files transformers makes special tokens
        raise InputError(
            f"{folder}: its tokenizer has {len(tokenizer)} tokens, expected about "
            f"{encoder.vocab_size}, the classifier's vocab_size: put the classifier's "
            "tokenizer.json there, or vocab.txt, or vocab.json and merges.txt"
        )
    if not tokenizer("")["input_ids"]:
        raise InputError(
            f"{folder}: its tokenizer puts no token before a text, whose place a classifier reads: "
            "put the classifier's tokenizer.json there"
        )
    return _Classifier(folder, encoder, tokenizer, label)


def _label(role: Role, folder: Path, labels: tuple[str, ...]) -> int:
    """The id of the role's label.  Raises InputError if the classifier's labels are others."""
    if isinstance(role.label, str):
        label = {name: id for id, name in enumerate(labels)}.get(role.label)
    else:
        label = role.label
    if label is None or not label < len(labels) > 1 or labels[label].lower() in role.misnamed:
        raise InputError(
            f"{folder / 'config.json'}: its labels are {', '.join(labels)}, but MERA takes the "
            f"probability of label {role.label!r} for {role.name}: name a classifier with the "
            f"labels of {role.repository}, or score with a function of your own"
        )
    return label
