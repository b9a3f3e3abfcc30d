"""What one run does: every setting that says what is scored and how, declared once and written whole into the result.

Arrives: flag values.  Leaves: a frozen, checked `RunConfig`; a `Setting` a field, which is also its flag's declaration.  It
deliberately does not know tasks, models or files: names are checked where they are looked up.
"""

import re
from collections.abc import Collection
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, get_args

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.kernels.forest_attention import Name

Sharding = Literal["pmap", "mesh"]
Dtype = Literal["float32", "bfloat16"]
HumanBaseline = Literal["A", "B"]
Kind = Literal["string", "integer", "float", "bool", "enum", "list"]
Topic = Literal["model", "tasks", "output", "devices", "hosts", "export", "annotations", "submission"]
AXES = ("data", "fsdp", "model")
_STEPS = re.compile(r"latest|\d+(,\d+)*|\d*:\d*(:[1-9]\d*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one flag; its name is that of the field or the key that holds it."""

    default: Any  # of the flag; None: absent
    topic: Topic  # heading of --help that it stands below
    help: str
    kind: Kind = "string"
    choices: tuple[str, ...] = ()  # of an enum
    low: int | None = None  # the smallest value
    over_seconds: float | None = None  # seconds that are more than these
    identity: bool = True  # another value makes another run
    place: bool = False  # names files: it may differ between hosts, what is in them is compared where it is read


def setting(
    default: Any, topic: Topic, help: str, *, flag_default: Any = MISSING, choices: Any = None, **more: Any
) -> Any:
    """A field of RunConfig with its declaration; MISSING as the default: the record wants a value.

    `flag_default`: what the flag is where nobody gives it, if that is not the record's default.  `choices`: a Literal.
    """
    if choices is not None:
        more |= {"kind": "enum", "choices": get_args(choices)}
    own = Setting(default if flag_default is MISSING else flag_default, topic, help, **more)
    metadata = {"setting": own}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run, as results.json holds it under `config`."""

    model: str = setting(
        MISSING,
        "model",
        "Hugging Face folder or hub id, or a training run's folder with one checkpoint a step; demo: the small model that "
        "comes with the package; package.module:factory: a Flax model of your own.",
        flag_default="demo",
        place=True,
    )
    tasks: tuple[str, ...] = setting(
        MISSING,
        "tasks",
        "Suites, tasks or globs: core, core/arc_easy, core/arc_*; absent: core, miron-gen for the demo model, own-gauntlet "
        "with --icl_tasks.",
        flag_default=None,
        kind="list",
    )
    tokenizer: str | None = setting(
        None, "model", "Tokenizer folder or hub id; the model's own when absent.", place=True
    )
    data_dir: tuple[tuple[str, str], ...] = setting(  # (suite, folder); suite "" stands for every suite
        (),
        "tasks",
        "Folder with the data files, or suite=folder pairs; fetched and cached when absent.",
        flag_default=None,
        place=True,
    )
    icl_tasks: str | None = setting(
        None, "tasks", "A gauntlet of your own: llm-foundry's tasks.yaml; its suite is own-gauntlet.", place=True
    )
    eval_gauntlet: str | None = setting(
        None, "tasks", "The eval_gauntlet.yaml that averages the tasks of --icl_tasks.", place=True
    )
    limit: int | None = setting(
        None, "tasks", "First n examples of each task, after the suite's own shuffle.", kind="integer", low=1
    )
    output: str = setting(
        "miron-results",
        "output",
        "Folder for results.json and samples; of bench and humans, for theirs.",
        identity=False,
        place=True,
    )
    dtype: Dtype = setting(
        "float32",
        "devices",
        "Dtype of weights and matmuls; sums are float32.",
        choices=Dtype,
    )
    sharding: Sharding = setting(
        "pmap",
        "devices",
        "pmap: every device has the weights and rows of its own; mesh: weights are split over --mesh.",
        choices=Sharding,
        identity=False,
    )
    mesh: tuple[tuple[str, int], ...] = setting(  # (axis, devices along it)
        (),
        "devices",
        "Of --sharding=mesh, such as data=4,model=2: devices along data (copies), fsdp (fully sharded) and model (tensor "
        "parallel).",
        flag_default=None,
        identity=False,
    )
    attention: Name | None = setting(
        None,
        "devices",
        "What computes attention; absent: the device's own (tpu, cudnn), else xla.",
        choices=Name,
    )
    max_length: int | None = setting(
        None, "model", "Tokens a request may have; absent: the suite's own rule.", kind="integer", low=2
    )
    token_budget: int | None = setting(
        None,
        "devices",
        "Places of a device's batch; absent: sized from the device.",
        kind="integer",
        low=1,
        identity=False,
    )
    checkpoint: str | None = setting(
        None,
        "model",
        "Orbax checkpoint, or a training run's folder, with the weights of a model of your own.",
        place=True,
    )
    param_map: str | None = setting(
        None,
        "model",
        "JSON file or package.module:function: where an Orbax tree of your own names holds each leaf.",
        place=True,
    )
    steps: str | None = setting(
        None,
        "model",
        "Of a training run's folder: latest, 1000,2000 or first:last:stride; absent: every step.",
        identity=False,
    )
    watch: bool = setting(
        False, "model", "Score steps as they come, until none has for --watch_timeout.", kind="bool", identity=False
    )
    watch_timeout: float = setting(
        3600.0,
        "model",
        "Seconds without a new step that end --watch.",
        kind="float",
        over_seconds=0.0,
        identity=False,
    )
    tensorboard: str | None = setting(
        None, "output", "Folder for TensorBoard's event files.", identity=False, place=True
    )
    wandb: str | None = setting(
        None, "output", "Project of Weights & Biases; WANDB_MODE=offline keeps it here.", identity=False
    )
    items_per_category: int = setting(
        500, "tasks", "Items of each language and category of miron-gen.", kind="integer", low=1
    )
    human_baseline: HumanBaseline = setting(
        "B",
        "tasks",
        "Human baselines of human gaps: A, MERA's published table, drops samples without 3 equal votes; B, its "
        "leaderboard, drops none.",
        choices=HumanBaseline,
    )
    detox_scorer: str | None = setting(
        None,
        "tasks",
        "package.module:function(originals, rewrites) -> style, meaning, fluency from 0 to 1, for ruDetox; absent: J is "
        "null.",
    )
    seed: int = setting(0, "tasks", "For draws that no protocol fixes.", kind="integer")
    resume: bool = setting(
        True,
        "output",
        "Use a folder that holds a run of this configuration; --noresume wants an empty one.",
        kind="bool",
        identity=False,
    )
    allow_code_execution: bool = setting(
        False, "tasks", "Run programs that the model writes, in a sandbox (bubblewrap).", kind="bool"
    )
    allow_unsandboxed_code: bool = setting(
        False,
        "tasks",
        "Run them where there is no sandbox too, under limits alone: the machine may be lost.",
        kind="bool",
    )
    allow_changed_data: bool = setting(
        False,
        "tasks",
        "Score data files that are not as published; then no composite is named.",
        kind="bool",
    )

    def __post_init__(self) -> None:
        for name, own in SETTINGS.items():
            _check(name, own, getattr(self, name))
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


SETTINGS: dict[str, Setting] = {own.name: own.metadata["setting"] for own in fields(RunConfig)}


def _check(name: str, own: Setting, value: Any) -> None:
    """Choices and bound, as they are declared."""
    if own.choices and value not in own.choices and value is not own.default:
        raise InputError(f"--{name} is {value!r}, expected one of {', '.join(own.choices)}")
    if value is None:
        return
    if own.low is not None and value < own.low:
        raise InputError(f"--{name} is {value}, expected {own.low} or more; leave the flag out for its default")
    if own.over_seconds is not None and not value > own.over_seconds:
        raise InputError(f"--{name} is {value:g}, expected seconds, more than {own.over_seconds:g}")


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
        pairs[suite] = str(local_path(folder))
    return tuple(pairs.items())
