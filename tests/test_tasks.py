import doctest
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from ropescope.tasks import LetterTask, MultihopTask, NumberTask, Samples, letter, multihop, number, split

BOTH = pytest.mark.parametrize("task", [NumberTask(), LetterTask()], ids=["number", "letter"])


@st.composite
def tasks(draw: st.DrawFn) -> MultihopTask:
    targets, stops = draw(st.integers(1, 9)), draw(st.integers(0, 9))
    hops = draw(st.integers(1, min(stops + 1, 6)))
    windows = {"targets": targets, "stops": stops, "hops": hops}
    if draw(st.booleans()):
        integers = targets + stops + draw(st.integers(0, 3))
        return NumberTask(**windows, letters=draw(st.integers(1, 40)), integers=integers)
    return LetterTask(**windows, alphabet=hops + 2 + draw(st.integers(0, 5)), digits=draw(st.integers(1, 12)))


def position(samples: Samples) -> np.ndarray:
    found: np.ndarray = samples.path[np.arange(len(samples)), samples.hops]
    return found


def assert_balanced(task: MultihopTask, samples: Samples) -> None:
    """At most one between any two cells, and between any two values of hops, position and answer alone."""
    cells = np.zeros((task.hops, task.targets, task.answers), dtype=np.int64)
    np.add.at(cells, (samples.hops - 1, position(samples), samples.answer), 1)
    assert np.ptp(cells) <= 1
    for others in ((1, 2), (0, 2), (0, 1)):
        assert np.ptp(cells.sum(axis=others)) <= 1


def assert_solved(task: MultihopTask, samples: Samples) -> None:
    found = task.solve(samples.tokens)
    np.testing.assert_array_equal(found.answer, samples.answer)
    np.testing.assert_array_equal(found.hops, samples.hops)
    np.testing.assert_array_equal(found.path, samples.path)


def assert_uniform(counts: np.ndarray, chances: np.ndarray | float) -> None:
    """Counts as expected up to five standard deviations each."""
    expected = counts.sum() * np.asarray(chances)
    assert np.all(np.abs(counts - expected) <= 5 * np.sqrt(expected * (1 - np.asarray(chances))))


def off_path(samples: Samples) -> np.ndarray:
    free = np.ones(samples.tokens.shape, dtype=bool)
    rows, step = np.nonzero(samples.path >= 0)
    free[rows, samples.path[rows, step]] = False
    return free


# Vocabulary and text


def test_vocabulary_of_the_number_task() -> None:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    bigrams = [x + y for x, y in product(alphabet, alphabet)]
    names = NumberTask().vocabulary
    assert list(names) == [*alphabet, *bigrams[: bigrams.index("dp") + 1], *(str(i) for i in range(1, 17))]
    assert (names[0], names[25], names[26], names[119], names[120], names[135]) == ("a", "z", "aa", "dp", "1", "16")
    assert NumberTask().vocab_size == 136


def test_vocabulary_of_the_letter_task() -> None:
    pairs = [x + y for second in ("12345678", "abcdefgh") for x in "abcdefgh" for y in second]
    assert list(LetterTask().vocabulary) == pairs
    assert LetterTask().vocab_size == 128


@given(tasks(), st.data())
def test_names_and_ids_are_each_others_inverse(task: MultihopTask, data: st.DataObject) -> None:
    assert len(set(task.vocabulary)) == task.vocab_size
    ids = data.draw(st.lists(st.integers(0, task.vocab_size - 1)))
    names = task.decode(ids)
    assert task.encode(names).tolist() == task.encode(" ".join(names)).tolist() == ids


def test_text_that_is_no_text_of_the_task_is_refused() -> None:
    with pytest.raises(ValueError, match="'17' is not a token"):
        NumberTask().encode("a 17")
    with pytest.raises(ValueError, match="between 0 and 127"):
        LetterTask().decode([0, 128])
    with pytest.raises(ValueError, match="between 0 and 127"):
        LetterTask().solve(np.array([[0, -1]]))


def test_render_marks_the_path() -> None:
    text = LetterTask(alphabet=9).render(LetterTask(alphabet=9).encode("b1 c2 a3 dc ab ed"), [5, 3, 1, -1, -1])
    assert text.splitlines() == ["b1 c2 a3 dc ab ed", "   2     1     0", "answer c2 in 2 hops: ed → dc → c2"]


@pytest.mark.parametrize("module", [multihop, number, letter])
def test_examples_in_the_documentation(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


# The solver


@pytest.mark.parametrize(
    ("task", "text", "answer", "path"),
    [
        (NumberTask(targets=3, stops=5, letters=3, integers=8), "C B A 1 4 1 3 2 1", "c", [8, 7, 5, 4, 0]),
        (LetterTask(targets=3, stops=5, alphabet=9, digits=3), "C2 B1 A3 FA EC DE HF GD IG", "c2", [8, 7, 5, 4, 0]),
        (NumberTask(), "C B A 1 4 1 3 2 8", "c", [8, 0, -1, -1, -1]),
        (LetterTask(), "C2 B1 A3 FA EC DE HF GC HB", "b1", [8, 1, -1, -1, -1]),
        # What lies off the path, or later than the token that points, does not matter.
        (NumberTask(), "A B 16 16 3", "b", [4, 1, -1, -1, -1]),
        (LetterTask(), "A1 B1 B2 CA AA DC", "a1", [5, 3, 0, -1, -1]),
    ],
)
def test_worked_examples(task: MultihopTask, text: str, answer: str, path: list[int]) -> None:
    found = task.solve(task.encode(text.lower()))
    assert task.decode(found.answer) == [answer]
    assert found.path.tolist() == [path]
    assert found.hops.tolist() == [sum(p >= 0 for p in path) - 1]


@pytest.mark.parametrize(
    ("task", "good", "bad", "reason"),
    [
        (NumberTask(), "a b 1 2 1", "a b 1 2 5", "'5' at position 4 points to 0 earlier tokens"),
        (NumberTask(), "a b 1 2 1", "a b 4 3 2", "'4' at position 2 points to 0 earlier tokens"),
        (NumberTask(), "a b 1 2 1", "a b 1 2 c", "ends in the target 'c'"),
        (NumberTask(hops=2), "a b 1 2 1", "a b 1 1 1", "no target within 2 hops"),
        (LetterTask(), "a1 b1 cb dc", "a1 b1 cb df", "'df' at position 3 points to 0 earlier tokens"),
        (LetterTask(), "a1 b1 cb dc", "a1 b1 cb dd", "'dd' at position 3 points to 0 earlier tokens"),
        (LetterTask(), "a1 b1 cb dc", "b2 b1 cb dc", "'cb' at position 2 points to 2 earlier tokens"),
        (LetterTask(), "a1 b1 cb dc", "a1 b1 cb d1", "ends in the target 'd1'"),
        (LetterTask(hops=2), "a1 b1 ea cb dc", "a1 b1 ca ec de", "no target within 2 hops"),
    ],
)
def test_solver_names_the_malformed_row(task: MultihopTask, good: str, bad: str, reason: str) -> None:
    rows = np.stack((task.encode(good), task.encode(bad)))
    task.solve(rows[:1])
    with pytest.raises(ValueError, match=f"row 1 .*{reason}"):
        task.solve(rows)


def test_solver_needs_a_token() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        NumberTask().solve(np.empty((3, 0), dtype=np.int64))


# The sampler


@given(tasks(), st.integers(1, 400), st.integers(0, 2**32), st.integers(0, 30))
@settings(max_examples=100)
def test_any_size_is_balanced_and_solvable(task: MultihopTask, count: int, seed: int, extra: int) -> None:
    samples = task.sample(count, seed, extra)
    assert samples.tokens.shape == (count, extra + task.length)
    assert samples.path.shape == (count, task.hops + 1)
    assert_solved(task, samples)
    samples.path[samples.path >= 0] -= extra
    assert position(samples).min() >= 0
    assert position(samples).max() < task.targets
    assert_balanced(task, samples)


@BOTH
@pytest.mark.parametrize("count", [48_000, 7_681, 3_839, 200, 3, 1])
def test_balance_and_solver_on_full_and_odd_counts(task: MultihopTask, count: int) -> None:
    samples = task.sample(count, seed=count)
    assert len(samples) == count
    assert_balanced(task, samples)
    assert_solved(task, samples)


@BOTH
def test_shape_of_the_full_task(task: MultihopTask) -> None:
    samples = task.sample(3_840, seed=0)
    assert all(array.dtype == np.int64 for array in (samples.tokens, samples.answer, samples.hops, samples.path))
    assert samples.tokens.shape == (3_840, 17)
    assert np.all((samples.tokens < task.answers) == (np.arange(17) < 8))
    assert np.all(samples.path[:, 0] == 16)
    going = samples.path[:, 1:] >= 0
    assert np.all(going.sum(1) == samples.hops)
    assert np.all(np.diff(samples.path, axis=1)[going] < 0)
    # The order carries no information: hop classes are mixed.
    assert len(np.unique(samples.hops[:50])) == 4
    some = samples[[5, 7]]
    assert isinstance(some, Samples)
    assert some.tokens.tolist() == samples.tokens[[5, 7]].tolist()
    assert some.path.tolist() == samples.path[[5, 7]].tolist()


@BOTH
def test_a_seed_is_the_data(task: MultihopTask) -> None:
    one, same, other = task.sample(500, seed=3), task.sample(500, seed=3), task.sample(500, seed=4)
    for field in ("tokens", "answer", "hops", "path"):
        np.testing.assert_array_equal(getattr(one, field), getattr(same, field))
        assert not np.array_equal(getattr(one, field), getattr(other, field))


@BOTH
def test_extra_targets_only_lengthen_the_front(task: MultihopTask) -> None:
    short, longer, longest = (task.sample(2_000, seed=5, extra=extra) for extra in (0, 40, 100))
    np.testing.assert_array_equal(longer.tokens[:, 40:], short.tokens)
    np.testing.assert_array_equal(longest.tokens[:, 60:], longer.tokens)
    np.testing.assert_array_equal(np.where(longer.path < 0, -1, longer.path - 40), short.path)
    np.testing.assert_array_equal(longer.answer, short.answer)
    assert longest.tokens[:, :100].max() < task.answers
    assert_solved(task, longest)


def test_letters_of_the_path_are_nowhere_else() -> None:
    task = LetterTask()
    samples = task.sample(20_000, seed=6, extra=20)
    names = np.array(task.vocabulary)[samples.tokens]
    first, second = names.astype("U1"), np.array([name[1] for name in task.vocabulary])[samples.tokens]
    free = off_path(samples)
    for step in range(task.hops + 1):
        rows = np.flatnonzero(samples.hops >= step)
        mine = first[rows, samples.path[rows, step]][:, None]
        assert np.all((first[rows] == mine).sum(1) == 1)
        assert not np.any(free[rows] & (second[rows] == mine))


@BOTH
def test_stops_are_uniform_over_sets(task: MultihopTask) -> None:
    samples = task.sample(96_000, seed=7)
    for hops, sets in ((2, 8), (3, 28), (4, 56)):
        _, counts = np.unique(samples.path[samples.hops == hops, 1:hops], axis=0, return_counts=True)
        assert len(counts) == sets
        assert_uniform(counts, 1 / sets)


def test_fillers_of_the_number_task_are_uniform() -> None:
    task = NumberTask()
    samples = task.sample(100_000, seed=8, extra=3)
    free = off_path(samples)
    for place in range(11):
        counts = np.bincount(samples.tokens[free[:, place], place], minlength=120)
        assert len(counts) == 120
        assert_uniform(counts, 1 / 120)
    for place in range(11, 19):
        before = place - 3  # positions of the windows: the first stop can only point to the 8 targets
        counts = np.bincount(samples.tokens[free[:, place], place] - 120, minlength=before)
        assert len(counts) == before
        assert_uniform(counts, 1 / before)


def test_fillers_of_the_letter_task_are_uniform() -> None:
    task = LetterTask()
    samples = task.sample(100_000, seed=9, extra=3)
    free = off_path(samples)
    of = {name: np.array([ord(token[side]) for token in task.vocabulary]) for side, name in enumerate(("first", "second"))}
    on_path = np.zeros((len(samples), 8), dtype=bool)
    rows, step = np.nonzero(samples.path >= 0)
    on_path[rows, of["first"][samples.tokens[rows, samples.path[rows, step]]] - ord("a")] = True
    for hops in range(1, 5):
        kind, fillers = samples.hops == hops, 7 - hops
        assert np.all(on_path[kind].sum(1) == hops + 1)
        # A free letter's rank among the free letters of its row says which of them was drawn.
        rank = np.cumsum(~on_path[kind], axis=1) - 1
        for place in range(19):
            mine = free[kind, place]
            tokens = samples.tokens[kind, place][mine]
            drawn = rank[mine][np.arange(len(tokens)), of["first"][tokens] - ord("a")]
            if place < 11:
                drawn, kinds = drawn * 8 + of["second"][tokens] - ord("1"), fillers * 8
            else:
                second = rank[mine][np.arange(len(tokens)), of["second"][tokens] - ord("a")]
                drawn, kinds = drawn * fillers + second, fillers**2
            counts = np.bincount(drawn, minlength=kinds)
            assert len(counts) == kinds
            assert_uniform(counts, 1 / kinds)


@BOTH
def test_fillers_of_a_row_are_independent(task: MultihopTask) -> None:
    samples = task.sample(200_000, seed=12, extra=1)
    free = off_path(samples)
    for hops, place in product(range(1, 5), (*range(8), *range(9, 16))):
        rows = (samples.hops == hops) & free[:, place] & free[:, place + 1]
        equal = np.count_nonzero(samples.tokens[rows, place] == samples.tokens[rows, place + 1])
        free_letters = 7 - hops
        target, stop = (120, place) if isinstance(task, NumberTask) else (free_letters * 8, free_letters**2)
        kinds = target if place < 8 else stop
        assert_uniform(np.array([equal, np.count_nonzero(rows) - equal]), np.array([1 / kinds, 1 - 1 / kinds]))


def test_letters_of_the_path_are_uniform() -> None:
    task = LetterTask()
    samples = task.sample(64_000, seed=10)
    first = np.array([ord(name[0]) for name in task.vocabulary]) - ord("a")
    four = samples[samples.hops == 4]
    query, answer = first[four.tokens[:, 16]], first[four.answer]
    counts = np.bincount(query * 8 + answer, minlength=64).reshape(8, 8)
    assert np.all(counts.diagonal() == 0)
    assert_uniform(counts[~np.eye(8, dtype=bool)], 1 / 56)


# Splits


def rows_of(samples: Samples) -> set[bytes]:
    return {row.tobytes() for row in samples.tokens}


def assert_disjoint(parts: dict[str, Samples]) -> None:
    train, validation, test = (rows_of(parts[name]) for name in ("train", "validation", "test"))
    assert not train & validation
    assert not train & test
    assert not validation & test


@pytest.mark.slow
@BOTH
def test_splits_of_the_full_task(task: MultihopTask) -> None:
    parts = split(task, seed=1)
    assert {name: len(part) for name, part in parts.items()} == {"train": 432_000, "validation": 2_400, "test": 45_600}
    assert_disjoint(parts)
    for part in parts.values():
        assert_balanced(task, part)
        assert_solved(task, part)


@pytest.mark.parametrize(
    "task",
    [
        NumberTask(targets=2, stops=2, hops=2, letters=3, integers=4),
        LetterTask(targets=2, stops=1, hops=1, alphabet=3, digits=3),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_splits_share_nothing_even_when_sequences_are_scarce(task: MultihopTask, seed: int) -> None:
    sizes = (400, 7, 11)
    assert rows_of(task.sample(sizes[0], seed)) & rows_of(task.sample(sizes[2], seed + 1))  # independent draws do share
    parts = split(task, sizes, seed)
    assert tuple(map(len, parts.values())) == sizes
    assert_disjoint(parts)
    for part in parts.values():
        assert_balanced(task, part)
        assert_solved(task, part)


def test_a_split_is_its_seed() -> None:
    one, same, other = (split(LetterTask(), (60, 20, 20), seed=seed) for seed in (0, 0, 1))
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(one[name].tokens, same[name].tokens)
        assert not np.array_equal(one[name].tokens, other[name].tokens)


def test_splits_with_too_few_sequences_are_refused() -> None:
    # A 2-hop cell of this task is one letter away from being fixed: two sequences cannot serve three parts.
    with pytest.raises(ValueError, match="more distinct sequences than this task has"):
        split(NumberTask(targets=2, stops=1, hops=2, letters=2, integers=3), sizes=(64, 64, 64))


# Impossible sizes


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: NumberTask(targets=0), "targets must be at least 1"),
        (lambda: LetterTask(stops=-1), "stops must be at least 0"),
        (lambda: NumberTask(hops=0), "hops must be at least 1"),
        (lambda: LetterTask(stops=2, hops=4), "hops is 4 but stops only 2.*hops to at most 3 or stops to at least 3"),
        (lambda: NumberTask(letters=0), "letters must be at least 1"),
        (lambda: NumberTask(letters=703), "letters is 703 but only 702"),
        (lambda: NumberTask(integers=15), "integers is 15 but .*targets \\+ stops = 16"),
        (lambda: LetterTask(alphabet=5), "alphabet is 5 but .*at least 6"),
        (lambda: LetterTask(alphabet=27), "alphabet must be at most 26"),
        (lambda: LetterTask(digits=0), "digits must be at least 1"),
        (lambda: NumberTask().sample(0, seed=0), "count must be at least 1"),
        (lambda: LetterTask().sample(1, seed=0, extra=-1), "extra must be at least 0"),
        (lambda: split(NumberTask(), sizes=(10, 0, 5)), "sizes \\(validation\\) must be at least 1"),
        (lambda: split(NumberTask(), sizes=(10, 5)), "sizes must be three numbers"),
    ],
)
def test_impossible_sizes_are_refused_with_the_reason(make: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()  # type: ignore[operator]


def test_the_edge_of_the_possible_is_possible() -> None:
    for task in (
        NumberTask(letters=702, integers=16, stops=8, hops=9),
        LetterTask(alphabet=6),
        LetterTask(alphabet=26, stops=3),
    ):
        assert_solved(task, task.sample(2_000, seed=11))


def test_tasks_need_no_torch() -> None:
    code = "import sys, ropescope.tasks; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("task", [NumberTask(), LetterTask()], ids=["number", "letter"])
@pytest.mark.parametrize("extra", [0, 30])
def test_groups_behind_one_front_are_samples_like_any(task, extra):
    """Each group has one front and one hop count, its tokens still solve to its answers, and no filler touches the path."""
    samples = task.sample(420, seed=3, extra=extra)
    groups = list(task.behind_one_front(samples, 16))
    assert sum(map(len, groups)) == 420
    assert max(map(len, groups)) == 16
    for group in groups:
        assert len(np.unique(group.hops)) == 1
        assert (group.tokens[:, :extra] == group.tokens[0, :extra]).all()
        found = task.solve(group.tokens)
        assert (found.answer == group.answer).all()
        assert (found.path == group.path).all()
    # Renaming keeps what is equal equal, so each row is still one of the original ones up to letters.
    first = next(task.behind_one_front(samples, 16))
    rows = np.flatnonzero(samples.hops == first.hops[0])[:16]
    for row, tokens in zip(samples.tokens[rows][:, extra:], first.tokens[:, extra:], strict=True):
        assert ((row[:, None] == row) == (tokens[:, None] == tokens)).all()


def test_answers_behind_one_front_stay_uniform():
    """Judged by the last row of each group, as rows of one group are alike."""
    task = LetterTask()
    groups = task.behind_one_front(task.sample(6_400, seed=1, extra=1), 4)
    answers = np.array([group.answer[-1] for group in groups])
    assert chisquare(np.bincount(answers, minlength=task.answers)).pvalue > 1e-4
