"""All formats of files, the more particular first: the first one that fits is taken."""

from stabmon.readers.format import Format
from stabmon.readers.formats.algoperf import ALGOPERF
from stabmon.readers.formats.any_log import ANY_LOG
from stabmon.readers.formats.composer import COMPOSER
from stabmon.readers.formats.csv import CSV
from stabmon.readers.formats.espnet import ESPNET
from stabmon.readers.formats.few_words import FEW_WORDS
from stabmon.readers.formats.json_array import JSON_ARRAY
from stabmon.readers.formats.json_lines import JSON_LINES
from stabmon.readers.formats.json_lists import JSON_LISTS
from stabmon.readers.formats.json_object import JSON_OBJECT
from stabmon.readers.formats.json_values import JSON_VALUES
from stabmon.readers.formats.keras_console import KERAS_CONSOLE
from stabmon.readers.formats.keras_history import KERAS_HISTORY
from stabmon.readers.formats.lightning import LIGHTNING
from stabmon.readers.formats.litgpt import LITGPT
from stabmon.readers.formats.llamafactory import LLAMAFACTORY
from stabmon.readers.formats.llmc import LLMC
from stabmon.readers.formats.markdown import MARKDOWN
from stabmon.readers.formats.megatron import MEGATRON
from stabmon.readers.formats.mlflow import METRIC
from stabmon.readers.formats.modded_nanogpt import MODDED_NANOGPT
from stabmon.readers.formats.nanogpt import NANOGPT
from stabmon.readers.formats.nanotron import NANOTRON
from stabmon.readers.formats.nemo import NEMO
from stabmon.readers.formats.olmo import OLMO
from stabmon.readers.formats.spacy import SPACY
from stabmon.readers.formats.tensorboard_csv import TENSORBOARD_CSV
from stabmon.readers.formats.torchtitan import TORCHTITAN
from stabmon.readers.formats.trainer_console import TRAINER_CONSOLE
from stabmon.readers.formats.trainer_state import TRAINER_STATE
from stabmon.readers.formats.wandb_export import WANDB_EXPORT

FORMATS: tuple[Format, ...] = (
    TRAINER_STATE,
    JSON_ARRAY,
    KERAS_HISTORY,
    LLAMAFACTORY,
    JSON_OBJECT,
    JSON_LISTS,
    JSON_VALUES,
    JSON_LINES,
    WANDB_EXPORT,
    TENSORBOARD_CSV,
    ALGOPERF,
    LIGHTNING,
    METRIC,
    LITGPT,
    NANOGPT,
    MODDED_NANOGPT,
    LLMC,
    NEMO,
    MEGATRON,
    TORCHTITAN,
    NANOTRON,
    OLMO,
    COMPOSER,
    TRAINER_CONSOLE,
    KERAS_CONSOLE,
    ESPNET,
    FEW_WORDS,
    SPACY,
    MARKDOWN,
    CSV,
    ANY_LOG,
)
