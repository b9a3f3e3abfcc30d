"""`miron-jax gate POLICY.yaml RUN [BASELINE]`: whether a run may go on, by the rules of a policy.

Arrives: a YAML file, output folders of eval.  Leaves: a line a rule, a JSON file, an exit status.
It deliberately computes nothing.
"""

from functools import partial
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.cli.json_output import json_output
from miron_jax.errors import Inconclusive, InputError, NoGo

if TYPE_CHECKING:
    from miron_jax.report.compare.gate import Judged
    from miron_jax.report.compare.policy import Rule
    from miron_jax.results.run_folder import Run

FLAGS = flags.FLAGS
ENDS = {"NO-GO": NoGo, "INCONCLUSIVE": Inconclusive}


def command(words: list[str]) -> None:
    from miron_jax.report.compare.policy import read_policy
    from miron_jax.report.tables.console import console
    from miron_jax.results.run_folder import reading_again

    if len(words) not in (2, 3):
        raise InputError(
            "gate wants a policy, a run and, for rules that compare, a baseline: miron-jax gate "
            "POLICY.yaml RUN [BASELINE]"
        )
    policy, *folders = words
    with json_output(FLAGS.json) as document:
        rules = read_policy(policy)
        run, baseline, judged = reading_again(partial(_judged, rules, folders))
        out = console()
        for finding in judged.findings:
            out.print(f"{finding.verdict}: {finding.sentence}: {finding.reason}", soft_wrap=True)
        for note in judged.notes:
            out.print(note, soft_wrap=True)
        names = {"policy": policy, "run": run.folder, "baseline": baseline and baseline.folder}
        document.write(names | judged.json())
    sentence = f"{judged.verdict} for {run.label} by {policy}"
    if judged.verdict != "GO":
        raise ENDS[judged.verdict](sentence)
    out.print(sentence, soft_wrap=True)


def _judged(rules: "list[Rule]", folders: list[str]) -> "tuple[Run, Run | None, Judged]":
    from miron_jax.report.compare.gate import judge
    from miron_jax.results.run_folder import read_runs

    run, *others = read_runs(folders)
    baseline = others[0] if others else None
    return run, baseline, judge(rules, run, baseline)
