// Elements are made from text, never from markup: names of runs and layers come from outside.

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

export const find = (id) => document.getElementById(id);

export function show(...children) {
  find("main").replaceChildren(...children);
}

export function notice(title, ...lines) {
  show(make("section", { class: "notice" }, make("h1", {}, title), ...lines.map((line) => make("p", {}, line))));
}
