"""Averages over sets of the package, under the names that AI2 gives them.

Arrives: the main metric of each task.  Leaves: `Composite`s, null while a member is missing.  It
deliberately does not know how a task is scored.

`qa:rc` and `qa:bpb` of OlmoBaseEval have members that the package lacks, so they are not here.
MMLU's rows are written as the package writes them, so no average bears `mmlu:rc::olmes`.
"""

from collections.abc import Mapping, Sequence

from miron_jax.definitions.records import Composite, Measured
from miron_jax.tasks.groups import Groups, WeightedSum, main_metrics, missing_of
from miron_jax.tasks.olmes.mmlu import SUBJECTS

# OLMES's sets: the test split of ARC and OpenBookQA, its sample of 1,000 of the large ones.
CORE_9 = (
    "arc_easy_test", "arc_challenge_test", "boolq", "csqa", "hellaswag", "openbookqa_test", "piqa",
    "socialiqa", "winogrande",
)  # fmt: skip
_MATH = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory",
    "prealgebra", "precalculus",
)  # fmt: skip
_LANGUAGES = (
    "bash", "c", "cpp", "csharp", "go", "haskell", "java", "javascript", "matlab", "php", "python",
    "r", "ruby", "rust", "scala", "swift", "typescript",
)  # fmt: skip


def _mean(tasks: Sequence[str], share: float = 1.0) -> dict[str, float]:
    return {f"olmes/{task}": share / len(tasks) for task in tasks}


def _mmlu(form: str) -> dict[str, float]:
    """The plain mean over 57 subjects: a category's number is the mean over its own."""
    total = sum(map(len, SUBJECTS.values()))
    shares = {}
    for category, subjects in SUBJECTS.items():
        shares[f"olmes/mmlu_{category}_test_{form}_5shot"] = len(subjects) / total
    return shares


# code:bpb is the mean of three, one of which is the mean of the languages.
_CODE = {
    **_mean(["codex_humaneval_gold_bpb_3shot", "codex_mbpp_gold_bpb_3shot"], share=2 / 3),
    **_mean([f"mt_mbpp_{language}_gold_bpb_3shot" for language in _LANGUAGES], share=1 / 3),
}
_GROUPS = Groups(
    {
        "core_9mcqa:rc::olmes": WeightedSum(_mean([f"{task}_rc_5shot" for task in CORE_9])),
        "math:bpb": WeightedSum(_mean([f"minerva_math_{each}_gold_bpb_0shot" for each in _MATH])),
        "code:bpb": WeightedSum(_CODE),
        "mmlu_57_subjects:rc": WeightedSum(_mmlu("rc")),
        "mmlu_57_subjects:mc": WeightedSum(_mmlu("mc")),
    }
)


def composites(measured: Mapping[str, Measured]) -> dict[str, Composite]:
    main_of = main_metrics(measured)
    return {"core_9mcqa::olmes": _better_of_both(main_of), **_GROUPS.composites(measured)}


def _better_of_both(main_of: Mapping[str, float]) -> Composite:
    """The mean of each task's better form, options as texts or as letters."""
    forms = [(f"olmes/{task}_rc_5shot", f"olmes/{task}_mc_5shot") for task in CORE_9]
    if missing := missing_of([task for pair in forms for task in pair], main_of):
        return Composite(None, False, missing, {})
    better = [max(pair, key=main_of.__getitem__) for pair in forms]
    value = sum(main_of[task] for task in better) / len(better)
    return Composite(value, True, (), dict.fromkeys(better, 1 / len(better)))
