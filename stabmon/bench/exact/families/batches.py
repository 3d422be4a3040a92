"""Made-up batches. Shapes: B sequences or pictures, T tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch

from stabmon.bench.exact.families import Batch
from stabmon.bench.exact.networks import CLASSES, VOCABULARY

SEQUENCES, PICTURES, SIDE = 4, 4, 8
IGNORED = -100
MASK = 1

Words = Callable[[torch.Generator, int, bool], Batch]
"""(random numbers, tokens, whether some are padding) -> keywords of a call."""


def words(aligned: bool, masked: bool = False) -> Words:
    """Tokens, and what is to be said of each: the next one where the labels are `aligned` with the output, the token
    itself where the model shifts them; with `masked` every third token, which is hidden from the model."""

    def batch(random: torch.Generator, length: int, padded: bool) -> Batch:
        # Squared, so that some tokens are common and the unigram has something to know.
        tokens = (torch.rand(SEQUENCES, length + 1, generator=random).square() * (VOCABULARY - 2)).long() + 2
        inputs, labels = tokens[:, :-1], tokens[:, 1:] if aligned else tokens[:, :-1]
        if masked:
            hidden = torch.arange(length) % 3 == 1
            inputs, labels = torch.where(hidden, MASK, tokens[:, :-1]), torch.where(hidden, tokens[:, :-1], IGNORED)
        if not padded:
            return {"input_ids": inputs, "labels": labels}
        mask = (torch.arange(length) < torch.tensor([length, length - 2, length - 5, length])[:, None]).long()
        kept = {"input_ids": inputs * mask, "labels": torch.where(mask > 0, labels, IGNORED)}
        return {**kept, "attention_mask": mask}

    return batch


def sentences(random: torch.Generator, length: int, padded: bool) -> Batch:
    """Tokens and one class for each sequence."""
    return {**words(True)(random, length, padded), "labels": torch.randint(CLASSES, (SEQUENCES,), generator=random)}


def translations(random: torch.Generator, length: int, padded: bool) -> Batch:
    """Tokens and, shorter, tokens to answer with."""
    answer = torch.randint(2, VOCABULARY, (SEQUENCES, length - 3), generator=random)
    return {**words(True)(random, length, padded), "labels": answer}


def pictures(random: torch.Generator, length: int, padded: bool) -> Batch:
    """Pictures and their classes."""
    pixels = torch.randn(PICTURES, 3, SIDE, SIDE, generator=random)
    return {"pixel_values": pixels, "labels": torch.randint(CLASSES, (PICTURES,), generator=random)}


def noisy_pictures(random: torch.Generator, length: int, padded: bool) -> Batch:
    """Pictures with noise at random times, the times, and the noise."""
    clean, noise = torch.randn(2, PICTURES, 3, SIDE, SIDE, generator=random)
    times = torch.rand(PICTURES, generator=random)
    share = times[:, None, None, None]
    return {"pixel_values": (1 - share) * clean + share * noise, "times": times, "labels": noise}
