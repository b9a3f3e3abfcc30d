"""Where the command `miron-jax` begins: signals first, then everything that takes time to
import."""

import os
import sys

from miron_jax.errors import INTERRUPTED
from miron_jax.runtime import signals
from miron_jax.runtime.streams import use_utf8


def main() -> None:
    """Entry point of the `miron-jax` command; exits with its status."""
    status: object = 0
    try:
        use_utf8()
        signals.install()
        try:
            from miron_jax.cli import main as command

            command()
        except SystemExit as ended:
            status = ended.code
        sys.stdout.flush()
        signals.ignore()
    except BrokenPipeError:  # who reads the output has read enough: `miron-jax eval --help | head`
        signals.ignore()
        # for what Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:  # before the command has begun, or behind its last line
        signals.ignore()
        print(f"miron-jax: {signals.SENTENCE}", file=sys.stderr, flush=True)
        status = INTERRUPTED
    sys.exit(status)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
