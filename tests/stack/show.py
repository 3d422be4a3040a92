"""`make stack`: plays it, and prints what was told after how long, and the message of the stall."""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.stack.play import Play, play


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder))
    console.print(table(played))
    stall = played.told["stall"].firing
    assert stall
    console.print(f"\n{stall.title}\n{stall.text}", markup=False, highlight=False, soft_wrap=True)


def table(played: Play) -> Table:
    made = Table(title="Seconds from the fault, or a detector's word of it, to Slack (scrape 1 s, rules for 2 s)")
    for column in ("run", "in process", "Alertmanager", "its end: in process", "Alertmanager"):
        made.add_column(column)
    for told in played.told.values():
        over = [m and told.ended and m.at - told.ended for m in (told.direct_resolved, told.resolved)]
        shown = [f"{s:.1f}" if s is not None else "-" for s in (*map(told.after, (told.direct, told.firing)), *over)]
        made.add_row(told.run, *shown)
    for run in ("preempted", "finished"):
        made.add_row(run, "-", f"{sum(f'* {run}: ' in m.text for m in played.messages)} messages")
    return made


if __name__ == "__main__":
    sys.exit(main())
