"""`miron-jax completion SHELL`: a script that completes commands, flags and their values in bash,
zsh or fish.

Arrives: the declarations of all flags.  Leaves: the script on standard output.  It deliberately
does not install it.
"""

from collections.abc import Iterator
from pathlib import Path

from miron_jax.errors import InputError
from miron_jax.files.regular import read_text

HOWTO = {
    "bash": 'eval "$(miron-jax completion bash)"',
    "zsh": 'eval "$(miron-jax completion zsh)"',
    "fish": "miron-jax completion fish | source",
}

BASH = read_text(Path(__file__).with_name("templates") / "completion.bash")


def command(shells: list[str]) -> None:
    if len(shells) != 1 or shells[0] not in HOWTO:
        raise InputError(
            f"completion wants the name of a shell: {', '.join(HOWTO)}; then run, say, "
            f"{HOWTO['bash']}"
        )
    [shell] = shells
    print("\n".join({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()))


def _bash() -> Iterator[str]:
    from miron_jax.cli import COMMANDS
    from miron_jax.cli.flags import OF_COMMAND

    values = [f'      --{name}) words="{" ".join(choices)}" ;;' for name, choices in _values()]
    flags = []
    for name, names in OF_COMMAND.items():
        if names:
            flags.append(f'      {name}) words="{" ".join(_words(names))}" ;;')
    yield BASH.format(
        howto=HOWTO["bash"],
        commands=" ".join(COMMANDS),
        values="\n".join(values),
        flags="\n".join(flags),
    )


def _zsh() -> Iterator[str]:
    from miron_jax.cli import COMMANDS
    from miron_jax.cli.flags import EVERY, OF_COMMAND

    known = dict(_values())
    yield f"# {HOWTO['zsh']}"
    yield "_miron_jax() {"
    yield (
        "  local -a commands=("
        + " ".join(_quoted(f"{name}:{text}") for name, text in COMMANDS.items())
        + ")"
    )
    yield "  if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield "  local command=$words[2]"
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $command in"
    yield f"  completion) _values shell {' '.join(HOWTO)} ;;"
    for command_name, names in OF_COMMAND.items():
        if names:
            specs = []
            for name in names:
                setting = EVERY[name]
                text = (
                    setting.help.split("; ")[0]
                    .rstrip(".")
                    .translate(str.maketrans({c: f"\\{c}" for c in "[]:"}))
                )
                takes = f":value:{_action(known.get(name))}"
                if setting.kind in ("bool", "optional"):
                    takes = ""
                specs.append(_quoted(f"--{name}{'=' if takes else ''}[{text}]{takes}"))
            yield f"  {command_name}) _arguments {' '.join(specs)} '*:run:_files' ;;"
    yield "  esac"
    yield "}"
    yield "compdef _miron_jax miron-jax"


def _action(choices: tuple[str, ...] | None) -> str:
    return "_files" if choices is None else f"({' '.join(choices)})"


def _quoted(text: str) -> str:
    """For zsh and fish in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def _words(names: tuple[str, ...]) -> list[str]:
    """The flags as they are typed: with "=" if a value follows."""
    from miron_jax.cli.flags import EVERY

    words = [f"--{name}{'' if EVERY[name].kind in ('bool', 'optional') else '='}" for name in names]
    return [
        *words,
        *(f"--no{name}" for name in names if EVERY[name].kind == "bool" and EVERY[name].default),
        "--flagfile=",
        "--help",
    ]


def _values() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Flags whose values are known: of enums, and of --tasks the suites."""
    from miron_jax.cli.flags import EVERY
    from miron_jax.tasks.registry import SUITE_NAMES

    yield "tasks", tuple(SUITE_NAMES)
    for name, setting in EVERY.items():
        if setting.kind == "enum":
            yield name, setting.choices


def _fish() -> Iterator[str]:
    from miron_jax.cli import COMMANDS
    from miron_jax.cli.flags import EVERY, OF_COMMAND

    yield f"# {HOWTO['fish']}"
    for name, text in COMMANDS.items():
        yield f"complete -c miron-jax -n __fish_use_subcommand -f -a {name} -d {_quoted(text)}"
    known = dict(_values())
    for command_name, names in OF_COMMAND.items():
        for name in names:
            setting = EVERY[name]
            takes = "" if setting.kind in ("bool", "optional") else " -r"
            takes += f" -f -a {_quoted(' '.join(known[name]))}" if name in known else ""
            text = _quoted(setting.help.split("; ")[0].rstrip("."))
            yield (
                f"complete -c miron-jax -n '__fish_seen_subcommand_from {command_name}' -l "
                f"{name}{takes} -d {text}"
            )
