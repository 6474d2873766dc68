"""Scores computed by paper B's own released code (see golden/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ropescope as rs

GOLDEN = sorted(Path(__file__).with_name("golden").glob("*.npz"))
TOLERANCE = {1e-4: 1e-4, 1e-2: 1e-5, 1.0: 1e-5}


def cases(path: Path):
    """`M`, attention (B, layer, head, T), exact and released scores (B, tau, layer, head, 2) of every query position."""
    z = np.load(path)
    queries, keys = torch.tensor(z["content_queries"]), torch.tensor(z["content_keys"])
    rope = rs.Rope(queries.shape[-1], float(z["base"]), int(z["rotary_dim"]), str(z["pairing"]))
    places = [(queries.shape[-2] - 1, z["scores_exact_cosine"], z["scores"])]
    for k, n in enumerate(z["extra_queries"].tolist()):
        places.append((n, z["extra_scores_exact_cosine"][:, k], z["extra_scores"][:, k]))
    for n, exact, released in places:
        M = rs.counterfactual_logits(queries[..., n, :], keys, rope, scale=float(z["scale"]), query_position=n)
        yield n, M, z["attention"][..., n, : n + 1], exact, released


def test_all_files_are_here():
    names = [path.stem for path in GOLDEN]
    assert names == ["one_head_full_rotary", "peaked_attention", "two_heads_partial_rotary"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_scores_equal_the_released_codes_with_an_exact_cosine(path):
    taus = list(TOLERANCE)
    for _, M, _, exact, _ in cases(path):
        scores = torch.stack(rs.swap_scores(M, tau=taus), -1).movedim(0, 1).numpy()
        for k, tau in enumerate(taus):
            np.testing.assert_allclose(scores[:, k], exact[:, k], atol=TOLERANCE[tau])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_attention_is_rebuilt_from_the_diagonal(path):
    for _, M, attention, _, _ in cases(path):
        weights = M.diagonal(dim1=-2, dim2=-1).softmax(-1)
        np.testing.assert_allclose(weights, attention, atol=5e-6)


def test_released_code_is_off_where_attention_is_peaked_and_the_docs_show_by_how_much():
    rows = ["| file | query | τ = 0.0001 | τ = 0.01 | τ = 1 |", "|---|---|---|---|---|"]
    for path in GOLDEN:
        for n, _, _, exact, released in cases(path):
            errors = np.abs(released - exact).max((0, 2, 3, 4))
            rows.append(f"| {path.stem} | {n} | " + " | ".join(f"{e:.3f}" for e in errors) + " |")
    docs = (Path(__file__).parents[1] / "docs" / "released-code.md").read_text()
    assert "\n".join(rows) in docs, "\n".join(rows)
