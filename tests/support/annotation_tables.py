"""Tables of annotations as a platform exports them."""

from pathlib import Path

from miron_jax.humans.annotations import read_annotations
from miron_jax.humans.baseline import Baseline, baseline
from miron_jax.humans.gold import Rule


def table(tmp_path: Path, lines: str, name: str = "a.tsv") -> Path:
    path = tmp_path / name
    path.write_text(lines, encoding="utf-8")
    return path


HEADER = "INPUT:q\tOUTPUT:a\tGOLDEN:a\tASSIGNMENT:worker_id\n"


def baseline_of(
    tmp_path: Path, lines: str, skills: dict[str, float] | None = None, rule: Rule | None = None
) -> tuple[Baseline, dict[tuple[str, ...], str]]:
    return baseline(read_annotations([table(tmp_path, HEADER + lines)]), rule, skills or {})[:2]


def write_table(path: Path, header: list[str], lines: list[list[str]], delimiter: str = "\t") -> Path:
    rows = [delimiter.join(fields) for fields in (header, *lines)]
    path.write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")  # ABC Elementary writes a BOM
    return path
