/* In a notebook the page stands in an iframe of its own, which is made as high as the page. */

export function fitFrame() {
  const frame = window.frameElement;
  if (!frame || !("ropescope" in frame.dataset)) return;
  const fit = () => (frame.style.height = `${Math.ceil(document.body.getBoundingClientRect().height) + 32}px`);
  new ResizeObserver(fit).observe(document.body);
}
