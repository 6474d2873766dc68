/* Search and filters of the scoreboard: parts with a row that fits are opened, rows that do not fit are hidden. */

export function startScoreboard() {
  const board = document.getElementById("scoreboard");
  if (!board) return;
  const boxes = [...board.querySelectorAll("[data-filter]")], search = board.querySelector("input[type=search]");
  const parts = [...board.querySelectorAll(".part")], output = board.querySelector(".filter output");
  const texts = new Map([...board.querySelectorAll(".part li")].map((line) => [line, line.textContent.toLowerCase()]));
  let asked = false;

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), wanted = boxes.some((box) => box.value) || words.length > 0;
    const fits = (line) =>
      boxes.every((box) => !box.value || line.dataset[box.dataset.filter] === box.value) && words.every((word) => texts.get(line).includes(word));
    let count = 0;
    for (const part of parts) {
      const lines = [...part.querySelectorAll("li")];
      for (const line of lines) line.hidden = !fits(line);
      const left = lines.filter((line) => !line.hidden).length;
      count += left;
      part.hidden = left === 0;
      if (wanted || asked) part.open = wanted && left > 0;
    }
    asked = wanted;
    output.textContent = wanted ? `${count} of ${texts.size} claims` : "";
  }

  for (const box of boxes) box.addEventListener("change", filter);
  search.addEventListener("input", filter);
}
