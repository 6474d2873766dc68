/* How charts look: the same charts in light and in dark colours. */

const NIGHT = {
  black: "#f2f2ee", "#000": "#f2f2ee", "#000000": "#f2f2ee", "#333333": "#d6d6d2", "#555555": "#b0b6bf", "#666666": "#a3abb6",
  "#999999": "#8c939d", "#bbbbbb": "#565c66", "#e6e6e6": "#3a3f47", "#dddddd": "#2a2e35", white: "#1a1d22", "#fff": "#1a1d22",
  "#0072b2": "#4ea8e0", "#d55e00": "#f0863c", "#009e73": "#35bd92", "#cc79a7": "#e39cc2", "#777777": "#a3abb6",
};
const COLOURED = new Set(["color", "fill", "stroke", "subtitleColor"]);

/* A part of a chart with its light colours replaced by dark ones. */
export function atNight(part, key = "") {
  if (typeof part === "string") return COLOURED.has(key) ? (NIGHT[part.toLowerCase()] ?? part) : part;
  if (key === "extent" && part[0] === 0) return [0.2, 1]; // the darkest fifth of a colour scheme cannot be told from the page
  if (Array.isArray(part))
    return part.map((one) => (key === "range" && typeof one === "string" ? (NIGHT[one.toLowerCase()] ?? one) : atNight(one)));
  if (part && typeof part === "object")
    return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, atNight(value, name)]));
  return part;
}

/* The configuration of all charts of the page. */
export function look(dark, narrow = false) {
  const [ink, soft, line] = dark ? ["#e9e8e4", "#a3abb6", "#33383f"] : ["#1d2127", "#59616d", "#e6e4df"];
  const text = { labelColor: soft, titleColor: ink, labelFontSize: 11, titleFontSize: 12, titleFontWeight: 500 };
  return {
    background: "transparent",
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
    aria: false,
    axis: { ...text, gridColor: line, domainColor: soft, tickColor: soft },
    legend: {
      ...text, labelLimit: 320, symbolBaseFillColor: soft, symbolBaseStrokeColor: soft,
      ...(narrow ? { orient: "bottom", columns: 2, labelLimit: 150 } : {}),
    },
    title: { color: ink, subtitleColor: soft, fontSize: 13, fontWeight: 600 },
    view: { stroke: line },
    text: { color: ink },
    rule: { color: ink },
  };
}
