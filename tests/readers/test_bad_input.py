"""Whatever a file is, reading it ends in a message that says what was found and what to do."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stabmon.readers import ReadError, found, opened
from tests.readers.made import json_lines, nanogpt
from tests.readers.reading import read


def refused(content: bytes) -> str:
    with pytest.raises(ReadError) as caught:
        read(content)
    message = str(caught.value)
    assert "\n" not in message
    return message


def archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("log.txt", "iter 0: loss 3.0, time 1ms")
    return packed.getvalue()


def tape() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        log = b"step,loss\n" + b"".join(b"%d,2.5\n" % step for step in range(5000))
        about = tarfile.TarInfo("log.csv")
        about.size = len(log)
        file.addfile(about, io.BytesIO(log))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (archive(), "is a zip archive"),
        (tape(), "is a tar archive; unpack it"),
        (gzip.compress(tape()), "is a tar archive; unpack it"),
        (b"\x28\xb5\x2f\xfd" + bytes(50), "is packed with zstd"),
        (b"SQLite format 3\0" + bytes(84), "is a database"),
        (bytes(range(256)) * 20, "is binary"),
        (b"once upon a time\nthere was a file\n", "begins with 'once upon a time'"),
        (b"a,b,c\n1,2,3\n4,5,6\n", "begins with 'a,b,c'"),
        (b'{"a": 1}\n{"a": 2}\n', "name the loss with --loss"),
        (b'{"log_history": []}', "has no whole entry: nothing was logged"),
        (b'{"log_history": [{"step": 1, "lo', "is cut off before the end of the first"),
        (bytes(5000), "holds only zero bytes"),
        (b"x" * (9 << 20), "begins with a line of more than 4 million characters"),
        ((",".join(["step", "loss", *map(str, range(900_000))]) + "\n1,2\n").encode(), "more than 4 million"),
        (b'{"log_history": [{"step": 1, "learning_rate": 0.1}]}', "train with logging_steps"),
        (b"step,loss\n1,\n2,\n3,\n", "holds no loss"),
        (b" iteration 10/ 100 | learning rate: 1.0E-04 | throughput: 9.5 |\n" * 9, "holds no loss"),
        (b"[" * 100_000, "holds no losses"),
        (b'{"a":' * 100_000, "holds no losses"),
        (gzip.compress(b"hello"), "begins with 'hello'"),
        (b"\x1f\x8b\x08garbage", "is a damaged gz file"),
        (gzip.compress(gzip.compress(b"step,loss\n1,2\n")), "is packed twice"),
    ],
)
def test_what_is_no_log_is_refused(content: bytes, said: str) -> None:
    message = refused(content)
    assert said in message
    assert message.startswith("standard input ")


def test_a_refusal_tells_what_can_be_read() -> None:
    assert "trainer_state.json" in refused(b"hello\n")
    assert "*.stabmon" in refused(b"hello\n")


def test_a_bomb_is_refused_before_it_has_unpacked() -> None:
    row = b'{"step": 1, "loss": 2}\n'
    bomb = gzip.compress(row * 2 + b" " * (70 << 20), 9)
    assert len(bomb) < 1 << 20
    assert "unpacks to more than 250 times its size" in refused(bomb)


def test_a_bomb_of_tiny_rows_is_refused_before_millions_of_them_are_read() -> None:
    with pytest.raises(ReadError, match="unpacks to more than 250 times its size"):
        read(gzip.compress(b"step,loss\n" + b"1,2\n" * (9 << 18), 9))


def test_a_pipe_that_has_a_path_is_read_whole(tmp_path: Path) -> None:
    """As the shell's <(ssh host cat log): what was taken from it to look at does not come again."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    text = nanogpt().text
    with ThreadPoolExecutor(1) as pool:
        pool.submit(path.write_text, text)
        part = opened(path)
        assert len(list(part.feeds())) == len(list(opened(io.BytesIO(text.encode())).feeds()))
    assert part.run.name == "pipe"


@pytest.mark.parametrize("name", ["a\x1b[31mb.csv", "a\nb.csv", "a\x9bb.csv", "a\u202eb.csv", "a\udcffb.csv"])
def test_a_name_holds_nothing_that_a_terminal_acts_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("step,loss\n1,2\n")
    assert opened(path).run.name == name.translate(dict.fromkeys(b"\x1b\n\x9b", "\ufffd")).replace(
        "\u202e", "\ufffd"
    ).replace("\udcff", "\ufffd")


def test_a_gz_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    made = "".join(f'{{"step": {i}, "loss": {2 + hash(str(i)) % 1000 / 1000}}}\n' for i in range(20_000))
    packed = gzip.compress(made.encode())
    part = read(packed[: len(packed) // 2])
    assert 5_000 < len(part.losses) < 15_000
    assert "gz file is damaged or cut off" in part.notes


@pytest.mark.parametrize("make", [json_lines, nanogpt])
def test_a_line_that_is_cut_off_is_left_out(make: object) -> None:
    assert callable(make)
    text = make().text.rstrip("\n")
    whole, cut = read(text), read(text.rpartition("\n")[0] + '\n{"step": 400, "trai')
    assert len(whole.losses) - len(cut.losses) in (0, 1)


def test_one_line_that_never_ends_is_left_out() -> None:
    text = (
        b"iter 0: loss 3.0, time 1ms\niter 1: loss 2.5, time 1ms\n" + b"x" * (9 << 20) + b"\niter 2: loss 2.0, time 1ms"
    )
    part = read(text)
    assert [step for step, _ in part.losses][:2] == [0, 1]
    assert "was left out" in part.notes


@pytest.mark.parametrize(
    "line", ["iter 1: loss " + "1" * 30_000, "[step=1/1" * 3_000, "| a a" * 6_000, "step " * 6_000]
)
def test_lines_made_to_be_slow_are_not(line: str) -> None:
    """Each is read within the test's time; a pattern that backtracks would take hours."""
    assert read("\n".join(["iter 0: loss 3.0, time 1ms", *[line] * 3])).losses == [(0, 3)]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    for open_ in (lambda: opened(tmp_path / "x.json"), lambda: found([str(tmp_path / "x.json")])):
        with pytest.raises(ReadError, match=r"x\.json is not there; give a file, a folder, or - for standard input"):
            open_()
    with pytest.raises(ReadError, match=r"nothing matches .*\*\.json"):
        found([str(tmp_path / "*.json")])


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="is a folder without a run; it may hold trainer_state.json"):
        found([str(tmp_path)])
    with pytest.raises(ReadError, match="is a folder, and no run by itself"):
        opened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,2\n")
    path.chmod(0)
    with pytest.raises(ReadError, match=r"log\.csv may not be read by you \(permission denied\)"):
        opened(path)


def test_a_denied_file_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,2\n")
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ReadError, match=r"log\.csv may not be read by you \(permission denied\)"):
        opened(path)


def test_a_device_or_a_loop_of_links_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    os.mkfifo(tmp_path / "pipe")
    assert found([str(tmp_path)]) == [tmp_path / "run.csv"]
    with pytest.raises(ReadError, match="is not there|cannot be read"):
        opened(tmp_path / "self")
