"""`miron-jax tasks`: lists suites with the state of their data, describes or checks tasks, exports
generated rows.

Arrives: words that names of tasks have, folders of data.  Leaves: a table or lines on screen, or
exported files.  It deliberately loads no weights.
"""

import os
import sys
from pathlib import Path

from absl import flags

from miron_jax.cli.flags import OF_COMMAND
from miron_jax.cli.json_output import json_output
from miron_jax.cli.run_config import data_dir, local, rows, task_path
from miron_jax.config import RunConfig
from miron_jax.errors import InputError, printable
from miron_jax.files.places import local_path, place
from miron_jax.files.readers import JsonObject

FLAGS = flags.FLAGS
# flag that asks for a work, in the order in which they are looked at -> others that the work reads
_OF_LIST = ("data_dir", "icl_tasks", "eval_gauntlet", "task_path", "requests")
_READS = {
    "story_prompts": ("export", "seed"),
    "export": (
        "articles", "mask_number_words", "stories", "distractors", "page", "verdicts",
        "corrections", "templates", "words", "items_per_category",
    ),
    "page": ("stories", "corrections"),
    "check": ("model", "tokenizer"),
    "describe": (
        *_OF_LIST, "model", "tokenizer", "num_fewshot", "rows", "items_per_category", "max_length",
    ),
}  # fmt: skip
# flags that ask for something else than the list of tasks
_NO_LIST = ("check", "describe", "human", "export")


def command(words: list[str]) -> None:
    _check_flags(words)
    if FLAGS.story_prompts is not None:
        _export_prompts()
    elif FLAGS.export is not None:
        _export()
    elif FLAGS.page is not None:
        _ask_for_corrections()
    elif FLAGS.check:
        _check(FLAGS.check)
    elif FLAGS.describe is not None:
        _describe(FLAGS.describe)
    else:
        _list(words)


def _check_flags(words: list[str]) -> None:
    """Raises InputError for flags, or words, that have no meaning together."""
    for name in ("export", "articles", "stories", "distractors", "templates", "words"):
        if FLAGS[name].value == "":
            raise InputError(f"--{name} is empty: name a file or folder, or leave it out")
    if FLAGS.articles is not None and FLAGS.export is None:
        raise InputError("--articles wants --export=FOLDER, where its sets of titles are written")
    if FLAGS.stories is not None and FLAGS.export is None and FLAGS.page is None:
        raise InputError(
            "--stories wants --export=FOLDER, where its set of gaps is written, or --page=FILE, on "
            "which people correct them"
        )
    for name in ("page", "verdicts", "corrections"):
        if getattr(FLAGS, name) and FLAGS.stories is None:
            raise InputError(f"--{name} wants --stories=FILE, which people judge or correct")
    if FLAGS.verdicts and FLAGS.export is None:
        raise InputError("--verdicts wants --export=FOLDER, where the gaps that stay are written")
    if FLAGS.distractors is not None and FLAGS.stories is None:
        raise InputError("--distractors wants --stories=FILE, whose gaps have them as options")
    if FLAGS.story_prompts is not None and (
        FLAGS.export is None or FLAGS.stories is not None or FLAGS.articles is not None
    ):
        raise InputError(
            "--story_prompts wants --export=FOLDER, where they are written, without --stories and "
            "--articles"
        )
    if FLAGS["seed"].present and FLAGS.story_prompts is None:
        raise InputError("--seed wants --story_prompts=N, which it draws")
    for name in ("templates", "words"):
        if FLAGS[name].value is not None and FLAGS.export is None:
            raise InputError(f"--{name} wants --export=FOLDER, where its sets are written")
    of_numbers = FLAGS.mask_number_words and FLAGS.words is None and FLAGS.stories is None
    if (FLAGS.templates or FLAGS.words) and (FLAGS.stories or FLAGS.articles) and not of_numbers:
        raise InputError(
            "--templates and --words make sets of their own: leave out --articles and --stories, "
            "or add --mask_number_words to --articles, and --templates tells its number words"
        )
    if FLAGS.rows and FLAGS.describe is None:
        raise InputError("--rows wants --describe=TASK, whose examples are shown")
    if FLAGS.mask_number_words and FLAGS.articles is None:
        raise InputError(
            "--mask_number_words wants --articles=FILE, whose number words are to be hidden"
        )
    others = [name for name in _NO_LIST if getattr(FLAGS, name)]
    unfiltered = [name for name in others if name != "human"]
    if words and unfiltered:
        raise InputError(
            f"{words[0]!r} filters the list of tasks, which --{unfiltered[0]} does not print: "
            "leave out one of them"
        )
    if FLAGS.json is not None and others:
        raise InputError(f"--json is of the list of tasks: leave out --json or --{others[0]}")
    _check_reads()


def _check_reads() -> None:
    """Raises InputError for a flag that the chosen work does not read."""
    given = [name for name in OF_COMMAND["tasks"] if FLAGS[name].present]
    work = "the list of tasks"
    reads = {*_OF_LIST, "human", "json"}
    for name, others in _READS.items():
        if FLAGS[name].value not in (None, []):
            work = f"--{name}"
            reads = {name, *others}
            break
    if work == "--export" and not _makes_items():
        reads.remove("items_per_category")
        work = "an --export of other sets than miron-gen"
    for name in given:
        if name not in reads:
            raise InputError(f"--{name} is not read by {work}: leave it out")


def _makes_items() -> bool:
    """Whether --export writes items of miron-gen."""
    from miron_jax.tasks.miron import is_language

    if FLAGS.templates is not None and FLAGS.articles is None:
        return is_language(local_path(FLAGS.templates))
    return FLAGS.words is None and FLAGS.stories is None and FLAGS.articles is None


def _export() -> None:
    """Write rows that are generated, and print the path of each file."""
    from miron_jax.cli.people_page import write_people_page
    from miron_jax.humans.reviews import corrected, kept_gaps, sheet_of_gaps
    from miron_jax.tasks.generators.eval_uation_gen.gaps import UserStory
    from miron_jax.tasks.generators.eval_uation_gen.sets import Reviews
    from miron_jax.tasks.registry import export

    def mend(stories: list[UserStory]) -> list[UserStory]:
        if not FLAGS.corrections:
            return stories
        return corrected([*map(local_path, FLAGS.corrections)], stories, _say)

    def keep(rows: list[JsonObject]) -> list[JsonObject]:
        if FLAGS.verdicts:
            rows = kept_gaps([*map(local_path, FLAGS.verdicts)], rows, _say)
        if FLAGS.page is not None:
            write_people_page(sheet_of_gaps(rows, f"gaps of {Path(FLAGS.stories).stem}"))
        return rows

    articles = local_path(FLAGS.articles) if FLAGS.articles else None
    stories = local_path(FLAGS.stories) if FLAGS.stories else None
    distractors = local_path(FLAGS.distractors) if FLAGS.distractors else None
    templates = local_path(FLAGS.templates) if FLAGS.templates else None
    words = local_path(FLAGS.words) if FLAGS.words else None
    folder = local_path(FLAGS.export)
    spelled = FLAGS.mask_number_words
    reviews = Reviews(mend, keep)
    of_user = articles, spelled, stories, _say, distractors, templates, words, reviews
    for path in export(folder, FLAGS.items_per_category, *of_user):
        print(printable(str(path)))


def _export_prompts() -> None:
    """Write prompts for stories, and say what to do with them."""
    from miron_jax.tasks.generators.eval_uation_gen.story_prompts import write_prompts

    folder = local_path(FLAGS.export)
    print(printable(str(write_prompts(folder, FLAGS.story_prompts, FLAGS.seed))))
    _say("Let a language model answer NUMBER.1.prompt.txt, save NUMBER.1.story.txt, and")
    _say("put that in place of {story} in NUMBER.2.prompt.txt; so on to the third; then")
    _say(f"miron-jax tasks --export=GAPS --stories={folder}")


def _ask_for_corrections() -> None:
    """The page on which people correct stories."""
    from miron_jax.cli.people_page import write_people_page
    from miron_jax.humans.reviews import corrected, sheet_of_stories
    from miron_jax.tasks.generators.eval_uation_gen.sets import stories_at

    stories = stories_at(local_path(FLAGS.stories), (), _say)
    if FLAGS.corrections:
        stories = corrected([*map(local_path, FLAGS.corrections)], stories, _say)
    write_people_page(sheet_of_stories(stories, Path(FLAGS.stories).stem))


def _list(words: list[str]) -> None:
    """Print the tasks whose names have the words, or their human values."""
    from miron_jax.report.tables.humans import print_human_values
    from miron_jax.report.tables.tasks import print_tasks, tasks_json
    from miron_jax.tasks.about import about
    from miron_jax.tasks.registry import named, suites

    folders = {suite: Path(folder) for suite, folder in data_dir()}
    icl_tasks, eval_gauntlet, requests = map(
        local, (FLAGS.icl_tasks, FLAGS.eval_gauntlet, FLAGS.requests)
    )
    of_user = icl_tasks, eval_gauntlet, task_path() or (), requests, folders.get("text")
    every = named(suites(*of_user, solutions=folders.get("expert")), words)
    if FLAGS.human:
        print_human_values(every.values())
        return
    with json_output(FLAGS.json) as document:
        document.write(tasks_json(every.values(), data_dir(), about))
        print_tasks(every.values(), data_dir(), about)


def _check(paths: list[str]) -> None:
    """Read tasks of the user's own with all their examples, and say what may be wrong with them."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from miron_jax.definitions.records import ProgramProfile, Task, Wording, kind_word
    from miron_jax.evaluation.task_kinds.kinds import kind_of
    from miron_jax.evaluation.task_kinds.solutions import bounds_of_programs, failing_solutions
    from miron_jax.prompting.prompts import check_shots
    from miron_jax.report.tables.console import console
    from miron_jax.tasks.own_tasks.check import findings
    from miron_jax.tasks.own_tasks.yaml_task import read_suite

    model = local(FLAGS.model)
    named = local(FLAGS.tokenizer)
    config = RunConfig(
        model or "demo", ("own",), tokenizer=named, task_path=tuple(map(place, paths))
    )
    tokenizer = None
    if model or named:
        from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model

        tokenizer = architecture_of(config, find_model(config, weights=False)).tokenizer
    suite = read_suite(config.task_path or ())
    folder = suite.locate(None, True)
    lines = list[str]()
    for task in suite.tasks:
        examples = kind_of(task).load(task, folder, config, runs=False)
        if isinstance(task, Task) and isinstance(task.profile, Wording):
            check_shots(task, examples, None)
        looks = list[str]()
        if isinstance(task, Task):
            looks += findings(task, examples, tokenizer)
        if isinstance(task, Task) and isinstance(task.profile, ProgramProfile):
            looks += failing_solutions(task, examples)
        verdict = f"{len(looks)} to look at:" if looks else "nothing is wrong"
        lines.append(f"{task.name}: {kind_word(task)}, {len(examples)} examples, {verdict}")
        lines += [f"    {look}" for look in looks]
    if any(isinstance(task.profile, ProgramProfile) for task in suite.tasks):
        lines.append(bounds_of_programs())
    suite.composites({})  # groups name tasks that are there
    for line in filter(None, lines):
        console().print(line, soft_wrap=True)


def _describe(names: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from miron_jax.cli.task_page import OPEN, describe
    from miron_jax.report.tables.console import console

    config = RunConfig(
        local(FLAGS.model) or "",
        tuple(filter(None, names.split(","))),
        tokenizer=local(FLAGS.tokenizer),
        data_dir=data_dir(),
        icl_tasks=local(FLAGS.icl_tasks),
        eval_gauntlet=local(FLAGS.eval_gauntlet),
        task_path=task_path(),
        requests=local(FLAGS.requests),
        num_fewshot=FLAGS.num_fewshot,
        rows=rows(),
        items_per_category=FLAGS.items_per_category,
        max_length=FLAGS.max_length,
        allow_changed_data=True,
    )
    for line in describe(config):
        if OPEN in line:  # tokens, whose spaces are their own
            print(printable(line))
        else:
            console().print(line, soft_wrap=True)


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)
