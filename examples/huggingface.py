"""stabmon in a Hugging Face Trainer: GPT-2 and BERT with random weights, 20 steps each, no download, under 20 s.

python examples/huggingface.py
"""

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

from stabmon.huggingface import StabilityCallback

VOCABULARY, LENGTH, STEPS = 128, 32, 20
MASK = VOCABULARY - 1


class Counting(Dataset[dict[str, Tensor]]):
    """Sequences that count up in steps of their own; `masked` hides some tokens and asks for them alone."""

    def __init__(self, masked: bool) -> None:
        random = torch.Generator().manual_seed(0)
        start, stride = (torch.randint(1, 8, (512, 1), generator=random) for _ in range(2))
        self.tokens = (start + stride * torch.arange(LENGTH)) % MASK
        hidden = torch.rand(self.tokens.shape, generator=random) < (0.15 if masked else 0)
        self.inputs = self.tokens.masked_fill(hidden, MASK)
        self.labels = self.tokens.masked_fill(~hidden, -100) if masked else self.tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.inputs[index], "labels": self.labels[index]}


def gpt2() -> PreTrainedModel:
    sizes = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 4, "n_head": 4}
    config = GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLMLoss", **sizes)
    return GPT2LMHeadModel(config)


def bert() -> PreTrainedModel:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **sizes))


def train(name: str, model: PreTrainedModel, masked: bool, folder: str) -> None:
    callback = StabilityCallback(run=name)
    arguments = TrainingArguments(
        folder, max_steps=STEPS, per_device_train_batch_size=16, learning_rate=1e-3, report_to=[],
        save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=Counting(masked), callbacks=[callback]).train()
    monitor = callback.monitor
    if monitor and monitor.latest:
        latest = monitor.latest
        print(f"{name}: step {latest.step}, loss {latest.scalar('loss'):.2f}, alerts {len(monitor.alerts)}")
        for site, gain in zip(latest.layout.sites_of("norm_gain"), latest["norm_gain"], strict=True):
            print(f"  layer {site.layer_label} {site.role:30s} norm gain {gain:7.3f}")


def main() -> None:
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train("gpt2", gpt2(), masked=False, folder=folder)
        train("bert", bert(), masked=True, folder=folder)


if __name__ == "__main__":
    main()
