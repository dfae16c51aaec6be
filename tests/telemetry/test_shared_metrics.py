"""The folder in which workers keep their metrics together."""

import os
from pathlib import Path

import pytest

from edge.telemetry.shared_metrics import (
    FOLDER_VARIABLE,
    abandon_folder,
    forget_gauges,
    hold_folder,
    metrics_folder,
)


def test_the_folder_is_there_for_the_block_and_gone_after_it() -> None:
    with metrics_folder() as folder:
        (folder / "counter_1.db").write_bytes(b"x")
        with metrics_folder() as other:
            assert other != folder

    assert not folder.exists()


def test_only_what_was_so_in_an_ended_worker_is_forgotten(tmp_path: Path) -> None:
    kept = {"counter_7.db", "histogram_7.db", "gauge_livesum_17.db", "gauge_livemin_8.db"}
    gone = {"gauge_livesum_7.db", "gauge_livemin_7.db", "gauge_livemax_7.db"}
    for name in kept | gone:
        (tmp_path / name).touch()

    forget_gauges(tmp_path, 7)

    assert {path.name for path in tmp_path.iterdir()} == kept


def test_the_last_worker_takes_the_folder_of_a_dead_supervisor_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    abandon_folder(hold_folder())  # where there is none, nothing happens
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    first, last = hold_folder(), hold_folder()
    assert first is not None
    assert last is not None

    abandon_folder(first)
    assert folder.exists()
    abandon_folder(last)
    assert not folder.exists()
    os.close(first)
    os.close(last)


def test_a_worker_that_was_killed_holds_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "metrics"))
    (tmp_path / "metrics").mkdir()
    killed, held = hold_folder(), hold_folder()
    assert killed is not None
    assert held is not None
    os.close(killed)  # as the kernel does, though nobody has waited for the process yet

    abandon_folder(held)
    os.close(held)

    assert not (tmp_path / "metrics").exists()
