/* Definitions of words: shown while a word is under the pointer or has the focus. */

export function startTerms() {
  const source = document.getElementById("glossary");
  if (!source) return;
  const glossary = JSON.parse(source.textContent), box = document.createElement("div");
  box.id = "term";
  box.setAttribute("role", "tooltip");
  let shown = null;

  function show(word) {
    const about = glossary[word.textContent];
    if (!about || shown === word) return;
    hide();
    shown = word;
    box.textContent = about;
    document.body.append(box);
    word.setAttribute("aria-describedby", "term");
    const at = word.getBoundingClientRect(), { width, height } = box.getBoundingClientRect();
    const left = Math.max(16, Math.min(document.documentElement.clientWidth - width - 16, at.left));
    const above = at.top > height + 70;
    box.style.left = `${left + scrollX}px`;
    box.style.top = `${(above ? at.top - height - 8 : at.bottom + 8) + scrollY}px`;
  }

  function hide() {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.remove();
  }

  const word = (event) => (event.target instanceof Element ? event.target.closest(".term") : null);
  for (const name of ["pointerover", "focusin", "click"]) document.addEventListener(name, (event) => (word(event) ? show(word(event)) : name === "click" && hide()));
  for (const name of ["pointerout", "focusout"]) document.addEventListener(name, (event) => word(event) && hide());
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
