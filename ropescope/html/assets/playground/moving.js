/* Moving tokens with a mouse, a finger or the keyboard. */

import { element, short } from "./dom.js";
import { movedTo } from "./orders.js";

export class Moving {
  constructor(game) {
    this.game = game;
    this.drag = null; // from the press of a button to its release; it has begun once the pointer has moved
    this.dragged = false; // the last press became a drag, so the click after it does nothing
    this.hold = 180; // milliseconds that a finger rests before it drags instead of scrolling
    const stage = game.stage.node;
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.follow(event));
    stage.addEventListener("pointerup", (event) => this.release(event));
    stage.addEventListener("pointercancel", () => this.finish(false));
    stage.addEventListener("lostpointercapture", () => this.finish(true));
    // A finger that drags must not scroll the page; one that does not drag may.
    stage.addEventListener("touchmove", (event) => this.drag?.begun && event.preventDefault(), { passive: false });
    stage.addEventListener("contextmenu", (event) => this.drag && event.preventDefault());
    stage.addEventListener("click", (event) => this.click(event));
    stage.addEventListener("keydown", (event) => this.key(event));
    game.root.addEventListener("keydown", (event) => this.shortcut(event));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.escape());
  }

  /* The unit that is being dragged, or null. */
  held() {
    return this.drag?.begun ? this.drag.unit : null;
  }

  slotOf(target) {
    const p = this.game.stage.placeOf(target);
    return p >= 0 ? this.game.slots[p] : -1;
  }

  // ---- Dragging.

  press(event) {
    if (!event.isPrimary || event.button !== 0 || !event.target.closest(".token")) return;
    this.finish(false);
    this.dragged = false;
    const slot = this.slotOf(event.target);
    if (slot < 0) return;
    const { row, slots } = this.game;
    const drag = { id: event.pointerId, touch: event.pointerType === "touch", x: event.clientX, y: event.clientY };
    this.drag = Object.assign(drag, { slot, start: row, slots, unit: row[slot], begun: false, frame: 0 });
    if (drag.touch) drag.timer = setTimeout(() => this.drag === drag && this.begin(drag.x, drag.y), this.hold);
  }

  begin(x, y) {
    const { drag, game } = this, [from, to] = game.spans[drag.unit];
    drag.begun = true;
    game.chosen = null;
    game.stage.node.setPointerCapture(drag.id);
    drag.ghost = element("div", { class: "ghost" }, short(game.subject.tokens.slice(from, to).map((text) => short(text)).join(""), 40));
    drag.ghost.style.transform = `translate(${x}px, ${y}px)`;
    game.root.append(drag.ghost);
    game.root.classList.add("dragging");
    game.render();
  }

  follow(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.id) return;
    if (!event.buttons) {
      this.finish(false); // the button was released where this page could not see it
      return;
    }
    if (!drag.begun) {
      if (drag.touch || Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < 5) return;
      this.begin(event.clientX, event.clientY);
    }
    [drag.toX, drag.toY] = [event.clientX, event.clientY];
    drag.frame ||= requestAnimationFrame(() => this.step());
  }

  /* Once per frame: move the ghost, and change the order if another place is under it. */
  step() {
    const { drag, game } = this;
    if (!drag?.begun) return;
    drag.frame = 0;
    drag.ghost.style.transform = `translate(${drag.toX}px, ${drag.toY}px)`;
    const row = movedTo(drag.start, drag.slot, this.slotAt(drag.toX, drag.toY));
    if (row.some((unit, k) => unit !== game.row[k])) {
      game.row = row;
      game.render();
    }
  }

  /* The slot whose places, as they were when the drag began, are nearest to a point. */
  slotAt(x, y) {
    const { node, offsets } = this.game.stage, box = node.getBoundingClientRect(), { drag } = this;
    let best = drag.slot, least = Infinity;
    drag.slots.forEach((slot, p) => {
      if (slot < 0 || !offsets) return;
      const [left, top, width, height] = offsets[p];
      const dx = Math.max(0, left - (x - box.left), x - box.left - left - width);
      const dy = Math.max(0, top - (y - box.top), y - box.top - top - height);
      if (dx * dx + 4 * dy * dy < least) [best, least] = [slot, dx * dx + 4 * dy * dy];
    });
    return best;
  }

  release(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.id) return;
    if (drag.begun && drag.toX !== undefined) this.step();
    this.finish(true);
  }

  /* End a drag and either take its order or go back to the one before it. */
  finish(keep) {
    const { drag, game } = this;
    if (!drag) return;
    this.drag = null;
    clearTimeout(drag.timer);
    cancelAnimationFrame(drag.frame);
    if (!drag.begun) return;
    this.dragged = true;
    drag.ghost.remove();
    game.root.classList.remove("dragging");
    const { row } = game;
    game.row = drag.start;
    if (keep) game.take(row);
    else game.render();
  }

  // ---- Clicks and keys.

  escape() {
    const { game } = this;
    this.finish(false);
    if (game.chosen === null) return;
    game.chosen = null;
    game.render();
  }

  /* The first click chooses a unit, the second swaps it with another one. */
  click(event) {
    const { game } = this, slot = this.slotOf(event.target), afterDrag = this.dragged && event.detail > 0;
    this.dragged = false;
    if (afterDrag || slot < 0 || !event.target.closest(".token")) return;
    if (game.chosen === null) {
      game.chosen = game.row[slot];
      game.render();
      game.say("Now click another one to swap the two.");
      return;
    }
    const other = game.row.indexOf(game.chosen), row = [...game.row];
    [row[slot], row[other]] = [row[other], row[slot]];
    game.take(row);
  }

  key(event) {
    const { game } = this, slot = this.slotOf(event.target), last = game.spans.length - 1;
    if (slot < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const columns = game.mode === "blocks" ? 1 : game.stage.columns();
    const steps = { ArrowLeft: slot - 1, ArrowRight: slot + 1, ArrowUp: slot - columns, ArrowDown: slot + columns, Home: 0, End: last };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const unit = game.row[slot];
    game.take(movedTo(game.row, slot, Math.max(0, Math.min(last, steps[event.key]))));
    const place = game.order.indexOf(game.spans[unit][0]);
    game.stage.places[place].token.focus({ preventScroll: true });
    game.stage.tell(place);
  }

  shortcut(event) {
    if (!(event.ctrlKey || event.metaKey) || event.target === this.game.typed.input) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    this.game.travel(key === "y" || event.shiftKey ? 1 : -1);
  }
}
