"""The configuration of one run: each setting is declared once, as a field of the record and as a
flag.

Arrives: flag values.  Leaves: a frozen, checked `RunConfig`, and a `Setting` per field.  It
deliberately does not know tasks, models or files: names are checked where they are looked up.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin

from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import IMPLEMENTATIONS

Sharding = Literal["pmap", "mesh"]
Dtype = Literal["float32", "bfloat16"]
BaselineProcedure = Literal["A", "B"]
FlagKind = Literal["string", "integer", "float", "bool", "enum", "list", "optional"]
Topic = Literal[
    "model", "tasks", "output", "screen", "devices", "hosts", "export", "annotations", "submission",
    "comparison", "sampling", "answers",
]  # fmt: skip
AXES = ("data", "fsdp", "expert", "model")
LARGEST = 2**63 - 1  # whole number of a flag
_STEPS = re.compile(r"latest|\d+(,\d+)*|\d*:\d*(:[1-9]\d*)?", re.ASCII)
_AVERAGE = re.compile(r"last:([2-9]|[1-9]\d{1,17})|ema:0\.\d*[1-9]\d*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one flag, named by the field or key that holds it."""

    default: Any  # of the flag; None: absent
    topic: Topic  # heading in --help
    help: str
    kind: FlagKind = "string"
    choices: tuple[str, ...] = ()  # of an enum
    low: int | None = None  # smallest valid value
    over_seconds: float | None = None  # a valid value is greater, seconds
    over: float | None = None  # a valid value is greater
    identity: bool = True  # another value makes another run
    is_path: bool = False  # names files; the paths, not the contents, may differ between hosts
    everyday: bool = False  # --help tells of it; --helpfull of all


def setting(
    default: Any, topic: Topic, help: str, *, flag_default: Any = MISSING, **more: Any
) -> Any:
    """A field of RunConfig with its declaration.  `default`: of the field; MISSING: it has none.

    `flag_default`: of the flag, if it is not the field's.
    """
    declared = Setting(default if flag_default is MISSING else flag_default, topic, help, **more)
    return field(default=default, metadata={"setting": declared})


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run, as results.json holds it under `config`."""

    model: str = setting(
        MISSING,
        "model",
        "Hugging Face folder, hub id, training run's folder, module:function of your own model, or "
        "demo; a run's folder has one checkpoint a step, the function returns an OwnModel, demo is "
        "the small model that comes with the package.",
        flag_default="demo",
        is_path=True,
        everyday=True,
    )
    tasks: tuple[str, ...] = setting(
        MISSING,
        "tasks",
        "Suites, tasks or globs: core, core/arc_easy, core/arc_*, or @FILE of compare --subset; "
        "absent: core, miron-gen for the demo model, or what --icl_tasks, --task_path and "
        "--requests bring.",
        flag_default=None,
        everyday=True,
    )
    tokenizer: str | None = setting(
        None,
        "model",
        "Tokenizer folder or hub id; the model's own when absent.",
        is_path=True,
        everyday=True,
    )
    # (suite, folder); suite "" stands for every suite
    data_dir: tuple[tuple[str, str], ...] = setting(
        (),
        "tasks",
        "Folder with the data files, or suite=folder pairs; fetched and cached when absent.",
        flag_default=None,
        is_path=True,
        everyday=True,
    )
    icl_tasks: str | None = setting(
        None,
        "tasks",
        "A gauntlet of your own: llm-foundry's tasks.yaml; its suite is own-gauntlet.",
        is_path=True,
    )
    eval_gauntlet: str | None = setting(
        None, "tasks", "The eval_gauntlet.yaml that averages --icl_tasks.", is_path=True
    )
    task_path: tuple[str, ...] | None = setting(
        None,
        "tasks",
        "YAML files of tasks of your own, or folders of them; their suite is own.",
        is_path=True,
        everyday=True,
    )
    requests: str | None = setting(
        None,
        "tasks",
        "Folder of a frozen request set: requests.jsonl, or what olmo-eval or lm-eval saved; its "
        "suite is requests.",
        is_path=True,
    )
    generated: str | None = setting(
        None,
        "answers",
        "Folder of completions that were written elsewhere, SUITE/TASK.jsonl with id and generated "
        "as in samples: score them, and load no model; --model is then their writer's name.",
        is_path=True,
    )
    limit: int | None = setting(
        None,
        "tasks",
        "Only the first n examples of each task, after the suite's own shuffle.",
        low=1,
        everyday=True,
    )
    num_fewshot: int | None = setting(
        None,
        "tasks",
        "Few-shot examples before each question, in place of the task's own number, of your own "
        "tasks and the Gauntlet's; a task that states another number is then named TASK/N-shot, "
        "and no composite takes it.",
        low=0,
    )
    rows: tuple[int, ...] | None = setting(
        None,
        "sampling",
        "Only these examples, by their lines in the data file from 0 (row in samples), with the "
        "shots of a whole run; prints their prompts, scored tokens and log-probabilities.  Of "
        "tasks, with --describe.",
    )
    until: str | None = setting(
        None,
        "sampling",
        "Run examples in a random order until this is known: ci<=0.01 (half of the 95 % interval), "
        "or decided (who is better, this model or the run of --against); of each task, or behind a "
        "name: CORE:ci<=0.01. Of compare, decided: after how many examples a run would have known.",
        everyday=True,
    )
    budget: float | None = setting(
        None,
        "sampling",
        "Unique tokens to spend, about: examples in a random order, more where they say more.",
        over=0.0,
        everyday=True,
    )
    output: str = setting(
        "miron-results",
        "output",
        "Folder for results.json and samples; of bench and humans, for theirs.",
        identity=False,
        is_path=True,
        everyday=True,
    )
    save_requests: bool = setting(
        False,
        "output",
        "Write the texts of all scored requests too, as a request set that --requests reads.",
        identity=False,
    )
    save_byte_losses: bool = setting(
        False,
        "output",
        "Of --tasks=text: write the loss of every byte of every document too, as Parquet.",
        identity=False,
    )
    token_stats: bool = setting(
        False,
        "output",
        "Entropy, probability, rank and top-k hits of every scored token too: their means as "
        "metrics, and each token's in the samples.",
    )
    controls: bool = setting(
        False,
        "tasks",
        "Score a sample of each choice task again without its question and the like.",
    )
    chat_template: Literal["turns", "one_turn"] | None = setting(
        None,
        "tasks",
        "Prompts by the tokenizer's chat template, few-shot examples as turns or all in one_turn; "
        "tasks are then named TASK/chat or TASK/chat-one-turn.",
    )
    fewshot_draws: int = setting(1, "tasks", "Draws of few-shot examples to score.", low=1)
    results_format: Literal["lm_eval", "nanochat"] | None = setting(
        None,
        "output",
        "Write the results in another layout too: lm_eval, or nanochat (CORE's table as CSV).",
        identity=False,
    )
    against: str | None = setting(
        None,
        "output",
        "Folder of an earlier run that the last lines, and --until=decided, compare with; absent: "
        "the last one of this model beside --output. Of verify: a file of an oracle's numbers.",
        identity=False,
        is_path=True,
        everyday=True,
    )
    dtype: Dtype = setting(
        "float32", "devices", "Dtype of weights and matmuls; sums are float32.", everyday=True
    )
    sharding: Sharding = setting(
        "pmap",
        "devices",
        "pmap: every device has all weights and its rows; mesh: weights are split over --mesh.",
        identity=False,
        everyday=True,
    )
    mesh: tuple[tuple[str, int], ...] = setting(  # (axis, devices along it)
        (),
        "devices",
        "Of --sharding=mesh, such as data=4,model=2: devices along data (copies), fsdp (fully "
        "sharded) and model (tensor parallel).",
        flag_default=None,
        identity=False,
        everyday=True,
    )
    attention: str | None = setting(
        None,
        "devices",
        "Implementation of attention; absent: the device's own (tpu, cudnn), else xla.",
        kind="enum",
        choices=tuple(IMPLEMENTATIONS),
    )
    max_length: int | None = setting(
        None, "model", "Tokens a request may have; absent: the suite's own rule.", low=2
    )
    stride: int | None = setting(
        None,
        "tasks",
        "Of --tasks=text: tokens that each window of a document scores, behind those before them; "
        "absent: all of a window.",
        low=1,
    )
    special_tokens: Literal["control", "text"] | None = setting(
        None,
        "tasks",
        "Of --tasks=text: how names of special tokens (<|endoftext|>) in a document are read: "
        "control (absent), as these tokens; text, as their letters.",
    )
    token_budget: int | None = setting(
        None,
        "devices",
        "Slots of a batch; absent: 2048 a CPU device, 32768 elsewhere, less where memory is short.",
        low=1,
        identity=False,
    )
    checkpoint: str | None = setting(
        None,
        "model",
        "Orbax checkpoint, or a training run's folder, with the weights of a model of your own.",
        is_path=True,
    )
    param_map: str | None = setting(
        None,
        "model",
        "gemma or tunix, a JSON file or package.module:function: where an Orbax tree of other "
        "names holds each leaf; or MaxText's config (.yml), which its trees need.",
        is_path=True,
    )
    params_key: str | None = setting(
        None,
        "model",
        "Where in a tree of Orbax or levanter the weights to score lie, such as ema_params; "
        "absent: params (of levanter model), or all there is.",
    )
    steps: str | None = setting(
        None,
        "model",
        "Of a training run's folder: latest, 1000,2000 or first:last:stride; absent: every step.",
        identity=False,
        everyday=True,
    )
    watch: bool = setting(
        False,
        "model",
        "Score checkpoints as they appear, until none has appeared for --watch_timeout seconds.",
        identity=False,
        everyday=True,
    )
    watch_timeout: float = setting(
        3600.0,
        "model",
        "Seconds without a new checkpoint after which --watch ends.",
        over_seconds=0.0,
        identity=False,
    )
    newest_first: bool = setting(
        False, "model", "Of --watch: score the newest step first.", identity=False
    )
    keep_up: bool = setting(
        False, "model", "Of --watch: leave out overtaken steps.", identity=False
    )
    average: str | None = setting(
        None,
        "model",
        "Of a training run, score an average of checkpoints too, after all steps: last:5, the mean "
        "of the last 5; ema:0.9, an exponential moving average with that decay.",
        identity=False,
    )
    tensorboard: str | None = setting(
        None, "output", "Folder for TensorBoard's event files.", identity=False, is_path=True
    )
    wandb: str | None = setting(
        None, "output", "Project of W&B; WANDB_MODE=offline keeps it here.", identity=False
    )
    mlflow: str | None = setting(None, "output", "Experiment of MLflow.", identity=False)
    comet: str | None = setting(None, "output", "Project of Comet.", identity=False)
    trackio: str | None = setting(None, "output", "Project of Trackio.", identity=False)
    items_per_category: int = setting(
        500, "tasks", "Items of each language and category of miron-gen.", low=1
    )
    human_baseline: BaselineProcedure = setting(
        "B",
        "answers",
        "Human baselines of human gaps: A, MERA's published table, drops samples without 3 equal "
        "votes; B, its leaderboard, drops none.",
    )
    human_labels: str | None = setting(
        None,
        "answers",
        "Folder of people's answers, SUITE/TASK.tsv as humans reads them (INPUT:row; OUTPUT:choice "
        "or OUTPUT:answer): human scores, and human gaps over the same examples.",
        is_path=True,
    )
    detox_scorer: str | None = setting(
        None,
        "answers",
        "ruDetox's classifiers: {published|STYLE,MEANING,FLUENCY}[,CALIBRATIONS.pkl], or "
        "package.module:function(originals, rewrites) -> three arrays; absent: J is null.",
    )
    seed: int = setting(0, "tasks", "Random seed of all sampling that no protocol fixes.")
    resume: bool = setting(
        True,
        "output",
        "Use a folder that holds a run of this configuration; --noresume wants an empty one.",
        identity=False,
        everyday=True,
    )
    allow_code_execution: bool = setting(
        False, "tasks", "Run programs that the model writes, in a sandbox (bubblewrap)."
    )
    allow_unsandboxed_code: bool = setting(
        False,
        "tasks",
        "Run them without a sandbox if none works, under limits alone: the machine may be lost.",
    )
    allow_changed_data: bool = setting(
        False, "tasks", "Score data files that are not as published; then no composite is named."
    )

    def __post_init__(self) -> None:
        for name, declared in SETTINGS.items():
            check_setting(name, declared, getattr(self, name))
        if bool(self.mesh) != (self.sharding == "mesh"):
            raise InputError(
                "--sharding=mesh wants the mesh's axes, and only it: --sharding=mesh "
                "--mesh=data=4,model=2, sizes whose product is the number of devices"
            )
        if self.params_key == "":
            raise InputError(
                "--params_key is empty, expected a path such as ema_params; leave the flag out for "
                "params"
            )
        if self.steps is not None and not _STEPS.fullmatch(self.steps):
            raise InputError(
                f"--steps is {self.steps!r}, expected latest, a list such as 1000,2000, or "
                "first:last:stride such as 1000:20000:1000"
            )
        if self.average is not None and not _AVERAGE.fullmatch(self.average):
            raise InputError(
                f"--average is {self.average!r}, expected last:5, the mean of the last 5 steps (2 "
                "or more), or ema:0.9, a moving average with that decay (between 0 and 1)"
            )
        if not self.model:
            raise InputError(
                "--model is empty: give a Hugging Face folder or a hub id, package.module:factory, "
                "or demo"
            )
        if self.eval_gauntlet and not self.icl_tasks:
            raise InputError("--eval_gauntlet averages --icl_tasks, which is absent: give both")
        if self.generated and (self.watch or self.is_sampled or self.rows or self.average):
            raise InputError(
                "--generated scores all completions that are there: leave out --watch, --until, "
                "--budget, --rows and --average"
            )
        if self.controls and (self.generated or self.rows or self.is_sampled):
            raise InputError(
                "--controls draws examples from whole tasks and scores their choices: leave out "
                "--generated, --rows, --until and --budget"
            )
        if self.rows is not None and self.is_sampled:
            raise InputError("--rows names the examples to run: leave out --until and --budget")
        if isinstance(self.task_path, str):
            raise InputError(
                f"task_path is {self.task_path!r}, expected a list of files: "
                f"task_path=[{self.task_path!r}]"
            )
        if not self.tasks:
            raise InputError(
                "--tasks is empty: give suites, tasks or globs, such as --tasks=core or core/arc_*"
            )

    @property
    def is_sampled(self) -> bool:
        """Whether --until or --budget chooses the examples that run."""
        return self.until is not None or self.budget is not None


_KINDS: dict[Any, FlagKind] = {
    bool: "bool",
    int: "integer",
    float: "float",
    tuple[str, ...]: "list",
}


def _typed(declared: Setting, annotation: Any) -> Setting:
    """The declaration with the kind and the choices that its field's type implies, unless it names
    choices itself."""
    if declared.choices:
        return declared
    if type(None) in get_args(annotation):  # T | None
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return replace(declared, kind="enum", choices=get_args(annotation))
    return replace(declared, kind=_KINDS.get(annotation, "string"))


SETTINGS: dict[str, Setting] = {
    each.name: _typed(each.metadata["setting"], each.type) for each in fields(RunConfig)
}


def check_setting(name: str, declared: Setting, value: Any) -> None:
    """Raises InputError for a value that is no choice, or beyond the declared bounds."""
    if declared.choices and value not in declared.choices and value is not declared.default:
        raise InputError(f"--{name} is {value!r}, expected one of {', '.join(declared.choices)}")
    if value is None:
        return
    if declared.kind == "integer" and value > LARGEST:
        raise InputError(
            f"--{name} is {value}, expected {LARGEST} or less; leave the flag out for its default"
        )
    if declared.low is not None and value < declared.low:
        raise InputError(
            f"--{name} is {value}, expected {declared.low} or more; leave the flag out for its "
            "default"
        )
    if declared.over_seconds is not None and not value > declared.over_seconds:
        raise InputError(
            f"--{name} is {value:g}, expected seconds, more than {declared.over_seconds:g}"
        )
    if declared.over is not None and not declared.over < value < math.inf:
        raise InputError(f"--{name} is {value:g}, expected more than {declared.over:g}")


def parse_mesh(text: str | None) -> tuple[tuple[str, int], ...]:
    """The pairs of `data=4,model=2`.  Raises InputError."""
    axes: dict[str, int] = {}
    for part in text.split(",") if text else []:
        axis, _, size = part.partition("=")
        if (
            axis not in AXES
            or axis in axes
            or not size.isascii()
            or not size.isdecimal()
            or not int(size)
        ):
            raise InputError(
                f"--mesh={text}: {part!r} is not expected there; name each of {', '.join(AXES)} at "
                "most once, with the devices along it: data=4,model=2"
            )
        axes[axis] = int(size)
    return tuple(axes.items())


def mesh_text(axes: Iterable[tuple[str, int]]) -> str:
    """What `parse_mesh` reads."""
    return ",".join(f"{axis}={size}" for axis, size in axes)
