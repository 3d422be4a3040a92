"""Sites of the parts of a block that are no norm: attention layers, routers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stabmon.records import Site


def sublayer_sites(names: Iterable[str], blocks: Sequence[str], norms: Mapping[str, Site]) -> dict[str, Site]:
    """Site of each module: the number of its block, which is known from the block's norms, and its path inside it.

    A module that is a block itself has the block's site.
    """
    owner = {name: next((b for b in blocks if f"{name}.".startswith(f"{b}.")), None) for name in names}
    layers = {block: site.layer for name, site in norms.items() for block in blocks if name.startswith(f"{block}.")}
    return {
        name: Site(name, layers.get(block or ""), _role(name[len(block) + 1 :] if block else name))
        for name, block in owner.items()
    }


def _role(path: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path)
    return re.sub(r"[^a-z0-9]+", "_", snake.lower()).strip("_") or "block"
