"""How a run shows itself in a notebook: parsed as a browser would."""

import base64
import math
import struct
import zlib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import stabmon
from stabmon.notebook import OpenedRun
from stabmon.notebook.chart import Curve, Mark, chart
from stabmon.notebook.heatmap import NOT_FINITE, VIRIDIS, picture
from stabmon.records import Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter
from tests.server.recorded import STARTED, Writing, alert

HOSTILE = '<img src=x onerror="alert(1)"></script>\U0001f525&amp;'


class Page(HTMLParser):
    """What there is to see, which elements, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen, self.tags, self.open = "", Counter[str](), list[str]()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.seen += data


def shown(path: Path) -> Page:
    run = stabmon.open(path)
    assert isinstance(run, OpenedRun)
    page = Page(run._repr_html_())
    assert page.open == []
    return page


def pixels(uri: str) -> tuple[list[list[str | None]], bytes]:
    """The colours of a PNG with a palette, row by row; None where it is transparent."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        chunks[kind], at = body, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    flat = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)[:, 1:]
    palette = [chunks[b"PLTE"][i : i + 3].hex() for i in range(0, len(chunks[b"PLTE"]), 3)]
    return [[palette[i] if i else None for i in row] for row in flat.tolist()], chunks[b"tRNS"]


def test_it_shows_verdict_loss_baselines_layers_and_alerts(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(80, alerts=[alert(80)])
    writing.close()
    page = shown(writing.path)
    verdict = stabmon.open(writing.path).verdict
    for words in ("r1 · Tiny · finished, step 80", verdict.title, verdict.text, "bigram loss"):
        assert words in page.seen
    assert "norm_input_msq of 2 layers, the last (h.1.ln) on top, steps 1 to 80: 1" in page.seen
    assert "critical · context_stall · since step 78, layer 1 (h.1.ln)" in page.seen
    assert "Cut the learning rate" in page.seen
    assert page.tags["svg"] == page.tags["img"] == page.tags["details"] == 1
    assert page.tags["li"] == 2


def test_it_needs_no_script_no_style_sheet_and_no_network(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(3, alerts=[alert(3)])
    page = shown(writing.path)
    assert not {"script", "style", "link", "iframe", "a"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on")]
    addresses = [value or "" for name, value in page.attributes if name in ("src", "href")]
    assert [address[:22] for address in addresses] == ["data:image/png;base64,"]


def test_names_with_html_are_text(tmp_path: Path) -> None:
    writer = RunLogWriter(tmp_path / "r.stabmon", Run(HOSTILE, started=STARTED, model=HOSTILE))
    layout = Layout((("loss", ""), ("norm_input_msq", HOSTILE)), (Site(HOSTILE, 0, "ln"),))
    told = [alert(1, site=HOSTILE, layer=0, action=HOSTILE, cause=HOSTILE, remedies=(HOSTILE,), detector=HOSTILE)]
    told[0] = alert(1, site=HOSTILE, action=HOSTILE, cause=HOSTILE, remedies=(HOSTILE,), evidence={HOSTILE: 1.0})
    writer.emit(Snapshot(1, STARTED, np.array([2, 3], dtype=np.float32), layout), told, ())
    writer.close("finished")
    page = shown(tmp_path / "r.stabmon")
    assert page.tags["img"] == 1
    assert not [value for name, value in page.attributes if name == "onerror"]
    # Name, model, layer, where the alert is, what it says in the verdict, cause, evidence, remedy.
    assert page.seen.count("onerror") >= 7
    assert "\U0001f525&amp;" in page.seen


def test_evidence_that_is_not_finite_is_said_to_be_so(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r.stabmon")
    writing.step(3, alerts=[alert(3, evidence={"loss": math.inf})])
    assert "Evidence: loss not finite" in shown(writing.path).seen


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 1e-38, 3e38])
def test_any_value_can_be_shown(tmp_path: Path, value: float) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    names = ("bigram_loss", "unigram_loss", "uniform_loss", "norm_input_msq", "norm_gain", "grad_sq")
    writing.step(3, loss=value, **dict.fromkeys(names, value))
    seen = shown(writing.path).seen
    assert "step 3" in seen
    assert "nan" not in seen


@pytest.mark.parametrize("steps", [0, 1])
def test_an_empty_run_and_one_of_one_step_are_shown(tmp_path: Path, steps: int) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(steps)
    page = shown(writing.path)
    assert f"running, step {steps}" in page.seen
    assert page.tags["svg"] == page.tags["img"] == steps


def test_a_run_log_that_is_gone_is_shown_as_last_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stabmon.server.standing.POLL_SECONDS", 0.0)
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(5)
    run = stabmon.open(writing.path)
    writing.close()
    writing.path.unlink()
    seen = Page(run._repr_html_()).seen
    assert "As last seen; now: there is no run log" in seen
    assert "step 5" in seen


def test_a_picture_has_a_pixel_a_cell_the_last_layer_on_top() -> None:
    found = picture([[1.0, None, 10.0], [None, 100.0, math.inf]])
    assert found is not None
    uri, low, high = found
    assert (low, high) == (1.0, 100.0)
    rows, transparent = pixels(uri)
    # Halfway on a logarithmic scale is 10: between the fifth and the sixth of ten colours.
    middle = [(a + b) / 2 for a, b in zip(bytes.fromhex(VIRIDIS[4]), bytes.fromhex(VIRIDIS[5]), strict=True)]
    assert rows[0] == [None, VIRIDIS[-1], NOT_FINITE]
    assert rows[1][:2] == [VIRIDIS[0], VIRIDIS[0]]
    assert bytes.fromhex(rows[1][2] or "") == pytest.approx(middle, abs=1)
    assert transparent == b"\0"


def test_a_picture_of_nothing_is_none() -> None:
    assert picture([]) is picture([[None, math.inf, 0.0]]) is None


def test_a_curve_is_where_its_values_are_and_breaks_where_nothing_was_read() -> None:
    curve = Curve("loss", "#000", [0, 10, 20, 30], [1.0, None, 3.0, 2.0], [1.0, None, 5.0, math.inf])
    drawn = chart("t", [curve], [Mark(10, "#f00", "<b>")])
    # 0 to 30 steps from x = 56 to 748, 1 to 5 from y = 212 up to 12.
    assert 'd="M56.0 212.0M517.3 112.0L517.3 12.0L748.0 162.0"' in drawn
    assert "M286.7 12V212" in drawn
    assert "<title>&lt;b&gt;</title>" in drawn


def test_a_wide_range_is_drawn_logarithmically() -> None:
    drawn = chart("t", [Curve("loss", "#000", [0, 1, 2], [0.1, 1, 10], [0.1, 1, 10])], [])
    assert 'd="M56.0 212.0L402.0 112.0L748.0 12.0"' in drawn
    assert [label in drawn for label in (">0.1<", ">1<", ">10<")] == [True] * 3
