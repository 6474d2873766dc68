"""The playground in a real browser: what it shows is what Python computes, by another path, from the model itself."""

import pytest
import torch
from browser import until
from playing import choose, drag, middle, move, odd_heads, playing, press, state, token

import ropescope as rs

pytestmark = pytest.mark.browser


@pytest.mark.weights
def test_a_dragged_block_moves_attention_as_in_python(smollm, tmp_path):
    examples = smollm.data["subjects"][0]["examples"]
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1000}) as tab:
        shown = state(tab)
        assert (shown["layer"], shown["head"]) == examples["positional"]
        smollm.check(shown)
        starts = [start for start, _ in smollm.prompt.blocks]
        drag(tab, starts[1] + 1, starts[4] + 2)
        moved = state(tab)
        assert moved["row"] == [0, 2, 3, 4, 1, 5]
        smollm.check(moved)
        assert moved["thisOrder"]["positional"] > moved["thisOrder"]["symbolic"]
        assert "stays in its places" in tab.locator(".verdict").inner_text()
        press(tab, "symbolic")
        symbolic = state(tab)
        assert (symbolic["layer"], symbolic["head"]) == examples["symbolic"]
        assert symbolic["row"] == moved["row"]
        smollm.check(symbolic)
        assert symbolic["thisOrder"]["symbolic"] > symbolic["thisOrder"]["positional"]
        drag(tab, starts[0], starts[5] + 3)  # what is shown can be dragged on
        smollm.check(state(tab))
        assert state(tab)["row"] == [2, 3, 4, 1, 5, 0]
        for layer, head in ((0, 0), (14, 4), (29, 8)):
            choose(tab, layer, head)
            smollm.check(state(tab))


@pytest.mark.weights
def test_while_dragging_it_is_all_there_and_escape_takes_it_back(smollm, tmp_path):
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1000}) as tab:
        starts = [start for start, _ in smollm.prompt.blocks]
        (x, y), (to_x, to_y) = middle(tab, starts[5]), middle(tab, starts[0])
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(to_x, to_y, steps=6)
        until(tab, "document.querySelector('.playground').playground.row[0] === 5")
        smollm.check(state(tab))
        assert tab.locator(".ghost").count() == 1
        tab.keyboard.press("Escape")
        assert state(tab)["row"] == [0, 1, 2, 3, 4, 5]
        tab.mouse.up()
        assert state(tab)["row"] == [0, 1, 2, 3, 4, 5]
        assert tab.locator(".ghost").count() == 0
        assert tab.get_by_role("button", name="Undo").is_disabled()


@pytest.mark.weights
def test_single_tokens_of_a_language_model(smollm, tmp_path):
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1400}) as tab:
        first = smollm.prompt.blocks[0][0]
        for what in ("their tokens", "any token"):
            move(tab, what)
            smollm.check(state(tab))
            drag(tab, first, first + 14)
            moved = state(tab)
            assert moved["order"][first + 14] == first
            smollm.check(moved)
            choose(tab, 21, 8)
            press(tab, "Reverse")
            smollm.check(state(tab))
        press(tab, "Undo")
        press(tab, "Undo")
        press(tab, "Undo")  # also what moves is taken back
        assert (state(tab)["mode"], state(tab)["row"]) == ("tokens", [*range(1, 15), 0, *range(15, 24)][::-1])
        smollm.check(state(tab))


def test_everything_a_hand_can_do(number, tmp_path):
    with playing(tmp_path, number) as tab:
        still = list(range(16))
        assert state(tab)["row"] == still
        drag(tab, 3, 9)
        dragged = state(tab)["row"]
        assert dragged == [0, 1, 2, 4, 5, 6, 7, 8, 9, 3, *range(10, 16)]
        number.check(state(tab))
        press(tab, "Undo")
        assert state(tab)["row"] == still
        press(tab, "Redo")
        assert state(tab)["row"] == dragged
        token(tab, 9).focus()
        tab.keyboard.press("ArrowRight")
        assert state(tab)["row"].index(3) == 10
        tab.keyboard.press("ArrowLeft")
        tab.keyboard.press("ArrowLeft")
        assert state(tab)["row"].index(3) == 8  # the focus went with it
        tab.keyboard.press("End")
        assert state(tab)["row"] == [0, 1, 2, *range(4, 16), 3]
        tab.keyboard.press("Home")
        assert state(tab)["row"] == [3, 0, 1, 2, *range(4, 16)]
        number.check(state(tab))
        tab.keyboard.press("Control+z")
        assert state(tab)["row"] == [0, 1, 2, *range(4, 16), 3]
        tab.keyboard.press("Control+y")
        assert state(tab)["row"] == [3, 0, 1, 2, *range(4, 16)]
        press(tab, "Reset")
        assert state(tab)["row"] == still
        token(tab, 2).click()
        token(tab, 12).click()
        assert state(tab)["row"] == [0, 1, 12, *range(3, 12), 2, 13, 14, 15]
        number.check(state(tab))
        press(tab, "Reverse")
        press(tab, "Shuffle")
        shuffled = state(tab)
        assert sorted(shuffled["row"]) == still
        for layer in (0, 1, 5, 11):
            choose(tab, layer, 0)
            number.check(state(tab))
        assert state(tab)["row"] == shuffled["row"]


def test_any_order_can_be_typed(number, tmp_path):
    with playing(tmp_path, number) as tab:
        tab.get_by_label("Last plane used").fill("4")
        typed = [*range(8, 16), *range(8)]
        tab.get_by_label("Any order").fill(", ".join(map(str, typed)))
        press(tab, "Set")
        assert state(tab)["row"] == typed
        number.check(state(tab))
        for wrong in ("1 2 3", "", "0 0 " + " ".join(map(str, range(2, 16))), "a b", " ".join(map(str, range(1, 17)))):
            tab.get_by_label("Any order").fill(wrong)
            press(tab, "Set")
            assert state(tab)["row"] == typed
            assert "the numbers 0 to 15, each once" in tab.get_by_role("alert").inner_text()
        token(tab, 16).hover()
        assert "It is the query, which is fixed" in tab.locator(".status").inner_text()
        drag(tab, 16, 2)  # the query is locked
        assert state(tab)["row"] == typed


@pytest.mark.weights
def test_planes_can_be_gated(smollm, tmp_path):
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1400}) as tab:
        press(tab, "Reverse")
        low, high = tab.get_by_label("First plane used"), tab.get_by_label("Last plane used")
        for first, last in ((1, 8), (9, 24), (20, 32), (32, 32)):
            high.fill(str(last))
            low.fill(str(first))
            shown = state(tab)
            assert shown["gate"] == {"from": first - 1, "to": last - 1, "still": True}
            smollm.check(shown)
        low.fill("20")
        high.fill("10")  # the ends cannot cross: the other one comes along
        assert state(tab)["gate"] == {"from": 9, "to": 9, "still": True}
        high.focus()
        tab.keyboard.press("ArrowRight")
        assert state(tab)["gate"]["to"] == 10
        press(tab, "All planes")
        assert state(tab)["gate"] is None
        smollm.check(state(tab))


def test_heads_that_few_models_have(tmp_path):
    odd = odd_heads()
    with playing(tmp_path, odd, viewport={"width": 1000, "height": 1400}) as tab:
        for what, tau in (("sentences", "0.1"), ("their tokens", "0.01"), ("any token", "0.0001")):
            move(tab, what)
            tab.get_by_label("Temperature").select_option(tau)
            for layer in odd.heads:
                choose(tab, layer, layer % 4)
                press(tab, "Shuffle")
                odd.check(state(tab))
                still = tab.get_by_label("dimensions without rotation")
                assert still.is_checked()
                still.uncheck()
                if layer != 8:  # nothing of it turns
                    tab.get_by_label("Last plane used").fill("2")
                odd.check(state(tab))
                press(tab, "All planes")
        until(tab, "document.querySelector('.playground').playground?.maps.done")
        choose(tab, 6, 1)
        move(tab, "any token")
        assert len(state(tab)["row"]) == 9  # a window of 10: the query and nine more
        assert not token(tab, 2).is_visible()
        tab.get_by_label("fold fixed tokens").uncheck()
        token(tab, 2).hover()
        assert "outside this layer's window" in tab.locator(".status").inner_text()


@pytest.mark.weights
def test_the_map_of_all_heads(smollm, tmp_path):
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1400}) as tab:
        press(tab, "Reverse")
        until(tab, "document.querySelector('.playground').playground?.maps.done")
        until(tab, "document.querySelector('.playground').playground.maps.order.values[29][8]")
        shown = state(tab)
        spans = list(smollm.prompt.blocks)
        for n, heads in smollm.heads.items():
            M = rs.layer_logits(heads)[0]
            for key, found in (
                ("map", rs.swap_scores(M, 1e-4, spans)),
                ("thisOrderMap", rs.permutation_scores(M, torch.tensor([[5, 4, 3, 2, 1, 0]]), 1e-4, spans)),
            ):
                for kind, values in found._asdict().items():
                    assert [one[kind] for one in shown[key][n]] == pytest.approx(values.tolist(), abs=1e-8)
        canvas = tab.locator("canvas.map").first
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] * 7.5 / 9, "y": box["height"] * 20.5 / 30})
        assert (state(tab)["layer"], state(tab)["head"]) == (20, 7)
