"""The redundant task: counting and matching lead along the same path, in samples; to different answers, where cues conflict."""

import doctest

import numpy as np
import pytest
from scipy.stats import chisquare

from ropescope.studies.chat.grid import Grid
from ropescope.studies.task_models import chosen_tasks
from ropescope.tasks import RedundantTask, redundant, split, task_class, task_names, trainable_class
from ropescope.tasks.functions import ideal_layers
from ropescope.tasks.redundant import conflicting, scrambled

TASK = RedundantTask()
SIZES = (TASK, RedundantTask(targets=3, stops=5, hops=4, alphabet=9, digits=2), RedundantTask(stops=0, hops=1, targets=2))


def walk(names: list[str], cue: str) -> list[int]:
    """The slow solver: positions from the last token to a target by one cue; it ends early where that leads to no one token."""
    path = [len(names) - 1]
    while len(name := names[path[-1]]) > 2 and len(path) < 10:
        here = path[-1]
        matches = [at for at in range(here) if names[at][0] == name[1]]
        found = [here - int(name[2:])] if cue == "integers" else matches
        if len(found) != 1 or found[0] < 0:
            break
        path += found
    return path


def walks(task: RedundantTask, tokens: np.ndarray, cue: str) -> list[list[int]]:
    return [walk(task.decode(row), cue) for row in tokens]


@pytest.mark.parametrize("task", SIZES, ids=["default", "four hops", "no stops"])
@pytest.mark.parametrize("extra", [0, 11])
def test_both_cues_lead_along_the_recorded_path(task, extra):
    samples = task.sample(10_000, seed=3, extra=extra)
    recorded = [[int(at) for at in path if at >= 0] for path in samples.path]
    assert walks(task, samples.tokens, "integers") == recorded
    assert walks(task, samples.tokens, "letters") == recorded
    answers = samples.tokens[np.arange(len(samples)), [path[-1] for path in recorded]]
    assert (answers == samples.answer).all()
    solved = task.solve(samples.tokens)
    assert (solved.answer == samples.answer).all()
    assert (solved.path == samples.path).all()
    assert [len(path) - 1 for path in recorded] == samples.hops.tolist()
    assert np.ptp(np.bincount(samples.hops)[1:]) <= 1
    assert np.ptp(np.bincount(samples.answer, minlength=task.answers)) <= 1


@pytest.mark.parametrize("task", SIZES[:2], ids=["default", "four hops"])
def test_fillers_point_off_the_path_and_by_both_cues_to_the_same_token(task):
    samples = task.sample(3_000, seed=4)
    pointed = 0
    for row, path in zip(samples.tokens, samples.path, strict=True):
        names, on_path = task.decode(row), {int(at) for at in path if at >= 0}
        path_letters = {names[at][0] for at in on_path}
        for here in set(range(task.targets, task.length)) - on_path:
            there = here - int(names[here][2:])
            assert there >= 0
            assert there not in on_path
            assert names[there][0] == names[here][1]
            assert not path_letters & set(names[here][:2])
            pointed += 1
    assert pointed > 1_000


def test_a_filler_points_uniformly_to_what_lies_before_it_off_the_path():
    samples = TASK.sample(60_000, seed=5)
    one_hop = samples.tokens[samples.hops == 1]
    path = samples.path[samples.hops == 1]
    for answer in (0, 3):
        rows = one_hop[path[:, 1] == answer]
        for here in (TASK.targets, TASK.length - 2):
            jumps = TASK.parted(rows)[1][:, here - TASK.targets]
            counts = np.bincount(here - jumps, minlength=here)
            assert counts[answer] == 0
            assert chisquare(np.delete(counts, answer)).pvalue > 1e-4
    first = TASK.parted(one_hop)[0][:, TASK.targets] // 1 - TASK.answers  # pairs of the first stop, a filler
    assert chisquare(np.bincount(first // TASK.alphabet, minlength=TASK.alphabet)).pvalue > 1e-4


def test_extra_targets_change_nothing_behind_them():
    short, long = TASK.sample(500, seed=6), TASK.sample(500, seed=6, extra=40)
    assert (long.tokens[:, 40:] == short.tokens).all()
    assert (long.tokens[:, :40] < TASK.answers).all()
    alike = list(TASK.behind_one_front(long, 16))
    assert sum(map(len, alike)) == len(long)
    for group in alike:
        assert (group.tokens[:, :40] == group.tokens[0, :40]).all()
        for cue in ("integers", "letters"):
            assert walks(TASK, group.tokens, cue) == [[int(at) for at in path if at >= 0] for path in group.path]


@pytest.mark.parametrize("task", SIZES[:2], ids=["default", "four hops"])
@pytest.mark.parametrize("extra", [0, 7])
def test_conflicting_cues_lead_to_different_answers(task, extra):
    samples = task.sample(2_000, seed=7, extra=extra)
    found = conflicting(task, samples, seed=8)
    by = {"letters": found.by_letters, "integers": found.by_integers}
    for cue, answers in by.items():
        for row, path, answer, hops in zip(found.tokens, walks(task, found.tokens, cue), answers, samples.hops, strict=True):
            assert row[path[-1]] == answer
            assert len(path) == hops + 1
    assert (found.by_letters != found.by_integers).all()
    assert (found.by_letters == samples.answer).all()
    front = extra + task.targets
    assert (found.tokens[:, :front] == samples.tokens[:, :front]).all()  # the targets stay
    before, after = (task.parted(tokens) for tokens in (samples.tokens, found.tokens))
    assert (before[0] == after[0]).all()
    assert (before[1] != after[1]).any(1).all()
    assert not (conflicting(task, samples, seed=9).tokens == found.tokens).all()


def test_integers_that_conflict_are_distributed_as_in_samples():
    """Else a model could tell test from training by the integers alone."""
    samples = TASK.sample(60_000, seed=10)
    found = conflicting(TASK, samples, seed=11)
    for number in range(TASK.stops + 1):
        usual, other = (
            np.bincount(TASK.parted(tokens)[1][:, number], minlength=TASK.integers + 1)[1:]
            for tokens in (samples.tokens, found.tokens)
        )
        kept = usual + other > 0
        pooled = (usual + other)[kept] / 2
        assert ((usual[kept] - pooled) ** 2 / pooled).sum() * 2 < 40  # chi-square with at most 7 degrees of freedom


@pytest.mark.parametrize("cue", ["integers", "letters"])
def test_one_cue_scrambled_leaves_the_other(cue):
    samples = TASK.sample(4_000, seed=12)
    found = scrambled(TASK, samples, cue, seed=13)
    other = {"integers": "letters", "letters": "integers"}[cue]
    assert walks(TASK, found.tokens, other) == [[int(at) for at in path if at >= 0] for path in samples.path]
    ends = np.array([row[path[-1]] for row, path in zip(found.tokens, walks(TASK, found.tokens, cue), strict=True)])
    assert (ends == samples.answer).mean() < 0.35  # by chance
    before, after = (TASK.parted(tokens) for tokens in (samples.tokens, found.tokens))
    kept, drawn = (0, 1) if cue == "integers" else (1, 0)
    assert (before[kept] == after[kept]).all()
    if cue == "integers":
        for number, here in enumerate(range(TASK.targets, TASK.length)):
            assert chisquare(np.bincount(after[1][:, number], minlength=here + 1)[1:]).pvalue > 1e-4
    else:
        pairs = after[drawn][:, TASK.targets :] - TASK.answers
        assert chisquare(np.bincount(pairs.ravel(), minlength=TASK.alphabet**2)).pvalue > 1e-4


def test_the_solver_refuses_cues_that_disagree():
    names = TASK.decode(TASK.sample(1, seed=0).tokens[0])
    TASK.solve(TASK.encode(names))
    last = names[-1]
    names[-1] = f"{last[:2]}{int(last[2:]) % TASK.integers + 1}"
    with pytest.raises(ValueError, match="points to 0 earlier tokens"):
        TASK.solve(TASK.encode(names))


def test_ideal_retrieval_finds_the_answer():
    samples = TASK.sample(200, seed=1)
    assert (ideal_layers(TASK, samples, TASK.hops)[-1].holds[:, -1] == samples.answer).all()


def test_sizes():
    assert TASK.length == 9
    assert TASK.integers == 8
    assert TASK.vocab_size == len(set(TASK.vocabulary)) == TASK.alphabet * TASK.digits + 8 * TASK.alphabet**2
    with pytest.raises(ValueError, match="targets must be at least 2"):
        RedundantTask(targets=1)
    with pytest.raises(ValueError, match="alphabet is 3 but"):
        RedundantTask(alphabet=3)
    parts = split(TASK, (900, 50, 50), seed=1)
    assert len({row.tobytes() for part in parts.values() for row in part.tokens}) > 990
    letters, jumps = TASK.parted(parts["train"].tokens)
    assert (TASK.joined(letters, jumps) == parts["train"].tokens).all()


def test_models_can_be_trained_on_it_and_nothing_else_knows_it():
    assert trainable_class("redundant") is RedundantTask
    assert trainable_class("letter") is task_class("letter")
    assert "redundant" not in task_names()
    for look in (task_class, lambda name: chosen_tasks(name, None), lambda name: Grid(tasks=(name,))):
        with pytest.raises(ValueError, match=r"task must be one of number, letter(, not| or all)"):
            look("redundant")


def test_examples_in_the_documentation():
    result = doctest.testmod(redundant)
    assert result.attempted > 0
    assert result.failed == 0
