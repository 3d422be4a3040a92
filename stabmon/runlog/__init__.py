"""The run log: all that one run's pipeline was fed, in one SQLite file. The writer is a sink, the reader feeds replay.

`scalars` has a row for every feed, `vectors` one where any per-layer value was read; a blob is little-endian float32 in
the order of `layout.scalar_slots` / `layout.layer_slots`, bit for bit. `row` counts feeds and orders everything. A
resume at step k starts a branch: rows before it that lie beyond step k stay in the file, but off the main line.
"""

from stabmon.runlog.encoding import SUFFIX, alert_summary, in_folder, newest, path_of
from stabmon.runlog.reader import Recorded, read
from stabmon.runlog.writer import RunLogWriter

__all__ = ["SUFFIX", "Recorded", "RunLogWriter", "alert_summary", "in_folder", "newest", "path_of", "read"]
