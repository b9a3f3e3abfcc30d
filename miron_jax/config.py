"""What one run does: every flag that says what is scored and how, validated once, written whole into the result.

Arrives: flag values.  Leaves: a frozen `RunConfig`.  It deliberately does not know tasks, models or files: names are
checked where they are looked up.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import Name

Sharding = Literal["pmap", "mesh"]
Dtype = Literal["float32", "bfloat16"]
AXES = ("data", "fsdp", "model")
_STEPS = re.compile(r"latest|\d+(,\d+)*|\d*:\d*(:[1-9]\d*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunConfig:
    model: str  # a Hugging Face folder or hub id, a training run's folder, or package.module:factory
    tasks: tuple[str, ...]  # suites, tasks or globs
    tokenizer: str | None = None  # folder or hub id; the model's own when absent
    data_dir: tuple[tuple[str, str], ...] = ()  # (suite, folder); suite "" stands for every suite
    icl_tasks: str | None = None  # yaml file of the user's own gauntlet, and the one that averages it
    eval_gauntlet: str | None = None
    limit: int | None = None  # examples of each task, after the suite's own shuffle
    output: str = "miron-results"
    dtype: Dtype = "float32"
    sharding: Sharding = "pmap"  # a copy of the weights on every device, or split over a mesh
    mesh: tuple[tuple[str, int], ...] = ()  # (axis, devices along it) of data, fsdp and model
    attention: Name | None = None  # what computes it; None: the device's own
    max_length: int | None = None  # tokens of a request; None: the suite's own rule
    token_budget: int | None = None  # places of a device's batch; None: sized from the device
    checkpoint: str | None = None  # folder with the weights of a factory's model, or of a training run's
    param_map: str | None = None  # JSON file or package.module:function: where a tree of other names holds each leaf
    steps: str | None = None  # of a training run: latest, 1000,2000 or first:last:stride; None: all
    watch: bool = False  # wait for steps that are still to come
    watch_timeout: float = 3600.0  # seconds without a new one that end it
    tensorboard: str | None = None  # folder of event files
    wandb: str | None = None  # project of Weights & Biases
    items_per_category: int = 500  # of each language of a generated benchmark
    human_baseline: Literal["A", "B"] = "B"  # which of MERA's sets of human values gaps are drawn to
    detox_scorer: str | None = None  # package.module:function that judges rewrites; None: J is null
    seed: int = 0  # for draws that no protocol fixes: sampled programs
    resume: bool = True  # continue a folder that holds a run of this configuration
    allow_code_execution: bool = False  # run programs that the model writes, in a sandbox
    allow_unsandboxed_code: bool = False  # or, where there is none, under limits alone
    allow_changed_data: bool = False  # score files whose hash is not the published one; no composite then

    def __post_init__(self) -> None:
        for flag, value, low in (
            ("--limit", self.limit, 1),
            ("--items_per_category", self.items_per_category, 1),
            ("--max_length", self.max_length, 2),
            ("--token_budget", self.token_budget, 1),
        ):
            if value is not None and value < low:
                raise InputError(f"{flag} is {value}, expected {low} or more; leave the flag out for its default")
        if not self.watch_timeout > 0:
            raise InputError(f"--watch_timeout is {self.watch_timeout:g}, expected seconds, more than 0")
        if self.dtype not in get_args(Dtype):
            raise InputError(f"--dtype is {self.dtype!r}, expected one of {', '.join(get_args(Dtype))}")
        if self.sharding not in get_args(Sharding):
            raise InputError(f"--sharding is {self.sharding!r}, expected one of {', '.join(get_args(Sharding))}")
        if self.attention not in (None, *get_args(Name)):
            raise InputError(f"--attention is {self.attention!r}, expected one of {', '.join(get_args(Name))}")
        if bool(self.mesh) != (self.sharding == "mesh"):
            raise InputError(
                "--sharding=mesh wants the mesh's axes, and only it: --sharding=mesh --mesh=data=4,model=2, sizes whose "
                "product is the number of devices"
            )
        if self.steps is not None and not _STEPS.fullmatch(self.steps):
            raise InputError(
                f"--steps is {self.steps!r}, expected latest, a list such as 1000,2000, or first:last:stride such as "
                "1000:20000:1000"
            )
        if not self.model:
            raise InputError(
                "--model is empty: give a Hugging Face folder or a hub id, package.module:factory, or demo"
            )
        if self.eval_gauntlet and not self.icl_tasks:
            raise InputError("--eval_gauntlet averages the tasks of --icl_tasks, which is absent: give both")
        if not self.tasks:
            raise InputError("--tasks is empty: give suites, tasks or globs, such as --tasks=core or core/arc_*")


def parse_mesh(text: str | None) -> tuple[tuple[str, int], ...]:
    """`data=4,model=2` -> pairs."""
    axes: dict[str, int] = {}
    for part in (text or "").split(",") if text else []:
        axis, _, size = part.partition("=")
        if axis not in AXES or axis in axes or not size.isascii() or not size.isdecimal() or not int(size):
            raise InputError(
                f"--mesh={text}: {part!r} is not expected there; name each of {', '.join(AXES)} at most once, with the "
                "devices along it: data=4,model=2"
            )
        axes[axis] = int(size)
    return tuple(axes.items())


def parse_data_dir(text: str | None, suites: Collection[str]) -> tuple[tuple[str, str], ...]:
    """`folder` or `suite=folder,suite=folder` -> pairs; a plain folder serves every suite."""
    pairs: dict[str, str] = {}
    for part in (text or "").split(",") if text else []:
        suite, equals, folder = part.partition("=")
        if not equals or "/" in suite:  # a folder's name may hold an equals sign
            suite, folder = "", part
        if suite and suite not in suites:
            raise InputError(f"--data_dir: {suite!r} in {part!r} is no suite, expected one of {', '.join(suites)}")
        if not folder or suite in pairs:
            found = "is named twice" if folder else "has no folder"
            raise InputError(f"--data_dir={text}: {suite or 'the folder for every suite'} {found}: give each one once")
        pairs[suite] = str(Path(folder).expanduser())
    return tuple(pairs.items())
