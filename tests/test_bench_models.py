"""Benchmarks of language models: memory in processes of their own, and half precision."""

import pytest
import real

import ropescope as rs

pytestmark = [pytest.mark.weights, pytest.mark.slow]
FEW = {"count": 2, "pairs": (3,)}


def test_memory():
    result = rs.run("bench", what="memory", model=str(real.folder("stories15M")), memory="300MB", dtype="float64", **FEW)
    rows = result.summary["results"]
    assert set(rows) == {"alone", "batch", "streamed", "alone_double", "batch_double"}
    assert (rows["alone"]["batches"], rows["batch"]["batches"], rows["streamed"]["batches"]) == (2, 1, 1)
    assert max(rows[way]["difference_from_alone"] for way in ("batch", "streamed")) < 1e-9
    assert rows["batch_double"]["difference_from_alone_double"] < 1e-9 < rows["alone_double"]["difference_from_alone"] < 1e-4
    assert [row["prompts_apart"] for row in rows.values()] == [0] * 5
    assert rows["streamed"]["peak_bytes"] - rows["streamed"]["bytes_at_first"] < 300e6
    assert rows["streamed"]["difference_from_batch"] == 0
    assert 0.5 < rows["streamed"]["read_bytes"] / rows["streamed"]["stored_bytes"] <= 1.6  # tied: rows, and the output matrix
    assert "streamed from disk with 300MB" in result.headline
    assert result.summary["config"]["model"]["weights"]  # their hashes
    assert 1e8 < min(row["peak_bytes"] for row in rows.values()) < 3e9


def test_precision():
    result = rs.run("bench", what="precision", model=str(real.folder("stories15M")), **FEW)
    rows = result.summary["results"]
    assert set(rows) == {"bfloat16", "float16"}
    for name, row in rows.items():
        assert 0 < row["error"] <= row["limit"]
        assert 0 < row["mean"] <= row["largest"]
        assert row["limit"] <= row["most"] < {"bfloat16": 0.1, "float16": 0.02}[name]
        assert 0 < row["single"] < 1e-5
