"""`MironLM`: the three requests of lm-eval, with the token rules of its Hugging Face backend (HFLM
of 0.4.13).

Arrives: lm-eval's instances.  Leaves: (log-likelihood, greedy) pairs, log-likelihoods of documents,
completions.  It deliberately does not know tasks.
"""

import atexit
import json
import logging
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jinja2
import numpy as np
from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.models.utils import postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from miron_jax import __version__
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.errors import InputError
from miron_jax.evaluation.session import Session
from miron_jax.files.readers import Json, JsonObject
from miron_jax.files.store import Store
from miron_jax.lm_eval.arguments import hosts_of, run_config, truth, whole_number_or
from miron_jax.lm_eval.completions import ignored_settings, text_request
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.model.own import OwnModel
from miron_jax.runtime.devices import Tree
from miron_jax.tokens.detokenize import WITHOUT_TEXT, num_without_text
from miron_jax.tokens.pairs import TextTokens, context_kept
from miron_jax.tokens.pieces import piece_encoder
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests
from miron_jax.tokens.spans import AFTER_CONTEXT_OR_DIFFERENCE
from miron_jax.tokens.tokenizers import Tokenizer, encoder, unlike_transformers

# tokens of a request, where neither model nor tokenizer has a limit, as HFLM has it
UNLIMITED = 2048
Instance = Any  # of lm-eval: the texts in its `args` have no type
TokenPair = tuple[np.ndarray, np.ndarray]  # token ids of a context and of its continuation, int32

log = logging.getLogger(__name__)
# nats a word, whose exp is the largest float; lm-eval's metrics have no guard
MOST_NATS = math.log(sys.float_info.max)


class MironLM(TemplateLM):
    """A model for lm-eval's `simple_evaluate`, and behind `--model miron_jax` of `miron-lm-eval`.

    `pretrained`: as --model takes it (a Hugging Face folder or hub id, a training run,
    package.module:factory), or an OwnModel.  `tokenizer`: a folder, a hub id or a transformers
    tokenizer; None: the model's own.  `params`: weights in place of those of the folder.
    `max_length`: tokens of a window; None: the model's own.  `add_bos_token`: whether texts get BOS
    (False: no special token at all); None: as the tokenizer has it.  `prefix_token_id`: in place of
    an empty context; None: BOS, or EOS.  `seed`: of drawn completions.  `options`: further flags of
    `miron-jax eval`, such as dtype, sharding, mesh, token_budget, steps.

    `journal`: a folder or URL where finished scores and completions are kept as they come; the same
    requests of the same weights are read from there.  Several processes share the work with
    `distributed=true`, or `coordinator`, `num_processes` and `process_id` as `miron-jax eval` has
    them, and a `journal` that all of them see: each runs the same command; in all but the first one
    the constructor works for the first until that ends, and then ends the process.

    lm-eval passes `batch_size`, `max_batch_size`, `device` and `trust_remote_code` whatever the
    model is: they have no meaning here.  All devices are used, and to lm-eval they are one.  Raises
    InputError.
    """

    def __init__(
        self,
        pretrained: OwnModel | str | Path,
        tokenizer: Tokenizer | str | None = None,
        params: Tree = None,
        *,
        max_length: int | None = None,
        max_gen_toks: int | None = None,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        seed: int | None = None,
        journal: str | Path | None = None,
        batch_size: object = None,
        max_batch_size: object = None,
        device: object = None,
        trust_remote_code: object = None,
        **options: Json,
    ) -> None:
        super().__init__()
        hosts = hosts_of(options, has_journal=journal is not None)
        name = "OwnModel" if isinstance(pretrained, OwnModel) else str(pretrained)
        self.config = run_config(name, options)
        self.max_gen_toks = whole_number_or("max_gen_toks", max_gen_toks, 0, 256)
        self.seed = whole_number_or("seed", seed, 0, 0)
        self.add_bos_token = add_bos_token
        if add_bos_token is not None:
            self.add_bos_token = truth("add_bos_token", add_bos_token)
        self._prefix = whole_number_or("prefix_token_id", prefix_token_id, 0, None)
        max_length = whole_number_or("max_length", max_length, 1, None)
        store = None if journal is None else Store(str(journal))
        self.session = Session(pretrained, tokenizer, params, self.config, store=store, hosts=hosts)
        self.tokenizer = self.session.architecture.tokenizer
        generator = self.session.generator
        if self.eot_token_id is not None:
            generator.eos_ids = generator.eos_ids | {self.eot_token_id}
        if not hosts.is_first:
            self.session.serve()
            self.session.close()
            sys.exit(0)
        if store is not None:
            atexit.register(self.session.close)
        if line := unlike_transformers(self.tokenizer):
            log.warning(line)
        self.max_length = self._window(max_length)
        if self.prefix_token_id is None:
            raise InputError(
                "the tokenizer has neither BOS nor EOS, which stands before texts: give "
                "prefix_token_id"
            )
        self._texts = TextTokens(
            encode=piece_encoder(self.tokenizer),
            first=self._missing_bos(),
            special=self.add_bos_token is not False,
            bos=self.tokenizer.decode(self.prefix_token_id),
            prefix=self.prefix_token_id,
        )
        self._keeps_space = self.tokenizer.decode(self._texts.encode([" a"], False)[0]).startswith(
            " "
        )

    # Tokens

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        ids = (self._prefix, self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        return next((token for token in ids if token is not None), None)  # pyright: ignore[reportReturnType]

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        left_truncate_len: int | None = None,
        **kwargs: object,
    ) -> list[int]:
        texts = self._texts
        if add_special_tokens is not None:
            texts = replace(texts, bos=None, special=True)
        ids = (texts.alone if add_special_tokens is False else texts.of)([string])[string].tolist()
        return ids[-left_truncate_len:] if left_truncate_len else ids

    def tok_decode(self, tokens: int | Sequence[int], skip_special_tokens: bool = True) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)

    def _missing_bos(self) -> tuple[int, ...]:
        """BOS, if texts are to begin with it and the tokenizer does not put it there.  Raises
        InputError without one."""
        if not self.add_bos_token:
            return ()
        bos = self.tokenizer.bos_token_id
        if bos is None:
            raise InputError("add_bos_token=true, but the tokenizer has no BOS: leave it out")
        if encoder(self.tokenizer)(["a"], True)[0][:1] == [bos]:
            return ()
        return (bos,)

    def _window(self, max_length: int | None) -> int:
        """Tokens that a request may have beside the last one, which is only predicted.  Raises
        InputError."""
        config = self.session.architecture.config
        learned = config.num_positions
        of_tokenizer = getattr(self.tokenizer, "model_max_length", None)
        trained = config.trained_length or (
            of_tokenizer if of_tokenizer and of_tokenizer < 10**9 else None
        )
        if learned and max_length is not None and max_length > learned:
            raise InputError(
                f"max_length is {max_length}, expected 1 to {learned}, the model's learned "
                "positions"
            )
        return max_length or learned or trained or UNLIMITED

    # Requests

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        texts = [request.args for request in requests]
        scored = [(key, *pair) for key, pair in zip(texts, self._pairs(texts), strict=True)]
        return self._loglikelihood_tokens(scored)

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        ids = self._texts.of(request.args[0] for request in requests)
        windows = [self._windows(ids[request.args[0]]) for request in requests]
        scored = iter(
            self._loglikelihood_tokens([(None, *pair) for pairs in windows for pair in pairs])
        )
        sums: list[float] = []
        nats: defaultdict[str | None, float] = defaultdict(float)
        words: Counter[str | None] = Counter()
        for request, pairs in zip(requests, windows, strict=True):
            sums.append(sum((logprob for logprob, _ in islice(scored, len(pairs))), 0.0))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, sums[-1])
            nats[request.task_name] -= sums[-1]
            words[request.task_name] += len(re.split(r"\s+", request.args[0]))
        for task, total in nats.items():
            if MOST_NATS < total / words[task] < math.inf:
                log.warning(
                    f"{task}: exp({total / words[task]:.0f}), its word_perplexity, is no float: "
                    "lm_eval.simple_evaluate ends in OverflowError, miron-lm-eval keeps the other "
                    "metrics; an untrained model gives such numbers"
                )
        return sums

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        for line in ignored_settings(self.session.files.config_folder) if requests else ():
            log.warning(line)
        of_prompts = replace(self._texts, bos=self.tokenizer.bos_token)
        ids = of_prompts.of(request.args[0] for request in requests)
        of_eos = [] if self.eot_token_id is None else [self.tok_decode(self.eot_token_id, False)]
        seen: Counter[bytes] = Counter()  # draws so far of equal requests, which repeats ask for
        asked: list[TextRequest | None] = []
        stops: list[list[str]] = []
        for request in requests:
            context, options = request.args
            prompt = ids[context].tolist() or [self.prefix_token_id]
            name = blake2b(repr((context, options)).encode(), digest_size=16).digest()
            text, until = text_request(
                prompt, options, self.max_length, self.max_gen_toks, self.seed + seen[name]
            )
            seen[name] += 1
            asked.append(text if text is None else self._with_stops(text, until))
            stops.append([*until, *of_eos])
        drawn = iter(self.session.completions([*filter(None, asked)]))
        texts: list[str] = []
        broken = 0
        without_text = 0
        for request, text, until in zip(requests, asked, stops, strict=True):
            completion = Generated("", (), "length") if text is None else next(drawn)
            decoded = self.tok_decode(list(completion.token_ids))
            without_text += num_without_text(self.tokenizer, completion.token_ids)
            texts.append(postprocess_generated_text(decoded, until, think_end_token=None))
            if completion.ended == "nan":
                broken += 1
            else:
                self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        if broken:
            log.warning(
                "%d of %d completions mean nothing: the model answers NaN", broken, len(texts)
            )
        if without_text:
            log.warning("%d %s", without_text, WITHOUT_TEXT)
        return texts

    def _with_stops(self, request: TextRequest, until: Sequence[str]) -> TextRequest:
        """The request with the stop strings that the engine may look for.

        HFLM decodes a completion without its prompt.  Where that loses a first space, a stop string
        that begins with one may stand in the engine's text alone: it is looked for afterwards.
        """
        known = (stop for stop in until if stop and (self._keeps_space or not stop.startswith(" ")))
        return TextRequest(
            request.token_ids, request.max_new_tokens, tuple(known), request.sampling
        )

    def _pairs(self, texts: Sequence[tuple[str, str]]) -> list[TokenPair]:
        """Token ids of each context and each continuation.

        Where none is left for the continuation, HFLM fails; here it begins at the first token that
        differs.
        """
        pairs = self._texts.pairs([((context,), behind) for context, behind in texts])
        whole = end_to_end([*map(context_kept, pairs)])
        before = end_to_end([pair.context for pair in pairs])
        starts = AFTER_CONTEXT_OR_DIFFERENCE.call(whole, before, np.ones(len(pairs), np.int64))
        each = np.split(whole.values, whole.offsets[1:-1]) if pairs else []
        return [(ids[:start], ids[start:]) for ids, start in zip(each, starts, strict=True)]

    def _windows(self, ids: np.ndarray) -> list[TokenPair]:
        """Disjoint windows of a document, each with one token of context and at most `max_length`
        predicted."""
        windows = get_rolling_token_windows(
            ids.tolist(), self.prefix_token_id, self.max_length, context_len=1
        )
        pairs = map(make_disjoint_window, windows)
        return [
            (np.asarray(before, np.int32), np.asarray(after, np.int32)) for before, after in pairs
        ]

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str] | None, np.ndarray, np.ndarray]],
        **kwargs: object,
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities in nats, and whether greedy decoding writes the continuation;
        (0, True) of an empty one.

        Requests that are too long lose their first tokens.  Raises InputError for a longer
        continuation than that.
        """
        longest = max((len(after) for _, _, after in requests), default=0)
        if longest > self.max_length:
            raise InputError(
                f"a continuation has {longest} tokens, but the model takes {self.max_length} "
                "(max_length): shorten it"
            )
        scored = [r for r, (_, _, after) in enumerate(requests) if len(after)]
        answers = [(0.0, True)] * len(requests)
        if scored:
            ids: list[np.ndarray] = []
            start: list[int] = []
            for r in scored:
                kept = np.concatenate(requests[r][1:])[-(self.max_length + 1) :]
                ids.append(kept.astype(np.int32))
                start.append(len(kept) - len(requests[r][2]))
            no_flags = np.zeros(len(ids), bool)
            scores = self.session.scores(
                Requests(*end_to_end(ids), np.asarray(start, np.int32), no_flags, no_flags)
            )
            for r, score in zip(scored, scores, strict=True):
                is_nan = bool(np.isnan(score.logprob).any())
                answers[r] = (
                    float(score.logprob.sum(dtype=np.float64)),
                    not is_nan and not score.rank.any(),
                )
        for (texts, _, _), answer in zip(requests, answers, strict=True):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    # What lm-eval asks beside

    @property
    def tokenizer_name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "tokenizer")).replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Raises InputError for a tokenizer without a chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise InputError(
                "the tokenizer has no chat template: leave --apply_chat_template out, or name "
                "another"
            )

        def applied(history: list[dict[str, str]]) -> str:
            return self.tokenizer.apply_chat_template(
                history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )

        try:
            return applied(chat_history)
        except jinja2.exceptions.TemplateError:
            log.warning(
                "the chat template refuses these messages: tried again without those of the system"
            )
            return applied([message for message in chat_history if message["role"] != "system"])

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Raises InputError for --use_cache with a file that does not bear the model's fingerprint
        in its name."""
        database = getattr(cache_hook, "dbdict", None)
        name = str(getattr(database, "filename", ""))
        if database is not None and self.fingerprint not in name:
            raise InputError(
                f"--use_cache={name}: it keeps answers by their texts alone, and would give those "
                "of another checkpoint: name a file with this model's fingerprint in its name, "
                f"{self.fingerprint}"
            )
        super().set_cache_hook(cache_hook)

    @property
    def fingerprint(self) -> str:
        """Of weights, tokenizer and all that an answer depends on, 16 hex digits."""
        content = [
            self.session.weights, tokenizer_fingerprint(self.tokenizer),
            self.config.dtype, self.max_length, self.max_gen_toks, self.add_bos_token,
            self.prefix_token_id, self.seed,
        ]  # fmt: skip
        return blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    def get_model_info(self) -> JsonObject:
        session = self.session
        return {
            "model_num_parameters": sum(leaf.size for leaf in jax.tree.leaves(session.model.state)),
            "model_dtype": self.config.dtype,
            "model_sha": self.fingerprint,
            "miron_jax": __version__,
            "attention": session.forward.attention,
            "unique_tokens": session.totals.unique_tokens,
            "plain_tokens": session.totals.plain_tokens,
            "self_check": {"tokens": session.check.tokens, "largest": session.check.largest},
        }
