"""A gauntlet of the user's own: llm-foundry's yaml files, read to the letter or refused in one sentence."""

from pathlib import Path

import pytest
import yaml

from miron_jax.definitions.records import Measured
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks import registry
from miron_jax.tasks.gauntlet import suite
from miron_jax.tasks.gauntlet.yaml_files import read_suite

TASK = {"label": "a", "dataset_uri": "eval/local_data/x/a.jsonl", "num_fewshot": [0], "icl_task_type": "schema"}
TEXTS = {**TASK, "icl_task_type": "question_answering"}


def written(path: Path, content: Json) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_the_published_files_make_the_published_suite(shared_data: Path):
    yamls = shared_data / "gauntlet_v0_1"
    read = read_suite(yamls / "tasks_v0.1.yaml", yamls / "eval_gauntlet_v0.1.yaml")
    tasks = {task.name.partition("/")[2]: task for task in read.tasks}
    assert len(tasks) == 49
    for task in suite.SUITE.tasks:
        label = task.name.partition("/")[2]
        twin = tasks[label]
        assert (twin.kind, twin.file.path, twin.section, twin.baselines) == (
            task.kind, task.file.path, task.section, task.baselines,
        )  # fmt: skip
        ours, theirs = task.profile, twin.profile
        if label == "aqua":  # its file has lost the "Q: " that v0.1.0's questions began with; the yaml does not say so
            assert (ours.prelimiter, theirs.prelimiter) == ("Q: ", "")
        else:
            differ = {k for k in ours.__dataclass_fields__ if getattr(ours, k) != getattr(theirs, k)}
            assert differ <= {"documented_num_fewshot"}, label
    everything = {name: Measured(0.7, 10) for names in suite.AVERAGES.categories.values() for name in names}
    renamed = {name.replace("gauntlet/", "own-gauntlet/"): value for name, value in everything.items()}
    expected = suite.SUITE.composites(everything)
    assert {name: composite.value for name, composite in read.composites(renamed).items()} == pytest.approx(
        {name: composite.value for name, composite in expected.items()}
    )
    assert read.locate(shared_data / "eval_bundle", False) == shared_data / "eval_bundle" / "eval_data"


def test_every_key_reaches_its_rule(tmp_path: Path):
    fields = {
        "label": "a", "dataset_uri": "mine/a.jsonl", "num_fewshot": [0, 5], "icl_task_type": "generation_task_with_answers",
        "continuation_delimiter": "\nA:", "example_delimiter": "\n\n", "question_prelimiter": "Q: ",
        "prompt_string": "Answer.\n", "cot_delimiter": " ## ", "has_categories": True, "early_stopping_criteria": ["\n\n"],
        "batch_size": 4, "metric_names": ["InContextLearningQAAccuracy"],
    }  # fmt: skip
    read = read_suite(written(tmp_path / "t.yaml", [fields]), None)
    assert [task.name for task in read.tasks] == ["own-gauntlet/a/0-shot", "own-gauntlet/a/5-shot"]
    task = read.tasks[1]
    assert task.kind == "generation"
    for key, expected in {
        "num_fewshot": 5, "delimiter": "\nA:", "shot_separator": "\n\n", "prelimiter": "Q: ", "prompt_string": "Answer.\n",
        "answer_after": " ## ", "categories": "macro", "stop": ("\n\n",), "extra_tokens": 10,
    }.items():  # fmt: skip
        assert getattr(task.profile, key) == expected, key
    assert (task.file.path, task.file.git_blob_sha1, task.baselines["random"]) == ("mine/a.jsonl", None, None)
    assert dict(read.composites({})) == {}
    chosen = registry.select("own-gauntlet/a/5*", registry.suites(str(tmp_path / "t.yaml")))
    assert [task.name for task in chosen.tasks] == ["own-gauntlet/a/5-shot"]


ONE = {"name": "a", "num_fewshot": 0, "random_baseline": 0.5}


def gauntlet(**changes: Json) -> JsonObject:
    return {"eval_gauntlet": {"categories": [{"name": "c", "benchmarks": [ONE]}], **changes}}


def one_category(benchmarks: Json) -> JsonObject:
    return gauntlet(categories=[{"name": "c", "benchmarks": benchmarks}])


def test_averages_of_a_users_gauntlet(tmp_path: Path):
    tasks = written(tmp_path / "t.yaml", {"icl_tasks": [TASK]})
    read = read_suite(tasks, written(tmp_path / "g.yaml", gauntlet()))
    composites = read.composites({"own-gauntlet/a": Measured(0.75, 10)})
    assert {name: composite.value for name, composite in composites.items()} == {"c": 0.5, "default_average": 0.5}
    # Another number of few-shot examples is another benchmark: the category lacks it.
    read = read_suite(tasks, written(tmp_path / "g.yaml", one_category([{**ONE, "num_fewshot": 5}])))
    assert read.composites({"own-gauntlet/a": Measured(0.75, 10)})["c"].missing == ("own-gauntlet/a/5-shot",)


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ("icl_tasks: [", "is no yaml"),
        ({"other": 1}, "no list of tasks under 'icl_tasks'"),
        ([3], "task 1: found 3, expected keys"),
        (
            [{**TASK, "icl_task_type": "riddle"}],
            r"task 1 \(a\): icl_task_type is 'riddle', expected one of multiple_ch",
        ),
        ([{**TASK, "tempo": 3}], "key 'tempo' is not known here"),
        ([{**TASK, "dataset_uri": "${root}/a"}], r"dataset_uri is .* without \$"),
        ([{**TASK, "num_fewshot": ["ten"]}], "num_fewshot is"),
        ([{**TASK, "metric_names": ["InContextLearningMCExpectedCalibrationError"]}], "metric_names asks for"),
        ([{**TEXTS, "early_stopping_criteria": "x"}], "early_stopping_criteria is 'x'"),
        ([{**TASK, "early_stopping_criteria": ["x"]}], "'early_stopping_criteria' is of tasks that generate"),
        ([{**TASK, "cot_delimiter": "#"}], "'cot_delimiter' is of tasks that generate"),
        ([{**TASK, "has_categories": "true"}], "has_categories is 'true', expected true or false"),
        ([{**TASK, "label": "../../x"}], "expected a name that can be part of a file's path"),
        ([{**TASK, "num_fewshot": [0, 5]}, {**TASK, "label": "a/5-shot"}], "both be called own-gauntlet/a/5-shot"),
        ("[" * 3000, "is no yaml"),
        ([TASK, TASK], "listed twice"),
    ],
)
def test_bad_task_lists_are_refused(tmp_path: Path, tasks: Json, sentence: str):
    with pytest.raises(InputError, match=sentence):
        read_suite(written(tmp_path / "t.yaml", tasks), None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1], "no categories under 'eval_gauntlet'"),
        (gauntlet(weighting="HEAVY"), "weighting is 'HEAVY'"),
        (gauntlet(subtract_random_baseline=False), "rescale_accuracy needs subtract_random_baseline"),
        (gauntlet(averages={"c": ["c"]}), "'c' names an average and a category"),
        (gauntlet(averages={"d": "c"}), "averages are"),
        (gauntlet(categories=[{"name": "c"}]), "category .* cannot be read"),
        (one_category([{**ONE, "random_baseline": 1}]), "below 1"),
        (gauntlet(categories=[{"name": "c", "benchmarks": [ONE]}] * 2), "listed twice"),
        (one_category([]), "lists no benchmark, or one twice"),
        (one_category([ONE, ONE]), "lists no benchmark, or one twice"),
        (one_category([{**ONE, "weight": 5}]), "key 'weight' is not known"),
        (gauntlet(subtract_random_baselin=False), "key 'subtract_random_baselin' is not known"),
        (gauntlet(rescale_accuracy="false"), "rescale_accuracy is 'false', expected true or false"),
        (gauntlet(weighting=["EQUAL"]), r"weighting is \['EQUAL'\]"),
        (gauntlet(averages={"core": ["c", "dd"]}), "average 'core' names the category 'dd'"),
    ],
)
def test_bad_averages_are_refused(tmp_path: Path, content: Json, sentence: str):
    tasks = written(tmp_path / "t.yaml", [TASK])
    with pytest.raises(InputError, match=sentence):
        read_suite(tasks, written(tmp_path / "g.yaml", content))
    with pytest.raises(InputError, match=r"absent.yaml cannot be read"):
        read_suite(tmp_path / "absent.yaml", None)
