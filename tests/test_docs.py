"""Tables in the documentation are those of the recorded runs, and so are numbers in its text."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from ropescope.studies.claims import span

ROOT = Path(__file__).parents[1]


def load(name: str):
    """A script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load("tables")
results = tables.results


def test_the_map_of_rooms_is_true():
    """Every module of the package is in the README's table, and every entry of the table exists."""
    readme = (ROOT / "README.md").read_text()
    package = ROOT / "ropescope"
    parts = [path for path in package.iterdir() if not path.name.startswith(("_", "py.typed"))]
    rooms = {path.stem if path.is_file() else f"{path.name}/" for path in parts}
    named = set(re.findall(r"^\| `([a-z/]+)` \|", readme, re.M))
    assert named == rooms


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.name)
def test_tables_are_up_to_date(page):
    text = page.read_text()
    assert tables.written(text) == text, "run `make reference`"


def test_every_table_stands_somewhere():
    """Every table is on a page, and every marker has a table: rows that nothing generates would become stale."""
    texts = [page.read_text() for page in tables.pages()]
    marked = [name for text in texts for name in re.findall(r"<!-- table: ([\w-]+) -->", text)]
    written = [found[2] for text in texts for found in tables.TABLE.finditer(text)]
    assert sorted(marked) == sorted(written) == sorted(tables.TABLES)


def test_every_defect_has_its_test():
    rows = re.findall(r"^\| .* \| (\S+)::(\S+) \|$", (ROOT / "docs" / "defects.md").read_text(), re.M)
    assert len(rows) > 30
    for file, name in rows:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), (file, name)


def test_every_fact_stands_somewhere():
    texts = [page.read_text() for page in tables.pages()]
    marked = [name for text in texts for name in re.findall(r"<!-- fact: ([\w-]+) -->", text)]
    written = [found[2] for text in texts for found in tables.FACT.finditer(text)]
    assert sorted(marked) == sorted(written)
    assert set(written) == set(tables.FACTS)


def test_a_stale_table_is_noticed():
    text = "<!-- table: benchmark -->\n| a |\n|---|\n| old |\n<!-- end of table -->\n"
    assert "| old |" not in tables.written(text)
    assert tables.written(text).startswith("<!-- table: benchmark -->\n| a |\n|---|\n| 17 |")


def test_a_stale_fact_is_noticed():
    text = "of <!-- fact: family-counts -->old<!-- end of fact --> families"
    assert re.fullmatch(r"of <!-- fact: family-counts -->\d+ of \d+<!-- end of fact --> families", tables.written(text))


# Numbers in running text


def canonical_numbers() -> list[str]:
    """Numbers in running text."""
    found = results("canonical")
    trained, small, speed = found["trained"], found["built"]["every_input"], found["speed"]
    ratios = [row["one_by_one_over_together"] for row in speed.values()]
    each = trained["crossing"]["of_seeds"]
    shapes, blind = trained["shapes"], trained["order_blind"]
    one = trained["sweeps"]["partial induction"]
    best = one["mean"].index(max(one["mean"]))
    return [
        f"{small['inputs']:,} inputs",
        f"{min(ratios):.1f} to {max(ratios):.1f} times as fast",
        f"{min(each):.3f} to {max(each):.3f} over seeds",
        *(f"{shapes[name]['ends']:.2f} at the ends and {shapes[name]['middle']:.2f} in the middle" for name in shapes),
        f"{blind['partial induction']:.3f}",
        f"{one['least'][best]:.3f} in the lowest seed; highest of any model {one['best_of_any_model']:.3f}",
    ]


def chat_numbers() -> list[str]:
    short = [results("llm-gemma3-270m")["accuracy"]["number"][n] for n in ("12", "16")]
    right, asked = (sum(cell[key] for cell in short) for key in ("right", "samples"))
    return [f"right on {right} of {asked} lists of 12 and 16 letters, where a guess would be right on {asked / 26:.0f},"]


def cue_numbers() -> list[str]:
    found = results("cues")
    preference = [row["preference"] for row in found["models"]]
    far = {
        setting: span(np.mean(row["accuracy"][-1]) for row in found["models"] if row["setting"] == setting)
        for setting in ("default", "stretch 8", "log n 2", "heads 4")
    }
    return [
        f"All {len(preference)} models match: {span(preference, '.3f')} of the answers",
        f"{far['default']} for the default model, {far['log n 2']} with log n, {far['heads 4']} with four heads and "
        f"{far['stretch 8']} with stretched positions",
        f"rank correlation of {found['predicts']['lead']:.2f} over {found['predicts']['models']} models",
    ]


def watched_numbers() -> list[str]:
    llama = results("dynamics-letter-llama")["watch-letter-llama"]
    since = zip(llama["heads"], llama["purity"]["0.1"]["since_symbolic"], strict=True)
    pure = ", ".join(f"{head} from step {step}" for head, step in since if step is not None)
    leaning = llama["kinds"]["last"]["symbolic"]
    return [f"pure symbolic are {pure}. In the end {leaning} of {len(llama['heads'])} heads are mainly symbolic"]


def fine_tuned_numbers() -> list[str]:
    from ropescope.runs import read_trajectory  # noqa: PLC0415

    run = read_trajectory(ROOT / "results" / "watch-smollm2")
    lean = run.measures["symbolic"] - run.measures["positional"]
    moved = abs(lean[-1] - lean[0])
    return [f"differ by {moved.mean():.2f} on average, and by {moved.max():.2f} in one head"]


def watching_costs() -> list[str]:
    found = results("bench-watch")
    return [
        f"Measuring the {found['heads']} heads of SmolLM2 on {found['prompts']} prompts of {found['prompt_tokens']} tokens "
        f"takes as long as {found['look_over_step']:.2f} steps of fine-tuning",
        f"{found['look_share']:.2%} of training time at the default interval of {found['every']} steps",
    ]


NUMBERS = [
    ("docs/canonical.md", canonical_numbers),
    ("docs/cues.md", cue_numbers),
    ("docs/llm.md", chat_numbers),
    ("docs/watching.md", watched_numbers),
    ("docs/watching.md", fine_tuned_numbers),
    ("docs/watching.md", watching_costs),
]


@pytest.mark.parametrize(("page", "numbers"), NUMBERS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_numbers_in_the_text_are_those_of_the_recorded_runs(page, numbers):
    text = (ROOT / page).read_text()
    for expected in numbers():
        assert expected in text, expected
