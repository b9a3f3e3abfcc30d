"""The table of trainers' own checkpoints in benchmarks/results/README.md says what the kept run measured."""

import json
import re

from tests.conftest import REPOSITORY

PACKAGES = {
    "flax": "flax", "tunix": "google-tunix", "levanter": "marin-levanter", "maxtext": "maxtext", "easydel": "easydel",
}  # fmt: skip


def written(nats: list[float]) -> str:
    return f"{max(nats):.1e}".replace("e-0", "e-")


def test_the_table_is_the_kept_run() -> None:
    kept = json.loads((REPOSITORY / "benchmarks" / "results" / "trainers.json").read_text())
    results = (REPOSITORY / "benchmarks" / "results" / "README.md").read_text()
    page = results.partition("## Checkpoints of trainers")[2].partition("\n## ")[0]
    cases = kept["cases"]
    read = [case for case in cases if "nats" in case]
    assert not kept["skipped"]
    assert max(case["nats"] for case in read) <= kept["bound"]
    assert f"{len(read)} checkpoints that are read and {len(cases) - len(read)} refused" in page
    for trainer, package in PACKAGES.items():
        [row] = re.findall(rf"^\| {package} .*", page.lower(), re.MULTILINE)
        assert kept["versions"][trainer][package] in row
        apart = [case["nats"] for case in read if case["trainer"] == trainer and "undivided" in case["model"]]
        others = [case["nats"] for case in read if case["trainer"] == trainer and "undivided" not in case["model"]]
        assert row.endswith(f"| {written(others)} |"), (row, written(others))
        assert not apart or f"undivided logits {written(apart)} |" in row
