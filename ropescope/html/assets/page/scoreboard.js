/* The filters of the scoreboard. */

export function startScoreboard() {
  const board = document.getElementById("scoreboard");
  if (!board) return;
  const boxes = [...board.querySelectorAll("[data-filter]")];
  const lines = [...board.querySelectorAll("tbody tr")];
  const filter = () => {
    for (const line of lines) line.hidden = boxes.some((box) => box.value && line.dataset[box.dataset.filter] !== box.value);
    board.querySelector(".filter output").textContent = `${lines.filter((line) => !line.hidden).length} shown`;
  };
  for (const box of boxes) box.addEventListener("change", filter);
}
