"""Every token of the trainers' own checkpoints: this engine's log-probability beside the trainer's.

    make trainers                                    # or some: make trainers ONLY=flax,levanter

Each trainer lives in an environment of its own (`TRAINERS` below; nothing of a GPU is installed),
where its script `from_NAME.py` saves tiny models in the layouts that the trainer writes, with what
its own forward computes in float32.  A trainer that cannot be installed is skipped, by name.
Prints a table in Markdown, then one line of JSON; ends with status 1 where a model differs by more
than BOUND, is refused against expectation, or read against it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from saved import LENGTH, TOKEN_IDS, VOCAB

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # benchmarks
import common

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.evaluation.session import Session
from miron_jax.files.readers import JsonObject
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests

FLAGS = flags.FLAGS
flags.DEFINE_string("uv", ".venv/bin/uv", "the program that makes environments")
flags.DEFINE_string("folder", ".venv-trainers", "environments, and the trainers' checkpoints")
flags.DEFINE_list("trainers", [], "names of TRAINERS; empty: all")
flags.DEFINE_bool("save", True, "make environments and checkpoints; else those of the last time")
HERE = Path(__file__).resolve().parent
BOUND = 1e-4  # nats a token, float32
INSTALL_SECONDS = 1800


class Trainer(NamedTuple):
    name: str
    python: str  # the version it needs
    packages: tuple[str, ...]
    by_pip: tuple[str, ...] = ()  # what uv would take as a build for a GPU


ORBAX = ("flax==0.12.12", "orbax-checkpoint==0.12.8", "optax")
# MaxText's dependencies stand in extras for accelerators: these are what its trainer imports.
OF_MAXTEXT = """
    absl-py aqtp array-record datasets drjax gcsfs grain[parquet] jax jaxtyping jinja2 jsonlines
    math-verify ml-collections omegaconf pathwaysutils pillow protobuf psutil pydantic qwix
    sentencepiece tensorboardx tiktoken tokamax==0.0.12 transformers>=5.8"""
TRAINERS = (
    Trainer("flax", "3.12", ORBAX),
    Trainer("tunix", "3.12", ("google-tunix==0.1.7", *ORBAX)),
    Trainer("levanter", "3.11", ("marin-levanter==0.2.20.dev202606180959", "gitpython")),
    Trainer("maxtext", "3.12", ("maxtext==0.2.5", *ORBAX, *OF_MAXTEXT.split())),
    Trainer("easydel", "3.11", ("easydel==0.3.0", "pillow"), ("torch==2.13.0",)),
)


class Outcome(NamedTuple):
    """What became of a case."""

    trainer: str
    case: JsonObject  # case.json
    nats: float | None  # the largest difference of a token; None: refused
    refusal: str  # the sentence; empty: read

    @property
    def is_right(self) -> bool:
        if self.nats is None:
            return bool(self.case["refused"])
        return not self.case["refused"] and self.nats <= BOUND

    def record(self) -> JsonObject:
        """Its entry in the line of JSON."""
        named = {name: self.case[name] for name in ("model", "layout")}
        if self.nats is None:
            return {"trainer": self.trainer, **named, "refused": self.refusal}
        return {"trainer": self.trainer, **named, "nats": self.nats}


class CannotSave(Exception):
    """Why a trainer's checkpoints could not be made."""


def python_of(version: str) -> str:
    """An interpreter that starts: one of pyenv may stand on PATH without a version behind it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in candidates:
        if (
            shutil.which(candidate)
            and not subprocess.run(
                [candidate, "-c", ""], capture_output=True, check=False
            ).returncode
        ):
            return candidate
    raise CannotSave(f"no Python {version} is here")


def run(why: str, *command: str | Path) -> None:
    """Raises CannotSave with the last line of an unsuccessful command."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment,
        timeout=INSTALL_SECONDS,
    )  # fmt: skip
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise CannotSave(f"{why}: {lines[-1].strip()}")


def save(trainer: Trainer, folder: Path) -> None:
    """Make the trainer's environment, if it is not there, and its checkpoints.  Raises
    CannotSave."""
    python = folder / "bin" / "python"
    installed = folder / "installed"
    packages = "\n".join(trainer.packages + trainer.by_pip)
    if not installed.is_file() or installed.read_text() != packages:
        base = python_of(trainer.python)
        run("no environment", FLAGS.uv, "venv", "--quiet", "--clear", "--python", base, folder)
        pre_release = ("--prerelease=allow",) if ".dev" in packages else ()
        install = (FLAGS.uv, "pip", "install", "--quiet", "--python", python, *pre_release)
        if trainer.by_pip:
            pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
            run("does not install", *pip, *trainer.by_pip)
        run("does not install", *install, *trainer.packages)
        installed.write_text(packages)
    shutil.rmtree(folder / "cases", ignore_errors=True)
    run("its script fails", python, HERE / f"from_{trainer.name}.py", folder / "cases")


def tokenizer_folder(folder: Path) -> Path:
    """A tokenizer of VOCAB words: the texts are token ids already."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w0").save_pretrained(
        str(folder)
    )
    return folder


def scores(run: Path, options: JsonObject, tokenizer: Path) -> np.ndarray:
    """Float32 [rows, LENGTH - 1], nats.  Raises InputError, SelfCheckFailed."""
    given: dict[str, Any] = {
        name: str(value).replace("RUN", str(run)) for name, value in options.items()
    }
    config = RunConfig(tasks=("none",), dtype="float32", tokenizer=str(tokenizer), **given)
    session = Session(config.model, None, None, config)
    starts = np.ones(len(TOKEN_IDS), np.int32)
    no_flags = np.zeros(len(TOKEN_IDS), bool)
    requests = Requests(*end_to_end([*TOKEN_IDS]), starts, no_flags, no_flags)
    return np.stack([score.logprob for score in session.scores(requests)])


def outcomes(trainer: str, cases: Path, tokenizer: Path) -> Iterator[Outcome]:
    for folder in sorted(path.parent for path in cases.glob("*/case.json")):
        case = json.loads((folder / "case.json").read_text())
        try:
            ours = scores(folder / "run", case["flags"], tokenizer)
        except (miron_jax.InputError, miron_jax.SelfCheckFailed) as error:
            outcome = Outcome(trainer, case, None, str(error).replace(str(folder / "run"), "RUN"))
        else:
            assert ours.shape == (len(TOKEN_IDS), LENGTH - 1)
            theirs = np.load(folder / "logprob.npy")
            difference = np.abs(ours[:, : theirs.shape[1]] - theirs).max()
            outcome = Outcome(trainer, case, float(difference), "")
        text = "refused: " + outcome.refusal if outcome.nats is None else f"{outcome.nats:.1e} nats"
        mark = "" if outcome.is_right else "WRONG  "
        print(
            f"{mark}{trainer} {folder.name} {case['model']}, {case['layout']}: {text}", flush=True
        )
        yield outcome


def table(every: list[Outcome], skipped: dict[str, str]) -> list[str]:
    """A row for each trainer and layout."""
    lines = ["| trainer | layout | models | nats at most |", "|---|---|---|---|"]
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in every:
        groups.setdefault((outcome.trainer, outcome.case["layout"]), []).append(outcome)
    for (trainer, layout), group in groups.items():
        read = [outcome for outcome in group if outcome.nats is not None]
        models = "; ".join(dict.fromkeys(outcome.case["model"] for outcome in read))
        if read:
            worst = max(outcome.nats or 0.0 for outcome in read)
            lines.append(f"| {trainer} | {layout} | {models} | {worst:.1e} |")
    for outcome in every:
        if outcome.nats is None:
            why = outcome.case["refused"] or outcome.refusal
            layout = outcome.case["layout"]
            lines.append(
                f"| {outcome.trainer} | {layout} | {outcome.case['model']} | refused: {why} |"
            )
    return lines + [f"| {name} | skipped | | {why} |" for name, why in skipped.items()]


def main(_: Sequence[str]) -> None:
    root = Path(FLAGS.folder).absolute()
    skipped: dict[str, str] = {}
    every: list[Outcome] = []
    tokenizer = tokenizer_folder(root / "tokenizer")
    for trainer in TRAINERS:
        if FLAGS.trainers and trainer.name not in FLAGS.trainers:
            continue
        try:
            if FLAGS.save:
                save(trainer, root / trainer.name)
        except (CannotSave, subprocess.TimeoutExpired) as error:
            skipped[trainer.name] = str(error)
            print(f"SKIPPED {trainer.name}: {error}", flush=True)
            continue
        every += outcomes(trainer.name, root / trainer.name / "cases", tokenizer)
    print("\n".join(table(every, skipped)))
    document = {
        "benchmark": "trainers",
        "tokens_of_a_case": int(TOKEN_IDS[:, 1:].size),
        "bound": BOUND,
        "versions": {outcome.trainer: outcome.case["versions"] for outcome in every},
        "cases": [outcome.record() for outcome in every],
        "skipped": skipped,
        "environment": common.environment(),
    }
    print(json.dumps(document))
    if not all(outcome.is_right for outcome in every):
        sys.exit(1)


if __name__ == "__main__":
    common.run(main)
