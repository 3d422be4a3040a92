// Files of a chart.

import { make } from "./dom.js";
import { colour } from "./theme.js";

// `content`: an address, or text.
export function download(name, content) {
  const isAddress = content instanceof URL;
  const address = isAddress ? content.href : URL.createObjectURL(new Blob([content.bytes ?? content], { type: content.type ?? "text/csv" }));
  const link = make("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  if (!isAddress) setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// The chart under its title, and beside what its lines are.
export function pictureOf(panel) {
  const drawn = panel.chart.renderToCanvas({ pixelRatio: 2, backgroundColor: colour("panel") });
  const canvas = make("canvas", { width: drawn.width, height: drawn.height + 88 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour("panel");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = colour("text");
  pen.font = "bold 28px sans-serif";
  pen.fillText(panel.title, 20, 38);
  pen.font = "22px sans-serif";
  let x = 20;
  for (const chip of panel.legend.querySelectorAll(".chip-of")) {
    const text = chip.textContent;
    const key = chip.querySelector(".key");
    pen.fillStyle = key ? key.style.borderColor : colour("faint");
    pen.fillText(key ? `— ${text}` : text, x, 74);
    x += pen.measureText(`— ${text}`).width + 30;
  }
  pen.drawImage(drawn, 0, 88);
  return new URL(canvas.toDataURL("image/png"));
}

// A field that a spreadsheet would take for a formula is kept as text.
function fieldOf(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+@\t-]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const textOf = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(fieldOf).join(",")).join("\r\n");
