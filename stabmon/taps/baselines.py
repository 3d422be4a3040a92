"""Baseline losses: what a model that ignores its input would score on the step's targets, and one that sees a token of
it, or knows the mean input of each class.

Shapes: B samples, T tokens, F features.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stabmon.catalog import Array
from stabmon.records import LEAK, Site
from stabmon.taps import Due
from stabmon.taps.class_means import MAX_EXAMPLES, ClassMeans
from stabmon.taps.forward import Forward
from stabmon.taps.given import Given
from stabmon.taps.ngrams import Ladder
from stabmon.taps.notices import Notice, Notices
from stabmon.taps.probe.returned import last_classes, named, returned_output
from stabmon.taps.targets import (
    ALONE,
    MAX_TARGETS,
    NEXT,
    NO_INPUT,
    UNMOVED,
    Host,
    beside,
    features,
    follows,
    is_masked_text,
    last,
    marked,
    unflattened,
)

_LADDER, _MEANS = "ladder", "class_means"
"""Names of what is kept for a resume."""

_log = logging.getLogger("stabmon")

_MASKED = Notice(
    "targets are masked tokens: their left neighbour is the baseline; a model that sees both may score far under it",
    what=LEAK,
    why="Of a masked token a model sees both neighbours, so a loss far under what the left one gives proves nothing.",
)


class Baselines:
    """Chooses the step's targets on the device; scores them on the host once they have arrived there.

    The unigram is the best constant guess, for tokens and for classes alike. A bigram is scored only where the model
    is given the left neighbour of what it predicts, as in text that is continued or has tokens masked: in classes of
    unrelated samples, tags or pixels a neighbour says nothing of what there is to learn. Classes of real-valued inputs
    have a nearest class mean. Targets that are not whole numbers have no baseline, which is told where they are of
    classes.
    """

    name = "baselines"
    nothing: Array = np.full(4, np.nan, dtype=np.float32)
    """What `score` gives without targets."""
    columns: Sequence[tuple[str, Site]] = tuple(
        (statistic, Site("")) for statistic in ("uniform_loss", "unigram_loss", "bigram_loss", "class_mean_loss")
    )

    def __init__(self, forward: Forward, notices: Notices | None = None) -> None:
        self._forward = forward
        self._notices = notices or Notices()
        self.unmoved = False
        """Whether targets are tokens that the model is given in their place: it predicts others, such as the next."""
        self._given = Given(self._notices)
        self._logits = self._own_loss = self._masked = False
        self._ladder: Ladder | None = None
        self._means: ClassMeans | None = None
        self._returned: torch.Size | None = None
        self._output: torch.Size | None = None
        """What was returned as [..., V], once targets are known."""
        self._said = False
        self._due = Due(layers=True)
        forward.returned.append(self._see)

    def arm(self, due: Due) -> None:
        """Prepare for the coming step: class means are read when layers are, since they cost more than counts."""
        self._due = due

    def targets(self, given: Tensor | None) -> tuple[Tensor, ...]:
        """What `score` is to be given, on the device: the targets given to `step`, else the batch's `labels`, else the
        integer inputs of a language model; and beside them what the model was given. Nothing if there are none."""
        inputs = list(self._tokens())
        found = self._labels() if given is None else given
        self._output = None if self._returned is None else last_classes(self._returned, found)
        stand_in = found is None
        if found is None:
            found = self._stand_in(inputs)
        if found is None or found.is_complex() or found.ndim == 0 or self._given.one_hot:
            return ()
        if found.is_floating_point():
            return () if given is None else self._given.floats(given, self._output, self._logits)
        if given is not None:
            self._given.whole(given, self._output)
        whole = unflattened(found.detach(), inputs)
        if whole.ndim < 2 or whole.numel() == 0:
            return self._of_classes(whole.reshape(-1))
        if stand_in or self._shifts():
            return (marked(last(whole), NEXT),)
        return self._of_sequences(whole, inputs)

    def score(self, found: Sequence[Host]) -> Array:
        """float32[4] in nats per token or class; NaN without targets."""
        if not found or not self._known(found[0]):
            return self.nothing
        if self._ladder is None:
            self._ladder = Ladder(self._vocabulary(found[0]))
        targets, *others = found
        if targets.ndim < 2:
            mean = self._class_mean(self._ladder, targets, others[0]) if others else np.nan
            return np.array([*self._ladder.observe(targets), mean], dtype=np.float32)
        whole, self.unmoved = targets[:-1], bool((targets[-1] == UNMOVED).any()) and not self._own_loss
        if targets[-1].any():
            scored = self._ladder.observe(whole)
        elif others and is_masked_text(whole, others[0]):
            if not self._masked:
                self._masked = True
                self._notices.say(_MASKED, logging.INFO)
            scored = self._ladder.observe(whole, others[0])
        else:
            scored = self._ladder.observe(whole.reshape(-1))
        return np.array([*scored, np.nan], dtype=np.float32)

    def detach(self) -> None:
        """Forget all counts."""
        self._ladder = self._means = None

    def dump(self) -> Mapping[str, bytes]:
        """The counts, for a resume, by name; empty before the first targets."""
        counts = ((_LADDER, self._ladder), (_MEANS, self._means))
        return {name: part.dump() for name, part in counts if part is not None}

    def load(self, kept: Callable[[str], bytes | None]) -> None:
        """Go on with what was kept of `dump`, by name."""
        self._ladder = Ladder.load(counts) if (counts := kept(_LADDER)) else None
        self._means = ClassMeans.load(counts) if (counts := kept(_MEANS)) else None

    def _see(self, returned: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._logits, self._own_loss = (named(returned, name) is not None for name in ("logits", "loss"))
        if (output := returned_output(returned, self._labels())) is not None:
            self._returned = output.shape

    def _known(self, targets: Host) -> bool:
        """Whether they are ids, as far as can be told."""
        if targets.dtype.kind == "f":
            self._given.told(targets)
            return False
        self._given.look(targets[:-1] if targets.ndim > 1 else targets)
        return not self._given.one_hot

    def _vocabulary(self, targets: Host) -> int | None:
        """By the output; where the model keeps its logits to itself, as it says itself, if its text is what follows."""
        width = self._forward.output_width if self._output is None else self._output[-1]
        if width is None and targets.ndim > 1 and targets[-1].any():
            config: Any = getattr(self._forward.root, "config", None)
            config = config.get_text_config() if hasattr(config, "get_text_config") else config
            width = getattr(config, "vocab_size", None)
        return width if isinstance(width, int) and width > 1 and self._forward.whole else None

    def _of_classes(self, classes: Tensor) -> tuple[Tensor, ...]:
        """The classes, int[B], and, where the model was given as many examples, features of the last ones."""
        some = classes[-MAX_TARGETS:]
        examples = next(self._examples(len(classes)), None) if self._due.layers else None
        return (some,) if examples is None else (some, features(examples, MAX_EXAMPLES))

    def _of_sequences(self, whole: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The targets, int[B, T], and the tokens that the model was given in their places."""
        pairs = beside(whole, inputs)
        if not pairs:
            return (marked(last(whole), ALONE),)
        found = torch.stack([follows(given, wanted) for given, wanted in pairs]).amax()
        given, wanted = pairs[0]
        return marked(wanted, found), given

    def _class_mean(self, ladder: Ladder, classes: Host, examples: Host) -> float:
        if not ladder.fixed:
            return float("nan")
        if self._means is None:
            self._means = ClassMeans.of(ladder.vocabulary, examples)
        if self._means is None:
            return float("nan")
        return self._means.observe(classes[-len(examples) :].astype(np.int64), examples, ladder.shares())

    def _labels(self) -> Tensor | None:
        call = self._forward.last
        labels = call.kwargs.get("labels") if call else None
        return labels if isinstance(labels, Tensor) else None

    def _inputs(self) -> Iterator[Tensor]:
        """What the latest call was given."""
        call = self._forward.last
        if call is None:
            return
        named = {name: value for name, value in call.kwargs.items() if not any(part in name for part in NO_INPUT)}
        yield from (value for value in (*call.args, *named.values()) if isinstance(value, Tensor))

    def _tokens(self) -> Iterator[Tensor]:
        """Those that are tokens, int[B, T]."""
        return (x for x in self._inputs() if x.dtype in (torch.int32, torch.int64) and x.ndim == 2)

    def _examples(self, count: int) -> Iterator[Tensor]:
        """Those that are `count` examples of real numbers, float[B, ...]."""
        for x in self._inputs():
            plain = x.layout is torch.strided and not x.is_nested and x.is_floating_point()
            if plain and x.ndim > 1 and len(x) == count and x.numel():
                yield x

    def _stand_in(self, inputs: Sequence[Tensor]) -> Tensor | None:
        """The inputs, where the model predicts something at each; for all that is known, where it returns a loss only.

        Which of two neighbours is called the target does not matter to n-gram counts.
        """
        found = next((ids for ids in inputs if self._output is None or self._output[:-1] == ids.shape), None)
        if found is not None and not self._said:
            self._said = True
            _log.info(
                "stabmon: baseline losses: no targets given, so the integer inputs, shifted by one, stand for them"
            )
        return found

    def _shifts(self) -> bool:
        """Whether the model itself makes its decoder's inputs of the labels."""
        return bool(getattr(getattr(self._forward.root, "config", None), "is_encoder_decoder", False))
