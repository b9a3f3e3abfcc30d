"""A run's progress on standard error: bars on a terminal, else a line now and then for what takes
long.

Arrives: sentences and counts of stages, from any thread.  Leaves: text on standard error.  It
deliberately does not know what the stages do.
"""

import sys
import threading
import time
from dataclasses import dataclass, field

from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from miron_jax.report.tables.console import console
from miron_jax.runtime.progress import Progress

PATIENCE = 5.0  # seconds after which a line is printed about a stage where there is no terminal
# of a stage that is done before the time left is estimated: the first units are the slowest
LEAST_SHARE = 0.05
LONGEST_SILENCE = 60.0  # seconds between two lines about one stage; the silence doubles up to it


@dataclass(slots=True)
class _Stage:
    """A stage that has begun and not ended."""

    bar: TaskID
    unit: str
    done: float
    total: float
    first: float  # units that were done when it began
    start: float = field(default_factory=time.perf_counter)  # seconds
    silence: float = PATIENCE  # seconds from start to the next line

    def line(self, name: str) -> str:
        """Where the stage is: its share, its rate, the time left."""
        seconds = time.perf_counter() - self.start
        if not self.total:
            return f"{name}: {duration(seconds)} so far"
        of_all = f"{name}: {self.done / self.total:.0%} of {self.total:,.0f} {self.unit}"
        if self.done <= self.first:
            return f"{of_all}, {duration(seconds)} so far"
        rate = (self.done - self.first) / seconds
        left = self.left(seconds) or f"{duration(seconds)} so far"
        return f"{of_all}, {f'{rate:,.3g}' if rate < 100 else f'{rate:,.0f}'} a second, {left}"

    def left(self, seconds: float) -> str:
        """ "30 s left"; "" before LEAST_SHARE of what is to do is done."""
        done = self.done - self.first
        total = self.total - self.first
        if not self.total or done <= 0 or done < LEAST_SHARE * total:
            return ""
        return f"{duration(max(0.0, total - done) * seconds / done)} left"


class Screen(Progress):
    """Prints sentences and stages to standard error, so that standard output holds only results."""

    def __init__(self, quiet: bool = False, verbose: bool = False) -> None:
        """`quiet`: warnings alone; `verbose`: details too."""
        self._quiet = quiet
        self._verbose = verbose
        self._lines = console(stderr=True)
        self._has_bars = not quiet and sys.stderr.isatty() and not self._lines.is_dumb_terminal
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[left]}"),
            console=self._lines,
            disable=not self._has_bars,
            transient=True,
        )
        self._stages: dict[str, _Stage] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Screen":
        if self._has_bars:
            self._bars.start()
        elif not self._quiet:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._has_bars:
            self._bars.stop()
        elif not self._quiet:
            self._ticker.join()

    def say(self, line: str) -> None:
        if not self._quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        self._lines.print(line, soft_wrap=True)

    def detail(self, line: str) -> None:
        if self._verbose:
            self.say(line)

    def advance(self, stage: str, done: float = 0, total: float = 0, unit: str = "") -> None:
        with self._lock:
            done = min(done, total or done)
            if stage not in self._stages:
                bar = self._bars.add_task(stage, total=total or None, count="", left="")
                self._stages[stage] = _Stage(bar, unit, done, total, done)
            current = self._stages[stage]
            current.done = done
            current.total = total
            current.unit = unit or current.unit
            count = f"{done:,.0f} of {total:,.0f} {unit}" if total else ""
            left = current.left(time.perf_counter() - current.start)
            self._bars.update(
                current.bar, completed=done, total=total or None, count=count, left=left
            )

    def end(self, stage: str) -> None:
        with self._lock:
            ended = self._stages.pop(stage, None)
        if ended is None:
            return
        self._bars.remove_task(ended.bar)
        if ended.silence > PATIENCE:  # a line was printed about it
            self.say(f"{stage}: done in {duration(time.perf_counter() - ended.start)}")

    def _tick(self) -> None:
        """Print a line about each stage whose silence is over."""
        while not self._ended.wait(0.5):
            with self._lock:
                now = time.perf_counter()
                for name, stage in self._stages.items():
                    if now - stage.start >= stage.silence:
                        stage.silence = now - stage.start + min(stage.silence, LONGEST_SILENCE)
                        self.say(stage.line(name))


def duration(seconds: float) -> str:
    """8 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
