"""Where the command `miron-jax` begins: signals first, then everything that takes time to
import."""

import gc
import os
import sys

from miron_jax.errors import BAD_INPUT, RUN_AGAIN
from miron_jax.runtime import signals, streams, timeline
from miron_jax.runtime.processors import NEW_OBJECTS


def main() -> None:
    """Entry point of the `miron-jax` command; exits with its status."""
    gc.set_threshold(NEW_OBJECTS)
    status: object = 0
    timeline.command_process = os.getpid()
    try:
        streams.prepare()
        signals.install()
        try:
            from miron_jax.cli import main as command

            command()
        except SystemExit as ended:
            status = ended.code
        error = streams.unwritten()
        signals.ignore()
        if error is not None:
            print(
                f"miron-jax: standard output did not take all that was printed ({error.strerror}): "
                "send it elsewhere",
                file=sys.stderr,
            )
            status = status or BAD_INPUT
    except KeyboardInterrupt:  # before the command has begun, or behind its last line
        signals.ignore()
        print(f"miron-jax: {signals.SENTENCE}", file=sys.stderr, flush=True)
        status = RUN_AGAIN
    sys.exit(status)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
