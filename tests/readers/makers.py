"""All of them."""

from collections.abc import Callable

from tests.readers.made import (
    Made,
    algoperf,
    any_log,
    json_array,
    json_lines,
    lightning,
    llamafactory,
    llmc,
    llmc_printed,
    megatron,
    mlflow_metric,
    modded_nanogpt,
    nanogpt,
    olmo,
    preference,
    table,
    torchtitan,
    trainer_console,
    trainer_state,
    trainer_summary,
    wandb_export,
)
from tests.readers.made_more import (
    composer,
    espnet,
    json_by_step,
    json_lists,
    json_object,
    keras_console,
    keras_history,
    litgpt,
    nanotron,
    nemo,
    spaced,
    spacy,
    tensorboard_csv,
)

MAKERS: tuple[Callable[[], Made], ...] = (
    *(trainer_state, trainer_summary, preference, lightning, wandb_export, algoperf, nanogpt, modded_nanogpt, llmc),
    *(llmc_printed, megatron, torchtitan, olmo, llamafactory, json_lines, json_array, table, mlflow_metric),
    *(trainer_console, any_log, litgpt, nanotron, composer, keras_history, spaced),
    *(json_object, json_by_step, keras_console, tensorboard_csv, json_lists, nemo, espnet, spacy),
)
