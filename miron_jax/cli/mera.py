"""`miron-jax mera`: a run's answers as a submission to MERA's site.

Arrives: a results folder, or a submission.  Leaves: a submission, a table on screen.  It
deliberately computes no score.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.cli.run_config import data_dir
from miron_jax.errors import InputError, printable
from miron_jax.files.places import local_path

if TYPE_CHECKING:
    from miron_jax.tasks.mera.site import SiteReport

FLAGS = flags.FLAGS


def command() -> None:
    from miron_jax.tasks.mera import site

    version = FLAGS.mera_version
    if FLAGS.mera_submission is None and FLAGS.check_submission is None:
        raise InputError("mera wants --mera_submission=out.zip, or --check_submission=in.zip")
    if FLAGS.mera_submission is not None:
        path = local_path(FLAGS.mera_submission)
        exported = site.export(local_path(FLAGS.output), path, version)
        print(printable(f"written to {path}: {', '.join(exported.written)}"))
        if exported.absent:
            print(f"not in it, so the site will refuse it (no_task): {', '.join(exported.absent)}")
    if FLAGS.check_submission is not None:
        folders = dict(data_dir())
        folder = folders.get(f"mera-{version}", folders.get(""))
        checked = site.check(
            local_path(FLAGS.check_submission), version, Path(folder) if folder else None
        )
        _print_checked(checked)
        if checked.faults:
            raise InputError(
                f"{FLAGS.check_submission}: the site will refuse it for the faults above: mend "
                "those files"
            )


def _print_checked(checked: "SiteReport") -> None:
    from miron_jax.report.tables.console import console, table_of

    for note in checked.notes:
        print(note)
    table = table_of(("data set", "records", "state"), (), ("numbers",))
    for row in checked.rows:
        table.add_row(*row)
    console().print(table)
    for fault in checked.faults:
        console(stderr=True).print(fault, soft_wrap=True)
    print(checked.total)
