import inspect
from collections import namedtuple

import torch
from torch import Tensor
from transformers import BatchEncoding, DynamicCache, GPT2LMHeadModel

from stabmon.taps.probe.calls import Call, cut, cut_targets


def ids(*shape: int, high: int = 61) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def test_cut_keeps_whole_sequences_of_at_most_512_tokens() -> None:
    call = Call((), {"input_ids": ids(16, 100), "attention_mask": torch.ones(16, 1, 100, 100), "scale": 2.0})
    part = cut(call)
    assert torch.equal(part.kwargs["input_ids"], call.kwargs["input_ids"][:5])
    assert part.kwargs["attention_mask"].shape == (5, 1, 100, 100)
    assert part.kwargs["scale"] == 2.0


def test_cut_shortens_a_sequence_longer_than_512_in_every_dimension_of_time() -> None:
    mask, embedded = torch.ones(3, 1, 700, 700), torch.randn(3, 700, 700)
    part = cut(Call((ids(3, 700), torch.ones(700, 700)), {"mask": mask, "embedded": embedded}))
    assert [t.shape for t in part.args] == [(1, 512), (512, 512)]
    assert part.kwargs["mask"].shape == (1, 1, 512, 512)
    assert torch.equal(part.kwargs["embedded"], embedded[:1, :512])


def test_cut_of_inputs_without_time_counts_one_token_each() -> None:
    part = cut(Call((torch.randn(600, 3, 4, 4),), {"labels": ids(600)}))
    assert part.args[0].shape == (512, 3, 4, 4)
    assert part.kwargs["labels"].shape == (512,)


def test_cut_copies_tensors_also_inside_mappings_and_named_tuples() -> None:
    Pair = namedtuple("Pair", "left right")
    encoding = BatchEncoding({"input_ids": ids(2, 3)})
    call = Call((encoding, Pair(ids(2, 3), [ids(2, 3)])), {})
    part = cut(call)
    encoding["input_ids"].zero_()
    call.args[1].right[0].zero_()
    assert isinstance(part.args[0], BatchEncoding)
    assert isinstance(part.args[1], Pair)
    assert torch.equal(part.args[0]["input_ids"], ids(2, 3))
    assert torch.equal(part.args[1].right[0], ids(2, 3))


def test_cut_keeps_labels_and_drops_caches_and_the_item_count() -> None:
    call = Call((), {"input_ids": ids(2, 3), "labels": ids(2, 3), "past_key_values": DynamicCache(),
                     "num_items_in_batch": torch.tensor(6), "use_cache": True, "fused_lm_head": True})  # fmt: skip
    assert set(cut(call).kwargs) == {"input_ids", "labels"}
    signature = inspect.signature(GPT2LMHeadModel.forward)
    assert cut(call, signature=signature).kwargs["use_cache"] is False


def test_cut_twice_is_cut_once() -> None:
    once = cut(Call((ids(9, 700),), {}))
    assert torch.equal(cut(once).args[0], once.args[0])


def test_targets_are_cut_like_the_call_flattened_or_not() -> None:
    call, targets = Call((ids(16, 100),), {}), ids(16, 100)
    assert torch.equal(cut_targets(targets, call), targets[:5])
    assert torch.equal(cut_targets(targets.flatten(), call), targets[:5])
    assert torch.equal(cut_targets(targets[:, 0], call), targets[:5, 0])
    assert torch.equal(cut_targets(ids(2, 700), Call((ids(2, 700),), {})), ids(2, 700)[:1, :512])
