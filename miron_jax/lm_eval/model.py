"""`MironLM`: the three requests of lm-eval, with the token rules of its Hugging Face backend (HFLM of 0.4.13).

Arrives: lm-eval's instances.  Leaves: (log-likelihood, greedy) pairs, log-likelihoods of documents, completions.  It
deliberately does not know tasks.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from miron_jax import __version__
from miron_jax.config import SETTINGS, RunConfig, parse_mesh
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.lm_eval.completions import completion_of, text_request
from miron_jax.model.fingerprint import weights_fingerprint
from miron_jax.model.own import OwnModel
from miron_jax.ragged import end_to_end
from miron_jax.session import Session
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encoder

UNLIMITED = 2048  # tokens of a request, where neither model nor tokenizer has a limit, as HFLM has it
Pair = tuple[list[int], list[int]]  # token ids of a context and of its continuation
_OPTIONS = [name for name, declared in SETTINGS.items() if declared.topic in ("model", "devices")]


class MironLM(TemplateLM):
    """A model for lm-eval's `simple_evaluate`, and behind `--model miron_jax` of `miron-lm-eval`.

    `pretrained`: as --model takes it (a Hugging Face folder or hub id, a training run, package.module:factory), or an
    OwnModel.  `tokenizer`: a folder, a hub id or a transformers tokenizer; None: the model's own.  `params`: weights in
    place of those of the folder.  `max_length`: tokens of a window; None: the model's own.  `add_bos_token`: whether texts
    get the tokenizer's special tokens; None: as the tokenizer has it.  `prefix_token_id`: in place of an empty context;
    None: BOS, or EOS.  `seed`: of drawn completions.  `options`: further flags of `miron-jax eval`, such as dtype,
    sharding, mesh, token_budget, steps.

    lm-eval always passes `batch_size`, `max_batch_size` and `device`: they have no meaning here.  All devices are used, and
    to lm-eval they are one.  Raises InputError.
    """

    def __init__(
        self,
        pretrained: OwnModel | str | Path,
        tokenizer: Any = None,
        params: Any = None,
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        seed: int = 0,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        is_own = isinstance(pretrained, OwnModel)
        self.config = _config("OwnModel" if is_own else str(pretrained), options)
        self.session = Session(pretrained, tokenizer, params, self.config)
        self.tokenizer = self.session.architecture.tokenizer
        self.max_gen_toks, self.add_bos_token, self.seed = max_gen_toks, add_bos_token, seed
        self._encode, self._prefix = encoder(self.tokenizer), prefix_token_id
        self.max_length = self._window(max_length)
        if self.prefix_token_id is None:
            raise InputError("the tokenizer has neither BOS nor EOS, which stands before texts: give prefix_token_id")
        self._prefix_text = self.tokenizer.decode(self.prefix_token_id)
        self._keeps_space = self.tokenizer.decode(self._encode([" a"], False)[0]).startswith(" ")

    # Tokens

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        ids = (self._prefix, self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        return next((token for token in ids if token is not None), None)  # pyright: ignore[reportReturnType]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        special = self._takes_special(string) if add_special_tokens is None else add_special_tokens
        return self._encode([string], special)[0]

    def tok_decode(self, tokens: int | Sequence[int], skip_special_tokens: bool = True) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)

    def _takes_special(self, text: str) -> bool:
        """Whether a text gets the tokenizer's special tokens: not if it begins with one."""
        return not text.startswith(self._prefix_text) and self.add_bos_token is not False

    def _ids_of(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Token ids of each distinct text."""
        ids: dict[str, list[int]] = {}
        unique = list(dict.fromkeys(texts))
        for special in (True, False):
            group = [text for text in unique if self._takes_special(text) == special]
            ids |= zip(group, self._encode(group, special), strict=True) if group else ()
        return ids

    def _window(self, max_length: int | None) -> int:
        """Tokens that a request may have beside the last one, which is only predicted.  Raises InputError."""
        config = self.session.architecture.config
        learned, of_tokenizer = config.num_positions, getattr(self.tokenizer, "model_max_length", None)
        trained = config.trained_length or (of_tokenizer if of_tokenizer and of_tokenizer < 10**9 else None)
        window = max_length or learned or trained or UNLIMITED
        if window < 1 or (learned and window > learned):
            most = f" to {learned}, the model's learned positions" if learned else " or more"
            raise InputError(f"max_length is {max_length}, expected 1{most}")
        return window

    # Requests

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        texts = [request.args for request in requests]
        return self._loglikelihood_tokens(list(zip(texts, *self._pairs(texts), strict=True)) if texts else [])

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        ids = self._ids_of(request.args[0] for request in requests)
        windows = [self._windows(ids[request.args[0]]) for request in requests]
        scored = iter(self._loglikelihood_tokens([(None, *pair) for pairs in windows for pair in pairs]))
        sums = [sum((next(scored)[0] for _ in pairs), 0.0) for pairs in windows]
        for request, value in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        ids = self._ids_of(request.args[0] for request in requests)
        seen: Counter[str] = Counter()  # draws so far of equal requests, which repeats ask for
        asked: list[TextRequest | None] = []
        stops: list[list[str]] = []
        for request in requests:
            context, options = request.args
            prompt = ids[context] or [self.prefix_token_id]
            name = repr((context, options))
            text, until = text_request(prompt, options, self.max_length, self.max_gen_toks, self.seed + seen[name])
            if text is not None and not self._keeps_space:
                text = replace(text, stop=tuple(stop for stop in text.stop if not stop.startswith(" ")))
            seen[name] += 1
            asked.append(text)
            stops.append([*until, *([self.tok_decode(self.eot_token_id, False)] if self.eot_token_id else [])])
        drawn = iter(self.session.completions([text for text in asked if text is not None]))
        found = ["" if text is None else completion_of(self.tokenizer, next(drawn)) for text in asked]
        found = [
            postprocess_generated_text(text, until, think_end_token=None)
            for text, until in zip(found, stops, strict=True)
        ]
        for request, text in zip(requests, found, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return found

    def _pairs(self, texts: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        """Token ids of each context and each continuation.

        Spaces at the end of a context belong to its continuation.  The two are tokenized as one text, and what is longer
        than the context's own tokens is the continuation.  Where that is nothing, because one token reaches over the
        boundary, HFLM fails; here the continuation begins at the first token that differs.
        """
        moved = [_spaces_moved(context, continuation) for context, continuation in texts]
        ids = self._ids_of(text for context, rest in moved for text in (context, context + rest) if context)
        plain = list(dict.fromkeys(rest for context, rest in moved if not context))
        alone = dict(zip(plain, self._encode(plain, False) if plain else [], strict=True))
        pairs = [
            _cut(ids[context], ids[context + rest]) if context else self._after_prefix(alone[rest])
            for context, rest in moved
        ]
        return [before for before, _ in pairs], [after for _, after in pairs]

    def _after_prefix(self, ids: list[int]) -> Pair:
        return (ids[:1], ids[1:]) if ids[:1] == [self.prefix_token_id] else ([self.prefix_token_id], ids)

    def _windows(self, ids: list[int]) -> list[Pair]:
        """Disjoint windows of a document, each with one token of context and at most `max_length` predicted."""
        windows = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, context_len=1)
        return [make_disjoint_window(window) for window in windows]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities in nats, and whether greedy decoding writes the continuation; (0, True) of an empty one.

        Requests that are too long lose their first tokens.  Raises InputError for a longer continuation than that.
        """
        longest = max((len(after) for _, _, after in requests), default=0)
        if longest > self.max_length:
            raise InputError(
                f"a continuation has {longest} tokens, but the model takes {self.max_length} (max_length): shorten it"
            )
        scored = [r for r, (_, _, after) in enumerate(requests) if after]
        answers = [(0.0, True)] * len(requests)
        if scored:
            kept = [[*requests[r][1], *requests[r][2]][-(self.max_length + 1) :] for r in scored]
            start = [len(ids) - len(requests[r][2]) for ids, r in zip(kept, scored, strict=True)]
            no_flags = np.zeros(len(kept), bool)
            arrays = end_to_end([np.asarray(ids, np.int32) for ids in kept])
            scores = self.session.scores(Requests(*arrays, np.asarray(start, np.int32), no_flags, no_flags))
            for r, score in zip(scored, scores, strict=True):
                is_nan = bool(np.isnan(score.logprob).any())
                answers[r] = float(score.logprob.sum(dtype=np.float64)), not is_nan and not score.rank.any()
        for (texts, _, _), answer in zip(requests, answers, strict=True):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    # What lm-eval asks beside

    @property
    def tokenizer_name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "tokenizer")).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Raises InputError for a tokenizer without a chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise InputError("the tokenizer has no chat template: leave --apply_chat_template out, or name another")
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Raises InputError for --use_cache with a file that does not bear the weights' fingerprint in its name."""
        database = getattr(cache_hook, "dbdict", None)
        name = str(getattr(database, "filename", ""))
        if database is not None and self.fingerprint not in name:
            raise InputError(
                f"--use_cache={name}: it keeps answers by their texts alone, and would give those of another checkpoint: "
                f"name a file with these weights' fingerprint in its name, {self.fingerprint}"
            )
        super().set_cache_hook(cache_hook)

    @property
    def fingerprint(self) -> str:
        """Of the weights, 16 hex digits."""
        return weights_fingerprint(self.session.model.on_one_device.state)[:16]

    def get_model_info(self) -> dict[str, Any]:
        session, leaves = self.session, jax.tree.leaves(self.session.model.state)
        return {
            "model_num_parameters": sum(leaf.size for leaf in leaves),
            "model_dtype": self.config.dtype,
            "model_sha": self.fingerprint,
            "miron_jax": __version__,
            "attention": session.forward.attention,
            "unique_tokens": session.totals.unique_tokens,
            "plain_tokens": session.totals.plain_tokens,
            "self_check": {"tokens": session.check.tokens, "largest": session.check.largest},
        }


def _spaces_moved(context: str, continuation: str) -> tuple[str, str]:
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _cut(context: list[int], whole: list[int]) -> Pair:
    """`whole` behind the tokens of the context, or from where they differ if it is no longer."""
    start = len(context)
    if len(whole) <= start:
        pairs = zip(context, whole, strict=False)
        start = next((i for i, (a, b) in enumerate(pairs) if a != b), len(whole))
        return whole[:start] or context[:1], whole[start:] if start else whole[1:]
    return context, whole[start:]


def _config(model: str, options: dict[str, Any]) -> RunConfig:
    """The run's configuration.  Raises InputError for an option that there is not."""
    arguments = [*_OPTIONS, "add_bos_token", "max_gen_toks", "prefix_token_id", "pretrained"]
    for name in options:
        if name not in _OPTIONS or name == "model":
            near = difflib.get_close_matches(name, arguments, 1)
            meant = f"{near[0]}?" if near else f"one of {', '.join(arguments)}"
            raise InputError(f"model_args: {name} is no option, expected {meant}")
    if isinstance(options.get("mesh"), str):
        options["mesh"] = parse_mesh(options["mesh"].replace(";", ","))  # lm-eval divides its arguments at commas
    if "steps" in options:
        options["steps"] = str(options["steps"])
    for field in fields(RunConfig):
        if field.type == str | None and options.get(field.name) is not None:
            options[field.name] = str(options[field.name])
    return RunConfig(model=model, tasks=("none",), **options)
