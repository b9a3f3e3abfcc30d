"""The flags of each command: those that are fields of RunConfig, and those that only commands have.

Arrives: RunConfig's declarations.  Leaves: absl flags of one command, defined.  It deliberately
does not read them.
"""

from absl import flags

from miron_jax.config import SETTINGS, Setting

FLAGS = flags.FLAGS

_DEVICES = {
    "compilation_cache": Setting(
        None,
        "devices",
        "Folder of compiled programs; absent: ~/.cache/miron_jax/programs, empty: none.",
    ),
    "plan_cache": Setting(
        True,
        "devices",
        "Keep tokenized tasks and plans for later runs, in plans/ below --compilation_cache.",
        "bool",
    ),
    "planner_processes": Setting(
        None,
        "devices",
        "Processes that tokenize whole suites beside this one; absent: up to 4, one for each "
        "processor but one, none where processors are the devices.",
        "integer",
    ),
}
_HOSTS = {
    "distributed": Setting(
        False,
        "hosts",
        "Join the other processes that the cluster tells of: TPU pod, Slurm, Open MPI, Kubernetes.",
        "bool",
        everyday=True,
    ),
    "coordinator": Setting(None, "hosts", "host:port of process 0, where no cluster tells of it."),
    "num_processes": Setting(None, "hosts", "Processes of the run, with --coordinator.", "integer"),
    "process_id": Setting(
        None, "hosts", "Which of them this one is, from 0, with --coordinator.", "integer"
    ),
    "peer_timeout": Setting(
        60.0, "hosts", "Seconds after which a process that is not heard from ends the run.", "float"
    ),
}
_PLAN = {
    "mde": Setting(
        False,
        "sampling",
        "Print the smallest difference that this run could find against another, by task; with "
        "--against from that run's deviations.",
        "bool",
    ),
    "topology": Setting(
        None,
        "devices",
        "TPUs or GPUs that need not be here, such as v5e:4x4 or h100:1x1x8: what their compiler "
        "says of each program.",
    ),
}
_EXPORT = {
    "export": Setting(
        None,
        "export",
        "Write the rows of miron-gen and eval-ua-tion-gen, with all that is known of them, into "
        "this folder.",
    ),
    "articles": Setting(
        None,
        "export",
        "With --export: sets of titles from articles of your own instead: JSON objects with title, "
        "text, tags.",
    ),
    "stories": Setting(
        None,
        "export",
        "With --export: a set of gaps in stories of your own instead: objects with text and words, "
        "or the folder of --story_prompts, docs/eval_uation.md.",
    ),
    "story_prompts": Setting(
        None,
        "export",
        "With --export: prompts for so many stories instead, three each, for any language model; "
        "--seed draws others.",
        "integer",
    ),
    "distractors": Setting(
        None,
        "export",
        "With --stories: further options of the gaps, six in all, from a YAML list of nouns by "
        "gender, docs/eval_uation.md.",
    ),
    "mask_number_words": Setting(
        False,
        "export",
        "With --articles: Ukrainian words for 1 to 99 are masked too, not only digits.",
        "bool",
    ),
    "templates": Setting(
        None,
        "export",
        "With --export: sets from your own templates, word lists and categories instead: a folder, "
        "docs/eval_uation.md.",
    ),
    "words": Setting(
        None,
        "export",
        "With --export: sets of your own words instead: a CSV file with the columns word and pos.",
    ),
}
_REVIEWS = {
    "verdicts": Setting(
        None,
        "export",
        "With --stories: tables of people's verdicts on its gaps, which --page asks for; only gaps "
        "that people keep are written.",
        "list",
    ),
    "corrections": Setting(
        None,
        "export",
        "With --stories: tables of people's corrections, which --page asks for; gaps are made in "
        "the corrected stories.",
        "list",
    ),
}
_PAGE = {
    "page": Setting(
        None,
        "annotations",
        "Write one offline HTML page for people: those of humans answer --annotations or a task of "
        "--tasks; those of tasks correct --stories or, with --export, judge the gaps in them.",
        everyday=True,
    ),
}
_TASKS = {
    "describe": Setting(
        None,
        "tasks",
        "Names or globs of tasks: print wording, rules, an example with its tokens, baselines, and "
        "what to look at.",
    ),
    "human": Setting(
        False, "tasks", "Print the published human values with their sources.", "bool"
    ),
    "check": Setting(
        None,
        "tasks",
        "Only read these files of tasks and their data, and say what is wrong.",
        "list",
    ),
}
_HUMANS = {
    "annotations": Setting(
        None, "annotations", "Files with one answer a line, TSV or CSV, of one task.", "list"
    ),
    "input_columns": Setting(
        None,
        "annotations",
        "Columns that make an item; absent: all that begin with INPUT:.",
        "list",
    ),
    "answer_column": Setting(
        "", "annotations", "Column of answers; absent: the one that begins with OUTPUT:."
    ),
    "control_column": Setting(
        "",
        "annotations",
        "Column of right answers of control tasks, empty elsewhere; absent: GOLDEN: of the "
        "answer's.",
    ),
    "worker_column": Setting(
        "ASSIGNMENT:worker_id", "annotations", "Column that names the annotator."
    ),
    "project": Setting(
        "plain",
        "annotations",
        "Whose files these are: your own are plain; of MERA's those that differ have names.",
        "enum",
        ("plain", "mera", "ruhhh", "rutie", "ruethics", "texts", "rudetox"),
    ),
    "votes_needed": Setting(
        None,
        "annotations",
        "Equal votes that label an item by procedure A; absent: more than half of the item's "
        "votes, and MERA's projects have their own rules.",
        "integer",
        low=1,
    ),
    "answers": Setting(
        None,
        "annotations",
        "With --page: the possible answers to a table's items; absent: any text.",
        "list",
    ),
    "control_rows": Setting(
        None,
        "annotations",
        "With --page: rows of the task, from 0, that are control tasks of its annotators.",
    ),
    "skills": Setting(
        None,
        "annotations",
        "Table of worker_id and skill_value, which decides ties of procedure B.",
    ),
    "gold": Setting(
        None,
        "annotations",
        "Right answers: lcs, brackets, arithmetic, or a table of the item's columns and the right "
        "answer.",
    ),
}
_SCREEN = {
    "quiet": Setting(
        False,
        "screen",
        "Print only results, warnings and errors; of eval the closing lines.",
        "bool",
        everyday=True,
    ),
    "verbose": Setting(
        False,
        "screen",
        "Print details too: what is compiled and loaded, tokens, times.",
        "bool",
        everyday=True,
    ),
}
_JSON = {
    "json": Setting(
        None,
        "screen",
        "Write the result as JSON into this file; the bare flag: to standard output, and nothing "
        "else there.",
        "optional",
        everyday=True,
    ),
}
_COMPARE = {
    "metric": Setting(
        None,
        "comparison",
        "Metrics to compare; absent: each task's main one, and bits_per_byte beside it.",
        "list",
    ),
    "last": Setting(
        5,
        "comparison",
        "Of training runs: noise is taken over so many last checkpoints.",
        "integer",
    ),
    "larger": Setting(
        None,
        "comparison",
        "Runs of larger models of the same recipes, in their order: how often the compared runs "
        "decide between two recipes as these do.",
        "list",
    ),
    "subset": Setting(
        None,
        "comparison",
        "With --budget=TOKENS: choose tasks by signal to noise, and write them into this file for "
        "eval --tasks=@FILE.",
    ),
}
_LADDER = {
    "axis": Setting(
        "parameters",
        "comparison",
        "What the sizes of runs are; flops are 6 times parameters times tokens.",
        "enum",
        ("parameters", "tokens", "flops"),
    ),
    "parameters": Setting(
        None,
        "comparison",
        "RUN=1.3e8 states its parameters; absent: all weights that its results count.",
        "list",
    ),
    "tokens": Setting(
        None,
        "comparison",
        "RUN=1e9 states what it was trained on; absent: what its results state.  RUN=2e6/step makes"
        " each checkpoint a run.",
        "list",
    ),
    "predict": Setting(
        None, "comparison", "Sizes on the axis whose scores to predict, with intervals.", "list"
    ),
}
_MEMORIZED = {
    "twins": Setting(
        None,
        "tasks",
        "Texts that no model has read, one of each row: a folder laid out as the data, or "
        "SUITE=FOLDER pairs; or generated, of miron, miron-gen and eval-ua-tion.",
        everyday=True,
    ),
    "test_rows": Setting(
        None,
        "tasks",
        "The tests of a task take the tokens of so many rows; absent: of 1,000, or of a tenth of "
        "its rows where that is more.",
        "integer",
        low=1,
    ),
}
_REPORT = {
    "html": Setting(
        None,
        "output",
        "Write one HTML file: composites, pictures, tasks, every example.  eval writes it after "
        "each checkpoint; report prints no tables then.",
    ),
    "markdown": Setting(None, "output", "Write composites and tasks as Markdown."),
    "csv": Setting(None, "output", "Write every number of every task as CSV."),
    "every_eval_ever": Setting(
        None, "output", "Write one run as a record of Every Eval Ever's schema, JSON."
    ),
    "hub_yaml": Setting(
        None, "output", "Write main metrics of --hub_tasks as YAML for a model's .eval_results/."
    ),
    "hub_tasks": Setting(
        None,
        "output",
        "With --hub_yaml: TASK=OWNER/DATA_SET:TASK_ID, the Hub's benchmark that a task is.",
        "list",
    ),
    "pictures": Setting(
        None,
        "output",
        "Write tasks, comparison and curves, or laws of a ladder, as SVG and PNG of a column's "
        "width into this folder.",
    ),
    "verify": Setting(
        False,
        "output",
        "Only compare the sample files with the digests in results.json; status 2 if one is not "
        "whole.",
        "bool",
    ),
    "robustness": Setting(False, "output", "Only how far the scores hang on wording.", "bool"),
}
_VERIFY = {
    "write": Setting(
        None,
        "output",
        "Only write the oracle's numbers, by transformers and torch from --model, into this file.",
    ),
    "reference": Setting(
        None,
        "output",
        "Only compare the run in --output with these reference numbers, docs/reference_numbers.md.",
    ),
}
_MERA = {
    "mera_submission": Setting(
        None,
        "submission",
        "Write the answers of the run in --output as a submission to MERA's site: out.zip.",
    ),
    "check_submission": Setting(
        None, "submission", "Say what MERA's site will say of this zip, wherever it was made."
    ),
    "mera_version": Setting(
        "v1.2", "submission", "Of --mera_submission and --check_submission.", "enum", ("v1", "v1.2")
    ),
}
EVERY: dict[str, Setting] = {
    **SETTINGS,
    **_DEVICES,
    **_HOSTS,
    **_SCREEN,
    **_JSON,
    **_PLAN,
    **_TASKS,
    **_EXPORT,
    **_REVIEWS,
    **_PAGE,
    **_HUMANS,
    **_COMPARE,
    **_LADDER,
    **_MEMORIZED,
    **_REPORT,
    **_VERIFY,
    **_MERA,
}
_RUN = (*SETTINGS, *_DEVICES, *_HOSTS, *_SCREEN, *_JSON, "html")
OF_COMMAND: dict[str, tuple[str, ...]] = {
    "eval": _RUN,
    "plan": (*_RUN, *_PLAN),  # the flags of eval, so that one flagfile serves all three
    "bench": _RUN,
    "completion": (),
    "tasks": (
        "data_dir", "icl_tasks", "eval_gauntlet", "task_path", "requests", "num_fewshot", "rows",
        "items_per_category", "model", "tokenizer", "max_length", "seed", *_TASKS, *_EXPORT,
        *_REVIEWS, *_PAGE, *_JSON,
    ),
    "humans": (
        *_HUMANS, *_PAGE, "tasks", "task_path", "data_dir", "limit", "detox_scorer", "output",
    ),
    "compare": (*_COMPARE, "until", "seed", "budget", *_JSON),
    "gate": (*_JSON,),
    "ladder": (*_LADDER, "metric", "pictures", *_JSON),
    "memorized": (
        "model", "tokenizer", "checkpoint", "param_map", "params_key", "steps", "tasks", "data_dir",
        "icl_tasks", "eval_gauntlet", "task_path", "requests", "items_per_category",
        "allow_changed_data", "max_length", "seed", "dtype", "sharding", "mesh", "attention",
        "token_budget", "compilation_cache", *_MEMORIZED, *_SCREEN, *_JSON,
    ),
    "report": (*_REPORT, "output", "data_dir"),
    "verify": (
        "model", "tokenizer", "checkpoint", "param_map", "params_key", "steps", "dtype", "sharding",
        "mesh", "attention", "token_budget", "compilation_cache", "against", "output", *_SCREEN,
        *_JSON, *_VERIFY,
    ),
    "init": ("checkpoint",),
    "mera": (*_MERA, "output", "data_dir"),
}  # fmt: skip


class _OptionalValue(flags.Flag):
    """A text after "="; "-" for the bare flag, which never takes the word behind it."""

    def __init__(self, name: str, help: str) -> None:
        super().__init__(flags.ArgumentParser(), flags.ArgumentSerializer(), name, None, help)
        self.boolean = True  # so that absl asks for no value

    def _parse(self, arguments: str | None) -> str | None:
        return {"true": "-", "false": None}.get(arguments or "", arguments)


def define(command: str) -> None:
    """Define this command's flags, and delete those of an earlier command in this process."""
    for flag in list(FLAGS.flags_by_module_dict().get(__name__, ())):
        delattr(FLAGS, flag.name)
    for name in OF_COMMAND[command]:
        _define(name, EVERY[name])


def _define(name: str, setting: Setting) -> None:
    match setting.kind:
        case "optional":
            flags.DEFINE_flag(_OptionalValue(name, setting.help))
        case "string":
            flags.DEFINE_string(name, setting.default, setting.help)
        case "integer":
            flags.DEFINE_integer(name, setting.default, setting.help)
        case "float":
            flags.DEFINE_float(name, setting.default, setting.help)
        case "bool":
            flags.DEFINE_bool(name, setting.default, setting.help)
        case "enum":
            flags.DEFINE_enum(name, setting.default, list(setting.choices), setting.help)
        case "list":
            flags.DEFINE_list(name, setting.default, setting.help)
