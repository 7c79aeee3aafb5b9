"""Progress bars with the time left, on a terminal and in a notebook; gone when they are done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from farthing.schemas.jobs import JobView

Look = Callable[[JobView], None]


def bar(console: Console | None = None) -> Progress:
    """Return a progress bar; None: on standard error, or below a notebook's cell."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console or Console(stderr=True), transient=True)


@contextmanager
def following(console: Console | None = None) -> Iterator[Look]:
    """Show a bar for the length of the block; yield a function that moves it to where a job is."""
    with bar(console) as shown:
        task = shown.add_task("", total=None)
        said: set[str] = set()

        def look(seen: JobView) -> None:
            words, step, steps = f"{seen.id} {seen.state}", seen.progress.step, seen.progress.steps
            # Without a number of steps the bar only moves to and fro.
            shown.update(task, description=words, completed=step, total=steps or None, refresh=True)
            if seen.waits_for and seen.waits_for not in said:
                said.add(seen.waits_for)
                text = f"{seen.id} waits for {seen.waits_for}"
                shown.console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield look


@contextmanager
def sending(console: Console | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for the length of the block; yield a function that moves it to how much of a file has arrived."""
    with bar(console) as shown:
        task = shown.add_task("upload", total=None)
        yield lambda there, size: shown.update(task, completed=there, total=size, refresh=True)
