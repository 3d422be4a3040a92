// Ids that Grafana knows: what it does not know it takes for a suffix (a unit) or leaves out (a transformation).
const { JSDOM } = require('jsdom');
const { writeFileSync } = require('fs');
const { window } = new JSDOM('<!doctype html>', { url: 'http://localhost/' });
for (const name of ['document', 'navigator', 'HTMLElement', 'Element', 'Node', 'DOMParser', 'localStorage']) {
  Object.defineProperty(global, name, { value: window[name], configurable: true });
}
global.window = window;
const { getValueFormats, DataTransformerID } = require('@grafana/data');
const units = getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value));
const write = (name, list) => writeFileSync(`${process.argv[2]}/${name}.json`, JSON.stringify([...new Set(list)].sort()) + '\n');
write('units', units);
write('transformations', Object.values(DataTransformerID));
