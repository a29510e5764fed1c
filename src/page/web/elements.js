// SPDX-License-Identifier: Apache-2.0
//
// What views are made of: elements and shapes, tables, notes. Made of text and attributes alone, never of text that is
// parsed: a pod's name is only ever text.

import {say} from './text.js';

// An element; PROPERTIES: attributes, or `on…` for listeners. CHILDREN: elements or text.
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// A shape, or an `svg` with its shapes.
export function shape(name, attributes, ...children) {
  const element = document.createElementNS('http:' + '//www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// HEADINGS: [text, whether it is of numbers]. LABEL: a key of text.js.
export function table(label, headings, rows) {
  const head = headings.map(([text, numeric]) => make('th', {scope: 'col', class: numeric ? 'number' : undefined}, text));
  const body = rows.map((cells) => make('tr', {}, ...cells.map((cell, i) =>
    make('td', {class: headings[i][1] ? 'number' : undefined}, cell))));
  return make('table', {'aria-label': say(label)}, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...body));
}

export function empty(key) {
  return make('p', {class: 'empty'}, say(key));
}

export function gauge(part, whole, label) {
  return make('meter', {min: 0, max: Math.max(whole, 1), value: Math.min(part, whole), 'aria-label': label});
}

// CHILDREN in the place of what ELEMENT has: what is unfolded, scrolled to and focused stays so, by data-key.
export function replaceKeeping(element, children) {
  const open = new Set([...element.querySelectorAll('details[open]')].map((details) => details.dataset.key));
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const focused = active?.closest('[data-key]')?.dataset.key;
  const scrolled = element.scrollTop;
  element.replaceChildren(...children);
  for (const keyed of element.querySelectorAll('[data-key]')) {
    if (keyed.tagName === 'DETAILS' && open.has(keyed.dataset.key)) keyed.open = true;
    if (keyed.dataset.key === focused) (keyed.querySelector('summary') ?? keyed).focus({preventScroll: true});
  }
  element.scrollTop = scrolled;
}
