"""The folder in which workers keep their metrics together."""

from pathlib import Path

import pytest

from edge.telemetry.shared_metrics import (
    FOLDER_VARIABLE,
    abandon_folder,
    forget_gauges,
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


def test_a_folder_whose_supervisor_has_died_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    abandon_folder()  # where there is none, nothing happens
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    abandon_folder()
    abandon_folder()

    assert not folder.exists()
