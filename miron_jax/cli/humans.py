"""`miron-jax humans`: crowd annotations to a human baseline; --page asks people.

Arrives: files of answers, the names of their columns.  Leaves: humans.json, a page and labels.  It
deliberately does not know how votes are counted.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from absl import flags

from miron_jax.cli.run_config import output_beside
from miron_jax.errors import InputError, printable
from miron_jax.files.places import local_path, public
from miron_jax.files.store import Store

FLAGS = flags.FLAGS


def command() -> None:
    from miron_jax.cli import people_page
    from miron_jax.humans.annotations import PROJECTS, Columns, read_annotations, read_skills
    from miron_jax.humans.baseline import baseline
    from miron_jax.humans.ethics import ethics_values, read_ethics_gold
    from miron_jax.humans.glad import abilities
    from miron_jax.humans.gold import gold_of
    from miron_jax.report.html.humans import humans_page
    from miron_jax.report.tables.humans import print_baseline, print_ethics

    people_page.check_flags()
    named = Columns(
        tuple(FLAGS.input_columns or ()),
        FLAGS.answer_column,
        FLAGS.control_column,
        FLAGS.worker_column,
    )
    if FLAGS.page is not None:
        people_page.write_asking_page(named)
        return
    if not FLAGS.annotations:
        raise InputError(
            "humans wants --annotations, the files of answers: Toloka TSV, or CSV with the columns "
            "named by flags"
        )
    if FLAGS.votes_needed is not None and FLAGS.project != "plain":
        raise InputError(
            f"--votes_needed={FLAGS.votes_needed} is for files of your own, and "
            f"--project={FLAGS.project} has MERA's rule: leave one of them out"
        )
    paths = [*map(local_path, FLAGS.annotations)]
    if FLAGS.project == "rudetox":
        _rewrites(paths)
        return
    project = PROJECTS[FLAGS.project]
    if FLAGS.votes_needed is not None:
        project = project._replace(needed=FLAGS.votes_needed)
    annotations = read_annotations(paths, named, project)
    gold = five_labels = None
    if FLAGS.gold is not None and FLAGS.project == "ruethics":  # a text has five right answers
        five_labels = read_ethics_gold(local_path(FLAGS.gold))
    elif FLAGS.gold is not None:
        gold = gold_of(FLAGS.gold, annotations.inputs, project)
    skills = {} if FLAGS.skills is None else read_skills(local_path(FLAGS.skills))
    computed, labels, decided = baseline(annotations, gold, skills, project, abilities)
    by_procedure = {}
    if five_labels is not None:
        kept_b = {item: vote.answer for item, vote in decided.items() if vote.origin != "undecided"}
        by_procedure = {
            "A": ethics_values(labels, annotations.inputs, five_labels),
            "B": ethics_values(kept_b, annotations.inputs, five_labels),
        }
    output = output_beside("miron-humans")
    store = Store(output)
    of_a = {item: {"label": label} for item, label in labels.items()}
    of_b = {item: {"label": vote.answer, "origin": vote.origin} for item, vote in decided.items()}
    for name, every in {"human_labels.jsonl": of_a, "human_labels_b.jsonl": of_b}.items():
        lines = []
        for item, row in every.items():
            lines.append({**dict(zip(annotations.inputs, item, strict=True)), **row})
        store.put(name, _json_lines(lines))
    document = {
        "files": [*map(public, FLAGS.annotations)],
        "gold": FLAGS.gold,
        **asdict(computed),
    }
    if five_labels is not None:
        document["ethics"] = {name: accuracy._asdict() for name, accuracy in by_procedure.items()}
    store.put(
        "humans.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode()
    )
    title = f"Human baseline of {', '.join(path.name for path in paths)}"
    store.put("humans.html", humans_page(computed, title).encode())
    print_baseline(computed)
    print_ethics(by_procedure)
    print(
        printable(
            f"written to {output}/humans.json and humans.html,\n"
            "labels to human_labels.jsonl (A) and human_labels_b.jsonl"
        )
    )


def _json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _rewrites(paths: list[Path]) -> None:
    """ruDetox's three projects: the pairs that pass all of them, and J of the human rewrites if
    there are classifiers."""
    from miron_jax.evaluation.detox_scorer import detox_scorer
    from miron_jax.humans.detox import kept_pairs
    from miron_jax.metrics.detox import detox_scores

    kept = kept_pairs(paths)
    counts = {
        "labelled": kept.labelled,
        "rejected": kept.rejected,
        "kept": len(kept.pairs),
        "j": None,
    }
    if FLAGS.detox_scorer is not None and kept.pairs:
        scorer = detox_scorer(FLAGS.detox_scorer)
        scores = detox_scores(scorer, *map(list, zip(*kept.pairs, strict=True)))
        counts |= {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}
    output = output_beside("miron-humans")
    store = Store(output)
    lines = [{"toxic": toxic, "rewrite": rewrite} for toxic, rewrite in kept.pairs]
    store.put("pairs.jsonl", _json_lines(lines))
    store.put(
        "humans.json",
        json.dumps({"files": [*map(public, FLAGS.annotations)], **counts}, indent=1).encode(),
    )
    for name, count in kept.labelled.items():
        print(
            f"{printable(name)}: {count} items with three equal votes, {kept.rejected[name]} "
            "annotators rejected"
        )
    j = "null, for it wants --detox_scorer" if counts["j"] is None else f"{counts['j']:.4f}"
    print(
        printable(
            f"{len(kept.pairs)} pairs pass all three; J {j}\nwritten to {output}/humans.json and "
            "pairs.jsonl"
        )
    )
