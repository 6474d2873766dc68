/* The film of a training run: a slider over its steps, and a button that plays them. */

import { follow } from "./charts.js";
import { payload } from "./payload.js";
import { setTime, whenOpen } from "./state.js";

const LENGTH = 14000; // milliseconds of a film
const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

async function stepsOf(section) {
  const { tables } = await payload(section);
  return Object.values(tables).find((table) => "x_next" in table.columns).columns.step[0];
}

function startFilm(film) {
  const section = film.closest(".run");
  const [button, slider, output] = ["button", "input", "output"].map((name) => film.querySelector(name));
  const last = Number(slider.max);
  const figures = [...section.querySelectorAll("figure[data-film]")];
  let now = Number(slider.value);
  let playing = null; // one object per time that the film is played

  async function go(at) {
    now = at;
    setTime(section, at);
    slider.value = Math.round(at);
    const steps = await stepsOf(section);
    const step = `step ${steps[Math.floor(now)].toLocaleString("en")}`;
    output.textContent = step;
    slider.setAttribute("aria-valuetext", step);
    await Promise.all(figures.map(follow));
  }

  function showPlaying(on) {
    button.textContent = on ? "\u275A\u275A" : "\u25B6";
    button.setAttribute("aria-label", on ? "Pause the film" : "Play the film");
    button.setAttribute("aria-pressed", String(on));
  }

  function stop() {
    playing = null;
    showPlaying(false);
  }

  async function play() {
    const mine = (playing = {});
    showPlaying(true);
    let at = Number(slider.value) >= last ? 0 : Number(slider.value);
    let before = performance.now();
    while (playing === mine && at < last) {
      await go(at);
      if (stillness.matches) {
        // Without motion: about twenty pictures, one after the other.
        await new Promise((done) => setTimeout(done, LENGTH / 20));
        at = Math.min(last, at + Math.ceil(last / 20));
      } else {
        await new Promise((done) => requestAnimationFrame(done));
        const time = performance.now();
        at = Math.min(last, at + ((time - before) / LENGTH) * last);
        before = time;
      }
    }
    if (playing !== mine) return;
    await go(last);
    if (playing === mine) stop();
  }

  button.addEventListener("click", () => (playing ? stop() : play()));
  slider.addEventListener("input", () => {
    stop();
    go(Number(slider.value));
  });
  // The data of a folded section are decompressed only when it is opened.
  whenOpen(section, () => go(now));
}

export function startFilms() {
  document.querySelectorAll(".film").forEach(startFilm);
}
