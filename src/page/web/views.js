// SPDX-License-Identifier: Apache-2.0
//
// The views beside the map: tables of nodes, pods that wait, health, quotas, locks, and the details of a node and a
// card.

import {empty, gauge, make, table} from './elements.js';
import {changedWithin, tenantsOf} from './model.js';
import {memory, moment, number, percent, say, span} from './text.js';
import {healthStrip, hourAxis, useParts} from './trend.js';

const kRowHeight = 30;
const kMostShown = 300;
const kMostStrips = 40;

export function stateOf(card) {
  if (!card.healthy) return ['unhealthy', 'bad'];
  if (card.cordoned) return ['cordoned', 'warn'];
  if (!card.usable) return ['unusable', 'warn'];
  return ['healthy', 'good'];
}

// A table of every node, of which only the rows in sight exist.
export class NodeTable {
  constructor(choose) {
    this.choose = choose;
    this.nodes = [];
    this.focused = 0;
    this.element = make('div', {class: 'rows grow', role: 'table', 'aria-label': say('nodes'), tabindex: '0'});
    const head = make('div', {class: 'head', role: 'row', 'aria-rowindex': 1}, ...[
      'node', 'cards', 'memory', 'cores', 'shares', 'pods', 'state'].map((key) =>
      make('span', {role: 'columnheader'}, say(key))));
    this.body = make('div', {role: 'rowgroup'});
    this.element.append(make('div', {role: 'rowgroup'}, head), this.body);
    this.element.addEventListener('scroll', () => this.draw());
    this.element.addEventListener('keydown', (event) => this.key(event));
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.element);
  }

  end() {
    this.resizing.disconnect();
  }

  show(nodes) {
    this.nodes = nodes;
    this.focused = Math.max(0, Math.min(this.focused, nodes.length - 1));
    this.element.setAttribute('aria-rowcount', nodes.length + 1);
    this.body.style.height = `${nodes.length * kRowHeight}px`;
    this.body.style.position = 'relative';
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / kRowHeight) - 5);
    const last = Math.min(this.nodes.length, first + Math.ceil(this.element.clientHeight / kRowHeight) + 10);
    const had = this.body.contains(document.activeElement);
    const rows = [];
    for (let i = first; i < last; ++i) rows.push(this.row(i));
    this.body.replaceChildren(...rows);
    if (had) this.body.querySelector('[tabindex="0"]')?.focus({preventScroll: true});
  }

  row(index) {
    const node = this.nodes[index];
    const {totals} = node;
    const state = stateText(node);
    const cells = [node.name, number(totals.cards),
      `${memory(totals.usedMemory)} / ${memory(totals.memory)}`, percent(totals.usedCores, totals.cores),
      number(totals.shares), number(totals.pods)];
    const row = make('div', {class: 'row', role: 'row', 'aria-rowindex': index + 2,
      tabindex: index === this.focused ? '0' : '-1', onclick: () => this.choose(node)},
    ...cells.map((text) => make('span', {role: 'cell', title: text}, text)),
    make('span', {role: 'cell', class: state[1]}, state[0]));
    row.style.top = `${index * kRowHeight}px`;
    return row;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / kRowHeight) - 2);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.nodes.length,
      End: this.nodes.length};
    if (event.key in steps) {
      this.focused = Math.max(0, Math.min(this.nodes.length - 1, this.focused + steps[event.key]));
      this.element.scrollTop = Math.max(0, (this.focused + 2) * kRowHeight - this.element.clientHeight / 2);
      this.draw();
      this.body.querySelector('[tabindex="0"]')?.focus({preventScroll: true});
    } else if (event.key === 'Enter' && this.nodes.length > 0) {
      this.choose(this.nodes[this.focused]);
    } else {
      return;
    }
    event.preventDefault();
  }
}

function stateText(node) {
  if (!node.readable) return [say('unreadable'), 'bad'];
  if (node.totals.sick > 0) return [`${number(node.totals.sick)} × ${say('sick')}`, 'bad'];
  if (node.lock) return [say('locked'), 'warn'];
  if (node.totals.cards === 0) return [say('noCards'), 'dim'];
  return [say('healthy'), 'good'];
}

export function waitingView(model, words) {
  const pods = model.waiting.filter((pod) => `${pod.namespace}/${pod.name}`.toLowerCase().includes(words) ||
    pod.reasons.some((group) => group.reason.toLowerCase().includes(words)));
  if (pods.length === 0) return [empty(model.waiting.length > 0 ? 'noMatch' : 'nobodyWaits')];
  return pods.slice(0, kMostShown).map((pod) => waitingPod(model, pod));
}

function waitingPod(model, pod) {
  const worst = pod.reasons[0];
  const summary = make('summary', {}, make('b', {}, `${pod.namespace}/${pod.name}`),
    make('span', {class: 'dim'}, say('waitsSince', span(model.now() - pod.since))),
    make('span', {class: 'dim'}, say('tries', number(pod.tries))),
    worst && make('span', {class: 'dim'}, worst.reason));
  const details = make('details', {'data-key': pod.uid}, summary);
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1) details.append(...pod.reasons.map(reasonBlock));
  });
  return details;
}

function reasonBlock(group) {
  const shown = group.nodes.slice(0, kMostShown);
  const more = group.count - shown.length;
  return make('section', {}, make('h3', {}, `${group.reason} · ${say('onNodes', number(group.count))}`),
    make('p', {}, shown.join(', ') + (more > 0 ? ` … +${number(more)}` : '') || say('notKept')));
}

export function quotasView(model, words) {
  const lines = model.quotas.filter((line) => `${line.namespace} ${line.resource}`.toLowerCase().includes(words));
  if (lines.length === 0) return [empty(model.quotas.length > 0 ? 'noMatch' : 'noQuotas')];
  return [table('quotas', [[say('namespace')], [say('resource')], [say('used'), true], [say('limit'), true], ['']],
    lines.slice(0, kMostShown).map((line) => [line.namespace, line.resource, number(line.used),
      line.limit === null ? say('none') : number(line.limit),
      line.limit === null ? '' : gauge(line.used, line.limit, `${line.namespace} ${line.resource}`)]))];
}

export function locksView(model, words) {
  const locked = model.sorted.filter((node) => node.lock);
  const shown = locked.filter((node) => `${node.name} ${node.lock.namespace}/${node.lock.pod}`.toLowerCase().includes(words));
  if (shown.length === 0) return [empty(locked.length > 0 ? 'noMatch' : 'noLocks')];
  return [table('locks', [[say('node')], [say('holder')], [say('since')], [say('age'), true]], shown.map((node) => {
    const since = Date.parse(node.lock.since) / 1000;
    const holder = node.lock.pod ? `${node.lock.namespace}/${node.lock.pod}` : say('unknownHolder');
    return [node.name, holder, node.lock.since, Number.isNaN(since) ? '–' : span(model.now() - since)];
  }))];
}

const looks = {unhealthy: 'bad', gone: 'bad', cordoned: 'warn', healthy: 'good', added: 'good', uncordoned: 'good'};

export function healthView(model, words) {
  const events = model.events.filter((event) => `${event.node} ${event.card} ${event.what}`.toLowerCase().includes(words));
  if (events.length === 0) return [empty(model.events.length > 0 ? 'noMatch' : 'noEvents')];
  return [timeLine(model, events), table('health', [[say('time')], [say('node')], [say('card')], [say('what')]],
    events.slice(-kMostShown).reverse().map((event) => [moment(event.time), event.node, event.card || '–',
      make('span', {class: looks[event.what] ?? 'dim'}, say(event.what))]))];
}

// A row for each card that changed within the last hour, the latest change first.
function timeLine(model, events) {
  const cards = changedWithin(model, events, model.now());
  if (cards.length === 0) return make('p', {class: 'empty'}, say('quietHour'));
  const rows = cards.slice(0, kMostStrips).map(({node, uuid, index}) => {
    const label = index === null ? `${node} · ${uuid}` : `${node} · ${say('card')} ${index}`;
    return make('div', {class: 'strips', 'data-card': uuid}, make('span', {title: uuid}, label),
      healthStrip(model, node, uuid, label));
  });
  const more = cards.length - rows.length;
  return make('section', {'aria-label': say('timeLine')}, make('h2', {}, say('timeLine')), ...rows,
    make('div', {class: 'strips'}, make('span', {class: 'dim'}, more > 0 ? `… +${number(more)}` : ''), hourAxis(model.now())));
}

// A node and, where one is chosen, one of its cards. USE: what UseWatch has of the node.
export function detailView(model, node, position, use, choose, close) {
  const parts = [make('button', {class: 'close', type: 'button', 'data-key': 'close', onclick: close}, say('close')),
    make('h2', {}, node.name)];
  if (!node.readable) parts.push(make('p', {class: 'bad'}, say('unreadable')));
  if (node.lock) {
    parts.push(make('p', {class: 'warn'}, `${say('locked')}: ${node.lock.pod ?
      `${node.lock.namespace}/${node.lock.pod}` : say('unknownHolder')}, ${node.lock.since}`));
  }
  parts.push(table('cards', [[say('card')], [say('memory'), true], [say('cores'), true], [say('shares'), true], [say('state')]],
    node.cards.map((card, i) => {
      const [state, look] = stateOf(card);
      return [make('button', {type: 'button', 'data-key': `card ${i}`, 'aria-pressed': String(i === position), onclick: () => choose(node, i)},
        String(card.index)), say('shareLimit', memory(card.used_memory_mib), memory(card.memory_mib)),
      `${number(card.used_cores)} %`, say('shareLimit', number(card.used_shares), number(card.shares)),
      make('span', {class: look}, say(state))];
    })));
  const card = node.cards[position];
  if (card) parts.push(...cardParts(model, node, card, position, use));
  return parts;
}

function cardParts(model, node, card, position, use) {
  const tenants = tenantsOf(node, position);
  const parts = [make('h3', {}, `${say('card')} ${card.index} · ${card.type}`),
    make('p', {class: 'dim'}, `${say('uuid')} ${card.uuid} · ${say('mode')} ${card.mode || '–'} · ` +
      `${say('numa')} ${card.numa}`),
    gauge(card.used_memory_mib, card.memory_mib, say('memory')), make('h3', {}, say('tenants'))];
  parts.push(tenants.length === 0 ? empty('noTenants') :
    table('tenants', [[say('pod')], [say('memory'), true], [say('cores'), true], [say('state')]],
      tenants.map(({pod, share}) => [`${pod.namespace}/${pod.name}`, memory(share.memory_mib),
        `${number(share.cores)} %`, say(pod.state)])));
  if (card.mode === 'mig' || card.mig.length > 0) parts.push(make('h3', {}, say('mig')), migMap(card));
  parts.push(...useParts(node, card, tenants, use.document, use.problem, model.now()), hourAxis(model.now()),
    make('h3', {}, say('healthOverHour')), healthStrip(model, node.name, card.uuid, say('healthOverHour')),
    hourAxis(model.now()));
  return parts;
}

// Eight memory slices, as NVIDIA counts them.
function migMap(card) {
  const map = make('div', {class: 'mig', role: 'list', 'aria-label': say('mig')});
  const taken = new Array(8).fill(false);
  for (const instance of card.mig) {
    const text = `${instance.profile} ${instance.pod}`;
    const block = make('div', {class: 'taken', role: 'listitem', title: `${text} ${instance.uuid}`}, text);
    block.style.gridColumn = `${instance.start + 1} / span ${instance.size}`;
    for (let i = 0; i < instance.size; ++i) taken[instance.start + i] = true;
    map.append(block);
  }
  for (let i = 0; i < 8; ++i) {
    if (taken[i]) continue;
    const block = make('div', {role: 'listitem', 'aria-label': say('free')}, '');
    block.style.gridColumn = `${i + 1}`;
    map.append(block);
  }
  return map;
}
