"""A run's server stays for who scrapes it, and for nobody else."""

from __future__ import annotations

import threading
import time

import pytest

from stabmon.server import scrapes
from stabmon.server.scrapes import Scrapes


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def waited(waiting: Scrapes, seconds: float | None = None) -> float:
    began = time.perf_counter()
    waiting.outlast(seconds)
    return time.perf_counter() - began


def test_a_run_that_nobody_scraped_ends_at_once() -> None:
    assert waited(Scrapes(lambda: b"")) < 1


@pytest.mark.parametrize(("ago", "stays"), [(119.0, True), (121.0, False)])
def test_it_stays_for_who_scraped_in_the_last_two_minutes(
    monkeypatch: pytest.MonkeyPatch, ago: float, stays: bool
) -> None:
    monkeypatch.setattr(scrapes, "LONGEST_SECONDS", 0.2)
    made = Scrapes(lambda: b"x", clock := Clock())
    assert made() == b"x"
    clock.now += ago
    assert (waited(made) >= 0.2) == stays


def test_it_stays_35_seconds_at_most() -> None:
    assert scrapes.LONGEST_SECONDS == 35


def test_the_second_scrape_after_the_end_lets_it_go() -> None:
    made = Scrapes(lambda: b"")
    made()
    waiting = threading.Thread(target=made.outlast, args=(None,))
    waiting.start()
    made()
    waiting.join(0.2)
    assert waiting.is_alive()
    made()
    waiting.join(20)
    assert not waiting.is_alive()


def test_a_given_time_is_kept_whoever_scrapes() -> None:
    made = Scrapes(lambda: b"")
    assert waited(made, 0) < 0.1
    assert 0.2 <= waited(made, 0.2) < 10
