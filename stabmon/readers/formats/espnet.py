"""ESPnet: batches are counted within the epoch."""

from stabmon.readers.log import log

ESPNET = log(
    "ESPnet log",
    r"\b(?P<epoch>\d+)epoch:train:\d+-(?P<step>\d+)batch: (?:.{0,2000}?, )?loss=(?P<loss>NUMBER)",
    r"\b\d+epoch results: .{0,1500}\[valid\] (?:.{0,500}?, )?loss=(?P<eval_loss>NUMBER)",
)
