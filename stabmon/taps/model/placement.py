"""Where each norm layer sits in its block, from one traced forward: before a branch, after a sum, after a branch, …"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from stabmon.taps.model.tracing import NormCall, Trace


def classify(trace: Trace, blocks: Sequence[str]) -> dict[str, str]:
    """Placement of each norm that was called, in the order of calls."""
    placed: dict[str, str] = {}
    stacks: dict[str, list[NormCall]] = {}
    for call in trace.norms:
        if call.block is not None:
            stacks.setdefault(_pattern(call.block), []).append(call)
    for calls in stacks.values():
        placed |= _in_blocks(trace, calls)
    order = [call.block for call in trace.norms]
    for i, call in enumerate(trace.norms):
        if call.block is None:
            earlier = {block for block in order[:i] if block}
            later = [block for block in order[i + 1 :] if block and block not in earlier]
            placed[call.name] = _outside(call.name, earlier, later)
    return {call.name: placed[call.name] for call in trace.norms}


def _in_blocks(trace: Trace, calls: Sequence[NormCall]) -> dict[str, str]:
    """Of the norms of one stack of like blocks; norms of one name inside their blocks are placed alike."""
    votes: dict[str, Counter[str]] = {}
    for call in calls:
        votes.setdefault(_role(call), Counter())[_by_sums(trace, call)] += 1
    kinds = {}
    for role, found in votes.items():
        sure = Counter({kind: n for kind, n in found.items() if kind in ("pre", "post", "out")})
        kinds[role] = (sure or found).most_common(1)[0][0]
    number = Counter(kinds[_role(call)] for call in calls)
    parallel = _parallel(trace, calls)
    names = {"pre": "parallel" if parallel else "pre", "out": "res_post", "after": "post"}
    if number["out"] and number["out"] >= 0.5 * number["pre"] > 0:
        names = {"pre": "sandwich", "out": "sandwich", "after": "post"}
    return {call.name: names.get(kind, kind) for call in calls for kind in [kinds[_role(call)]]}


def _role(call: NormCall) -> str:
    return call.name[len(call.block or "") :]


def _by_sums(trace: Trace, call: NormCall) -> str:
    """pre, post, out (of a branch, into a sum), inner; after: of a sum, into no other, as at the end of a stack."""
    terms = {term for s in trace.sums for term in s.terms}
    summed = any(s.out == call.x for s in trace.sums)
    if call.y in terms:
        return "post" if summed and call.y in trace.used else "out"
    if call.x in terms:
        return "pre"
    return "after" if summed else "inner"


def _parallel(trace: Trace, calls: Sequence[NormCall]) -> bool:
    """Whether most blocks add several branches of one input, with no norm of a sum that they made themselves."""
    blocks = {call.block for call in calls}
    return 2 * sum(_adds_several(trace, [c for c in calls if c.block == block], block) for block in blocks) > len(
        blocks
    )


def _adds_several(trace: Trace, calls: Sequence[NormCall], block: str | None) -> bool:
    sums = [s for s in trace.sums if s.block == block]
    inputs = {call.x for call in calls}
    if any(s.out in inputs for s in sums):
        return False
    chained = any(s.out in later.terms for i, s in enumerate(sums) for later in sums[i + 1 :])
    before = [call.x for call in calls if _by_sums(trace, call) == "pre"]
    return bool(before) and (chained or len(set(before)) < len(before))


def _outside(name: str, earlier: set[str], later: Sequence[str]) -> str:
    """final where no block follows, or none of the stack that the norm's own module holds blocks of."""
    owner = name.rpartition(".")[0]
    holds = any(_inside(block, owner) for block in earlier)
    return "final" if earlier and (not later or (holds and not any(_inside(b, owner) for b in later))) else "embedding"


def _inside(name: str, outer: str) -> bool:
    return outer == "" or name.startswith(outer + ".")


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


_WORDS = {
    "pre": "Pre-LN",
    "post": "Post-LN",
    "sandwich": "norms before and after each branch (sandwich)",
    "res_post": "norms after each branch (res-post)",
    "parallel": "Pre-LN with parallel branches",
    "inner": "norms inside the branches",
}


def sentence(placed: Mapping[str, str], blocks: int) -> str:
    """Such as "12 blocks, Pre-LN, final norm present"."""
    kinds = list(dict.fromkeys(kind for kind in placed.values() if kind in _WORDS))
    if len(kinds) > 1 and "inner" in kinds:  # of queries and keys, beside those that tell the architecture
        kinds.remove("inner")
    parts = [f"{blocks} block{'' if blocks == 1 else 's'}", " and ".join(_WORDS[kind] for kind in kinds)]
    if any(placed.values()):
        parts.append("final norm present" if "final" in placed.values() else "no final norm")
    else:
        parts.append("placement unknown" if placed else "no norm layers")
    return ", ".join(part for part in parts if part)
