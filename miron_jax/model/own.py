"""A user's own Flax model: a record of functions, and the checks that it satisfies the contract.

Arrives: `OwnModel`, from a factory that `--model=package.module:factory` names or from Python.
Leaves: the same record, or an InputError.  It deliberately does not know Linen or NNX: parameters
are a pytree, functions are called under jit.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.model.network import Network
from miron_jax.tokens.tokenizers import Tokenizer

# of the functions of an OwnModel
ARGUMENTS = {"logits": 2, "hidden": 4, "head": 1, "state": 2, "step": 3}


@dataclass(frozen=True, eq=False)
class OwnModel(Network):
    """A user's own causal language model.

    Pass `logits`, or `hidden` and `head`, or `state` and `step`; all are pure functions that jax
    can trace.  Shapes: token_ids and positions int32 [B, T]; logits [B, T, V] and hidden states [B,
    T, D] of any float dtype; row v of the head's weight [V, D] belongs to token v.  Rows are padded
    on the right with token 0.

    `state` and `step` are of one text, without an axis B and without padding.  Beside `hidden` they
    serve generation; otherwise requests are scored by them too, and `logits`, if given, tests them.
    `step` gives hidden states [T, D] if there is a head, else logits [T, V].

    If --checkpoint names the weights, `params` may hold only shapes (jax.eval_shape).
    """

    #: folder, hub id, or a transformers tokenizer; --tokenizer takes precedence
    tokenizer: Tokenizer | str | Path | None = None

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise InputError(
                f"OwnModel: vocab_size is {self.vocab_size}, expected the number of tokens"
            )
        functions = [name for name in ARGUMENTS if getattr(self, name) is not None]
        rest = [name for name in functions if name not in ("state", "step")]
        has_both = len(functions) - len(rest) == 2
        wanted = [["logits"], ["hidden", "head"]]
        if has_both:
            wanted += [[], ["head"]]
        if rest not in wanted or not (has_both or rest == functions):
            raise InputError(
                f"OwnModel: has {', '.join(functions) or 'no function'}, expected logits, or "
                "hidden and head, or state and step (which may come with any of them)"
            )
        for name in functions:
            _check_arguments(getattr(self, name), f"OwnModel: {name}", ARGUMENTS[name])


def is_factory(name: str) -> bool:
    """Whether the name has the form `package.module:factory`."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(map(str.isidentifier, module.split(".")))


def make_own_model(name: str) -> OwnModel:
    """Call the factory that --model names.  Raises InputError if it does not return an OwnModel."""
    module = name.partition(":")[0]
    if module.endswith(".py"):
        raise InputError(
            f"--model={name} names a file, expected its module: "
            f"--model={module.removesuffix('.py')}:function"
        )
    factory = import_from(name, "--model", 0)
    try:
        model = factory()
    except InputError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        in_factory = [frame for frame in frames if frame.filename == str(source_file(name))]
        frame = (in_factory or frames)[-1]
        at = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise InputError(
            f"--model={name} fails in {at} ({type(error).__name__}: {error}): run the function by "
            "itself to see more"
        ) from error
    if not isinstance(model, OwnModel):
        raise InputError(
            f"--model={name}: {name.partition(':')[2]} returns a {type(model).__name__}, expected "
            "a miron_jax.OwnModel; see docs/own_model.md"
        )
    return model


def import_from(name: str, flag: str, num_arguments: int) -> Callable[..., Any]:
    """Import the function `package.module:function`, from the working directory if its module is
    there.

    Raises InputError, which names `flag`, if there is no such function or it cannot be called with
    so many arguments.
    """
    module, _, function = name.partition(":")
    _search_working_directory()
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(
                f"{flag}={name}: {module} imports {error.name}, which is not installed"
            ) from error
        raise InputError(
            f"{flag}={name}: no module {error.name}, neither in {os.getcwd()} nor installed; run "
            "where it lies, or set PYTHONPATH"
        ) from None
    if not callable(getattr(imported, function, None)):
        raise InputError(
            f"{flag}={name}: {imported.__file__} has no function {function}; name one that it has"
        )
    _check_arguments(getattr(imported, function), f"{flag}={name}", num_arguments)
    return getattr(imported, function)


def _search_working_directory() -> None:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _check_arguments(function: Callable[..., object], description: str, count: int) -> None:
    """Raises InputError if the function cannot be called with `count` arguments; a TypeError of the
    call itself could also be raised by the function's body."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin function without a signature
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        called = {0: "without arguments", 1: "with 1 argument"}.get(
            count, f"with {count} arguments"
        )
        raise InputError(
            f"{description} takes {signature}, but it is called {called} ({error}): give the "
            "others default values"
        ) from None


def source_file(name: str) -> Path:
    """The file that defines `package.module:function`; a path that does not exist if the module is
    not found."""
    _search_working_directory()
    try:
        spec = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        spec = None
    return Path((spec and spec.origin) or name)


def code_fingerprint(name: str, model: OwnModel) -> str:
    """Fingerprint of the code of a factory's model: its record, and every module imported from the
    factory's folder or the working directory, except installed packages.  Call it after the
    factory."""
    folders = {
        source_file(name).resolve().parent,
        source_file(name.partition(".")[0]).resolve().parent,
        Path.cwd(),
    }
    sources: set[Path] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and "site-packages" not in file:
            path = Path(file).resolve()
            if path.is_file() and any(map(path.is_relative_to, folders)):
                sources.add(path)
    record = []
    for each in fields(model):
        value = getattr(model, each.name)
        if each.name not in ("params", "tokenizer") and not callable(value):
            record.append(value)
    return blake2b(
        repr([record, [*map(Path.read_bytes, sorted(sources))]]).encode(), digest_size=16
    ).hexdigest()
