"""The claim on families of models."""

from __future__ import annotations

from ..claims import Found, Runs, claims_in, graded

claim = claims_in("Real language models")


@claim(
    "ours-5-refused",
    "ours",
    "correctness",
    "every family",
    "Tiny random models of all rotary families: those that are accepted must predict logits after tokens really moved, "
    "1e-12 in double precision.",
)
def refused(runs: Runs) -> Found:
    """A family whose rotation is not understood is refused with a reason, never scored wrongly."""
    run = runs.one("conformance")
    verdicts, error = run.results["verdicts"], run.results["worst_logit_error"]
    text = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    fine = error <= 1e-12 and set(verdicts) <= {"verified", "refused", "not built"}
    return Found(f"{text}; worst error {error:.0e}", graded(fine), run)
