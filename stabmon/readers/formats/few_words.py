"""Lines that tell a step and a loss by their places alone: of TensorFlow's and JAX's metric writers, of PyTorch's
tutorials on sequences, of makemore's notebooks, and of gpt-2 as people trained it further.
"""

from stabmon.readers.log import log

FEW_WORDS = log(
    "log of few words",
    r"\blogging_writer\.py:\d+\] \[(?P<step>\d+)\] (?:.{0,2000}?[ ,])?(?:train[_/])?loss=(?P<loss>NUMBER)",
    r"\blogging_writer\.py:\d+\] \[(?P<step>\d+)\] (?:.{0,2000}?[ ,])?(?:eval|val|test)[_/]loss=(?P<eval_loss>NUMBER)",
    r"^\d+m \d+s \(- \d+m \d+s\) \((?P<step>\d+) \d+%\) (?P<loss>NUMBER)$",
    r"^ *(?P<step>\d+)/ *\d+: (?P<loss>\d+\.\d{3,})$",
    r"^\[(?P<step>\d+) \| NUMBER\] loss=(?P<loss>NUMBER) avg=NUMBER$",
)
