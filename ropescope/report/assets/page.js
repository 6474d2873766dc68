"use strict";
(() => {
  const root = document.documentElement;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const sections = [...document.querySelectorAll(".run")];

  // ---- What the page holds: compressed text in script elements, opened when it is needed.

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  let engine = null;
  function loadEngine() {
    engine ??= unpacked(document.getElementById("engine").textContent).then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
    });
    return engine;
  }

  const payloads = new Map();
  function payload(section) {
    if (!payloads.has(section))
      payloads.set(section, unpacked(section.querySelector(".payload").textContent).then(JSON.parse));
    return payloads.get(section);
  }

  // ---- Charts.

  const views = new Map(); // figure -> { view, names of its signals }
  const drawing = new Map(); // figure -> promise of having been drawn

  const NIGHT = {
    black: "#f2f2ee", "#000": "#f2f2ee", "#000000": "#f2f2ee", "#333333": "#d6d6d2", "#555555": "#b0b6bf", "#666666": "#a3abb6",
    "#999999": "#8c939d", "#bbbbbb": "#565c66", "#e6e6e6": "#3a3f47", "#dddddd": "#2a2e35", white: "#1a1d22", "#fff": "#1a1d22",
    "#0072b2": "#4ea8e0", "#d55e00": "#f0863c", "#009e73": "#35bd92", "#cc79a7": "#e39cc2", "#777777": "#a3abb6",
  };
  const SHADED = new Set(["color", "fill", "stroke", "subtitleColor"]);

  function atNight(part, key = "") {
    if (typeof part === "string") return SHADED.has(key) ? (NIGHT[part.toLowerCase()] ?? part) : part;
    if (key === "extent" && part[0] === 0) return [0.2, 1]; // the darker end of a scheme of colours is lost
    if (Array.isArray(part))
      return part.map((one) => (key === "range" && typeof one === "string" ? (NIGHT[one.toLowerCase()] ?? one) : atNight(one)));
    if (part && typeof part === "object")
      return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, atNight(value, name)]));
    return part;
  }

  function look(dark) {
    const [ink, soft, line] = dark ? ["#e9e8e4", "#a3abb6", "#33383f"] : ["#1d2127", "#59616d", "#e6e4df"];
    const text = { labelColor: soft, titleColor: ink, labelFontSize: 11, titleFontSize: 12, titleFontWeight: 500 };
    return {
      background: "transparent",
      font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
      aria: false,
      axis: { ...text, gridColor: line, domainColor: soft, tickColor: soft },
      legend: { ...text, labelLimit: 320, symbolBaseFillColor: soft, symbolBaseStrokeColor: soft },
      title: { color: ink, subtitleColor: soft, fontSize: 13, fontWeight: 600 },
      view: { stroke: line },
      text: { color: ink },
      rule: { color: ink },
    };
  }

  function rows(table) {
    const columns = Object.entries(table.columns);
    return Array.from({ length: table.length }, (_, n) => Object.fromEntries(columns.map(([name, values]) => [name, values[n]])));
  }

  function tablesOf(spec) {
    const names = new Set();
    JSON.stringify(spec, (key, value) => {
      if (key === "data" && value && typeof value.name === "string") names.add(value.name);
      return value;
    });
    return [...names];
  }

  /** A chart with its rows. On the page its title stands above it; in files it is part of the picture. */
  async function specOf(figure, dark, whole) {
    const held = await payload(figure.closest(".run"));
    let spec = structuredClone(held.charts[figure.dataset.chart]);
    if (!whole) delete spec.title;
    if (dark) spec = atNight(spec);
    spec.datasets = Object.fromEntries(tablesOf(spec).map((name) => [name, rows(held.tables[name])]));
    return spec;
  }

  const isDark = () => root.dataset.theme === "dark";

  function draw(figure) {
    if (!drawing.has(figure))
      drawing.set(
        figure,
        drawn(figure).catch((error) => {
          const note = document.createElement("p");
          note.textContent = "This chart could not be drawn.";
          figure.querySelector(".plot").replaceChildren(note);
          console.error(error);
        }),
      );
    return drawing.get(figure);
  }

  async function drawn(figure) {
    const plot = figure.querySelector(".plot");
    const dark = isDark();
    const [spec] = await Promise.all([specOf(figure, dark, false), loadEngine()]);
    const names = new Set((spec.params ?? []).map((param) => param.name));
    const holder = document.createElement("div");
    plot.replaceChildren(holder);
    const options = { actions: false, renderer: "svg", config: look(dark), tooltip: { theme: dark ? "dark" : "light" } };
    const { view } = await vegaEmbed(holder, spec, options);
    const svg = plot.querySelector("svg");
    const width = Number(svg.getAttribute("width"));
    // Charts shrink with the window down to where their text can still be read, and scroll in their box from there on.
    const most = figure.classList.contains("full") ? 1.25 : 1;
    svg.style.width = `max(${Math.round(0.62 * width)}px, min(100%, ${Math.round(most * width)}px))`;
    plot.classList.add("drawn");
    figure.view = view;
    views.set(figure, { view, names });
    if (views.size === 1) performance.mark("ropescope:first-chart");
    const section = figure.closest(".run");
    if ((await payload(section)).choice) {
      plot.classList.toggle("picks", true);
      view.addEventListener("click", (_, item) => {
        const name = nameOf(item);
        if (name) pick(section, name);
      });
    }
    await follow(figure);
  }

  /** The head that a mark stands for, as "L8 H1". */
  function nameOf(item) {
    const datum = item?.datum?.datum ?? item?.datum;
    for (const name of [datum?.name, datum?.head, datum?.layer]) {
      const found = /^L(\d+)(?: H(\d+))?$/.exec(name ?? "");
      if (found) return `L${found[1]} H${found[2] ?? 0}`;
    }
    return null;
  }

  /** Give a chart what is chosen: a head, and a time of the film. */
  async function follow(figure) {
    const shown = views.get(figure);
    if (!shown) return;
    const section = figure.closest(".run");
    for (const [name, value] of Object.entries(chosen(section))) {
      if (shown.names.has(name) && value !== undefined && shown.view.signal(name) !== value) shown.view.signal(name, value);
    }
    await shown.view.runAsync();
  }

  const picks = new Map(); // section -> name of the head
  const times = new Map(); // section -> time of the film
  const chosen = (section) => ({ picked: picks.get(section), at: times.get(section) });

  // ---- Choosing a head. Everything that shows heads speaks and listens through one event.

  const nameFor = ({ layer, head }) => `L${layer} H${head}`;

  function pick(section, name) {
    const [, layer, head] = /^L(\d+) H(\d+)$/.exec(name);
    const detail = { run: section.dataset.run, layer: Number(layer), head: Number(head) };
    document.dispatchEvent(new CustomEvent("ropescope:head", { detail }));
  }

  document.addEventListener("ropescope:head", ({ detail }) => {
    const source = document.querySelector(`.run[data-run="${CSS.escape(detail.run)}"]`);
    for (const section of sections) {
      const same = section === source || (source?.dataset.model && section.dataset.model === source.dataset.model);
      if (same) show(section, nameFor(detail));
    }
  });

  async function show(section, name) {
    const picker = section.querySelector(".picker");
    if (!picker) return;
    const { choice } = await payload(section);
    const [, layer, head] = /^L(\d+) H(\d+)$/.exec(name) ?? [];
    if (!choice.layers.includes(Number(layer)) || !choice.heads.includes(Number(head))) return;
    picks.set(section, name);
    picker.querySelector("[data-pick=layer]").value = layer;
    picker.querySelector("[data-pick=head]").value = head;
    picker.querySelector("output").textContent = choice.said[name] ?? "no scores";
    for (const word of section.querySelectorAll("[data-head]")) word.textContent = name;
    await Promise.all([...section.querySelectorAll(".figures figure")].map(follow));
  }

  async function fillPicker(section) {
    const picker = section.querySelector(".picker");
    if (!picker || picker.dataset.filled) return;
    picker.dataset.filled = "yes";
    const { choice } = await payload(section);
    const [layer, head] = ["layer", "head"].map((name) => picker.querySelector(`[data-pick=${name}]`));
    layer.replaceChildren(...choice.layers.map((n) => new Option(`L${n}`, n)));
    head.replaceChildren(...choice.heads.map((n) => new Option(`H${n}`, n)));
    const all = choice.layers.flatMap((n) => choice.heads.map((m) => `L${n} H${m}`));
    const now = () => `L${layer.value} H${head.value}`;
    for (const box of [layer, head]) box.addEventListener("change", () => pick(section, now()));
    for (const button of picker.querySelectorAll("[data-step]"))
      button.addEventListener("click", () => {
        const next = (all.indexOf(now()) + Number(button.dataset.step) + all.length) % all.length;
        pick(section, all[next]);
      });
    const first = picks.get(section) ?? choice.first;
    await show(section, first);
    if (first) pick(section, first); // for a playground of the run
  }

  // ---- The film of a training run.

  for (const film of document.querySelectorAll(".film")) {
    const section = film.closest(".run");
    const [button, slider, said] = [film.querySelector("button"), film.querySelector("input"), film.querySelector("output")];
    const last = Number(slider.max);
    const figures = [...section.querySelectorAll(".figures figure")].filter((one) => ["film", "accuracy"].includes(one.dataset.chart));
    let steps = null;
    let playing = null;

    async function go(at) {
      times.set(section, at);
      slider.value = Math.round(at);
      if (!steps) {
        const { tables } = await payload(section);
        steps = Object.values(tables).find((table) => "x_next" in table.columns).columns.step[0];
      }
      const step = `step ${steps[Math.floor(at)].toLocaleString("en")}`;
      said.textContent = step;
      slider.setAttribute("aria-valuetext", step);
      await Promise.all(figures.map(follow));
    }

    function stop() {
      playing = null;
      button.textContent = "\u25B6";
      button.setAttribute("aria-label", "Play the film");
      button.setAttribute("aria-pressed", "false");
    }

    async function play() {
      const mine = (playing = {});
      button.textContent = "\u275A\u275A";
      button.setAttribute("aria-label", "Pause the film");
      button.setAttribute("aria-pressed", "true");
      let at = Number(slider.value) >= last ? 0 : Number(slider.value);
      let before = performance.now();
      while (playing === mine && at < last) {
        await go(at);
        // Who wants no motion sees about twenty pictures of the way, one after the other.
        if (still.matches) {
          await new Promise((done) => setTimeout(done, 700));
          at = Math.min(last, at + Math.ceil(last / 20));
        } else {
          await new Promise((done) => requestAnimationFrame(done));
          const now = performance.now();
          at = Math.min(last, at + ((now - before) / 14000) * last);
          before = now;
        }
      }
      if (playing === mine) {
        await go(last);
        stop();
      }
    }

    button.addEventListener("click", () => (playing ? stop() : play()));
    slider.addEventListener("input", () => {
      stop();
      go(Number(slider.value));
    });
    section.addEventListener("toggle", () => go(Number(slider.value)), { capture: true, once: true });
    if (section.querySelector("details").open) go(last);
  }

  // ---- Files.

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  /** The chart as a view that is not on the page: light, with its title, and with what is chosen now. */
  async function viewForFile(figure) {
    const [spec] = await Promise.all([specOf(figure, false, true), loadEngine()]);
    spec.background = "white";
    spec.padding = 14;
    const { view } = await vegaEmbed(document.createElement("div"), spec, { actions: false, renderer: "svg" });
    const names = new Set((spec.params ?? []).map((param) => param.name));
    for (const [name, value] of Object.entries(chosen(figure.closest(".run"))))
      if (names.has(name) && value !== undefined) view.signal(name, value);
    return view.runAsync();
  }

  /** Rows of a chart as a table: lists in rows are unfolded; numbers of decorations are left out. */
  async function csvOf(figure) {
    const held = await payload(figure.closest(".run"));
    const tables = tablesOf(held.charts[figure.dataset.chart]).map((name) => held.tables[name]);
    const unfolded = tables.map((table) =>
      rows(table).flatMap((row) => {
        const lists = Object.entries(row).filter(([, value]) => Array.isArray(value));
        const count = lists.length ? Math.max(...lists.map(([, value]) => value.length)) : 1;
        return Array.from({ length: count }, (_, at) => ({
          ...row,
          ...Object.fromEntries(lists.map(([name, value]) => [name, value[at]])),
        }));
      }),
    );
    const most = Math.max(...unfolded.map((table) => table.length));
    const kept = unfolded.filter((table) => 20 * table.length >= most);
    const lines = kept.flatMap((table, n) => (kept.length > 1 ? table.map((row) => ({ part: n + 1, ...row })) : table));
    const names = [...new Set(lines.flatMap((line) => Object.keys(line)))].filter((name) => !name.endsWith("_said"));
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [names, ...lines.map((line) => names.map((name) => line[name]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-get]");
    if (!button) return;
    const figure = button.closest("figure");
    const name = `${figure.id}.${button.dataset.get}`;
    if (button.dataset.get === "csv") return save(new Blob([await csvOf(figure)], { type: "text/csv" }), name);
    const view = await viewForFile(figure);
    if (button.dataset.get === "svg") save(new Blob([await view.toSVG()], { type: "image/svg+xml" }), name);
    else (await view.toCanvas(2)).toBlob((blob) => save(blob, name), "image/png");
    view.finalize();
  });

  // Where a figure comes from is the same for all figures of a run: written once, shown where it is asked for.
  for (const source of document.querySelectorAll(".source"))
    source.addEventListener("toggle", () => {
      if (source.open && source.children.length === 1)
        source.append(source.closest(".run").querySelector("template.about").content.cloneNode(true));
    });

  // ---- The scoreboard's filters.

  const board = document.getElementById("scoreboard");
  if (board) {
    const boxes = [...board.querySelectorAll("[data-filter]")];
    const lines = [...board.querySelectorAll("tbody tr")];
    const filter = () => {
      for (const line of lines) line.hidden = boxes.some((box) => box.value && line.dataset[box.dataset.filter] !== box.value);
      board.querySelector(".filter output").textContent = `${lines.filter((line) => !line.hidden).length} shown`;
    };
    for (const box of boxes) box.addEventListener("change", filter);
  }

  // ---- Light and dark.

  const toggle = document.getElementById("theme");
  let wanted = null;

  function theme() {
    const dark = wanted ?? darkness.matches;
    root.dataset.theme = dark ? "dark" : "light";
    toggle.textContent = dark ? "Light" : "Dark";
    toggle.setAttribute("aria-pressed", String(dark));
    for (const [figure, { view }] of views) {
      view.finalize();
      drawing.delete(figure);
      watcher.unobserve(figure);
      watcher.observe(figure);
    }
    views.clear();
  }

  // ---- Draw what comes into view.

  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
    },
    { rootMargin: "300px 0px" },
  );

  for (const section of sections) {
    const details = section.querySelector("details");
    details.addEventListener("toggle", () => details.open && fillPicker(section));
    if (details.open) fillPicker(section);
  }
  toggle.addEventListener("click", () => {
    wanted = !isDark();
    theme();
  });
  darkness.addEventListener("change", theme);
  theme();
  for (const figure of document.querySelectorAll(".figures figure")) watcher.observe(figure);

  /** A link to a run or a chart opens what it is folded into. */
  async function visit() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target?.closest(".run")?.querySelector("details");
    if (!details) return;
    details.open = true;
    if (target.matches("figure")) {
      await draw(target);
      target.scrollIntoView();
      target.focus({ preventScroll: true });
    }
  }
  const contents = document.querySelector("nav details");
  if (contents && innerWidth < 640) contents.open = false;
  addEventListener("hashchange", visit);
  visit();
})();
