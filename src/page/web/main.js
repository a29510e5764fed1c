// SPDX-License-Identifier: Apache-2.0
//
// The page put together: the model, the views, what the reader chose (kept in the address and in this browser).

import {make, replaceKeeping} from './elements.js';
import {CardMap} from './map.js';
import {Model, UseWatch, follow, matches} from './model.js';
import {languages, memory, number, percent, say, setLanguage} from './text.js';
import {NodeTable, detailView, healthView, locksView, quotasView, stateOf, waitingView} from './views.js';

const views = ['map', 'nodes', 'waiting', 'health', 'quotas', 'locks'];
const by = (id) => document.getElementById(id);
const model = new Model();
const use = new UseWatch(() => token, () => plan());
const chosen = {view: 'map', node: null, card: -1, words: ''};
let shown = null;    // the map or the table that is on the panel
let problem = null;  // what is wrong with the connection
let loaded = false;
let drawPlanned = false;
let token = '';

function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  chosen.view = views.includes(hash.get('view')) ? hash.get('view') : 'map';
  chosen.node = hash.get('node');
  chosen.card = hash.has('card') ? Number(hash.get('card')) : -1;
  chosen.words = (hash.get('find') ?? '').toLowerCase();
  by('search').value = hash.get('find') ?? '';
}

function writeAddress() {
  const hash = new URLSearchParams({view: chosen.view});
  if (chosen.node) hash.set('node', chosen.node);
  if (chosen.node && chosen.card >= 0) hash.set('card', chosen.card);
  if (chosen.words) hash.set('find', chosen.words);
  history.replaceState(null, '', `#${hash}`);
}

function choose(node, card = -1) {
  chosen.node = node.name;
  chosen.card = card;
  writeAddress();
  drawDetail();
  if (card >= 0) announce(cardText(node, card));
}

function closeDetail() {
  chosen.node = null;
  writeAddress();
  drawDetail();
  by('panel').querySelector('canvas, [tabindex="0"]')?.focus();
}

function cardText(node, position) {
  const card = node.cards[position];
  return say('cardSays', node.name, card.index, card.type, memory(card.used_memory_mib), memory(card.memory_mib),
    number(card.used_cores), number(card.used_shares), say(stateOf(card)[0]));
}

function announce(text) {
  by('live').textContent = text;
}

function drawStatus() {
  const status = by('status');
  status.className = problem ? 'bad' : '';
  const notes = [];
  if (problem) notes.push(say('lost', problem));
  else if (!loaded) notes.push(say('connecting'));
  else notes.push(`${say('live')} · ${model.version}`);
  if (!model.status.leading) notes.push(say('following'));
  if (!model.status.complete) notes.push(say('incomplete'));
  const text = notes.join(' · ');
  if (status.textContent !== text) status.textContent = text;
}

function drawSummary() {
  const sum = model.totals();
  const figure = (key, value, note, look) => make('div', {class: `figure ${look ?? ''}`, 'data-figure': key},
    make('b', {}, value), make('span', {}, note ? `${say(key)} · ${note}` : say(key)));
  by('summary').replaceChildren(
    figure('nodes', number(sum.nodes)), figure('cards', number(sum.cards)),
    figure('memory', percent(sum.usedMemory, sum.memory), `${memory(sum.usedMemory)} / ${memory(sum.memory)}`),
    figure('cores', percent(sum.usedCores, sum.cores)), figure('shares', number(sum.shares)),
    figure('pods', number(sum.pods)), figure('waiting', number(sum.waiting), '', sum.waiting > 0 ? 'warn' : ''),
    figure('sick', number(sum.sick), '', sum.sick > 0 ? 'bad' : ''), figure('locks', number(sum.locks)));
}

function drawTabs() {
  const tabs = by('tabs');
  if (tabs.childElementCount === 0) {
    tabs.append(...views.map((view) => make('button', {role: 'tab', type: 'button', id: `tab-${view}`,
      'aria-controls': 'panel', onclick: () => showView(view)})));
    tabs.addEventListener('keydown', (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      showView(views[(views.indexOf(chosen.view) + step + views.length) % views.length]);
      by(`tab-${chosen.view}`).focus();
    });
  }
  for (const view of views) {
    const tab = by(`tab-${view}`);
    const count = {waiting: model.waiting.length, health: model.events.length}[view];
    tab.textContent = count > 0 ? `${say(view)} (${number(count)})` : say(view);
    tab.setAttribute('aria-selected', String(view === chosen.view));
    tab.tabIndex = view === chosen.view ? 0 : -1;
  }
  by('panel').setAttribute('aria-labelledby', `tab-${chosen.view}`);
}

function showView(view) {
  chosen.view = view;
  writeAddress();
  clearPanel();
  draw();
}

function clearPanel() {
  shown?.end();
  shown = null;
  by('panel').replaceChildren();
}

function drawPanel() {
  const nodes = model.sorted.filter((node) => matches(node, chosen.words));
  const panel = by('panel');
  if (chosen.view === 'map' || chosen.view === 'nodes') {
    if (nodes.length === 0) {
      clearPanel();
      if (loaded) panel.append(make('p', {class: 'empty'}, say(model.nodes.size > 0 ? 'noMatch' : 'noNodes')));
      return;
    }
    shown ??= chosen.view === 'map' ? newMap(panel) : newTable(panel);
    const cards = nodes.reduce((count, node) => count + node.cards.length, 0);
    shown.show(nodes, say('mapHelp', number(nodes.length), number(cards)));
    return;
  }
  const view = {waiting: waitingView, health: healthView, quotas: quotasView, locks: locksView}[chosen.view];
  replaceKeeping(panel, view(model, chosen.words));
}

function newMap(panel) {
  const key = (look, text) => make('span', {}, make('i', {class: look}), text);
  const holder = make('div', {id: 'map', class: 'grow'});
  panel.append(make('div', {class: 'frame'}, make('p', {class: 'legend', 'aria-hidden': 'true'},
    key('free', say('free')), key('fill', say('given')), key('sick', say('unhealthy')),
    key('cordon', `${say('cordoned')} / ${say('unusable')}`), key('waits', say('locked'))), holder));
  return new CardMap(holder, {choose, selected: (node, card) => announce(cardText(node, card))});
}

function newTable(panel) {
  const rows = new NodeTable((node) => choose(node));
  panel.append(make('div', {class: 'frame'}, rows.element));
  return rows;
}

function drawDetail() {
  const detail = by('detail');
  const node = chosen.node ? model.nodes.get(chosen.node) : undefined;
  detail.hidden = !node;
  use.follow(node && node.cards[chosen.card] ? node.name : null);
  replaceKeeping(detail, node ? detailView(model, node, chosen.card, use, choose, closeDetail) : []);
}

function draw() {
  drawStatus();
  drawSummary();
  drawTabs();
  drawPanel();
  drawDetail();
}

// Once a frame, whatever comes in.
function plan() {
  if (drawPlanned) return;
  drawPlanned = true;
  requestAnimationFrame(() => {
    drawPlanned = false;
    draw();
    if (loaded) document.documentElement.dataset.ready = model.cursor;
  });
}

function applyLanguage(name) {
  setLanguage(name);
  document.documentElement.lang = name === 'zh' ? 'zh-CN' : name;
  for (const element of document.querySelectorAll('[data-text]')) element.textContent = say(element.dataset.text);
  for (const element of document.querySelectorAll('[data-label]')) {
    const text = say(element.dataset.label);
    element.setAttribute('aria-label', text);
    if (element.placeholder !== undefined) element.placeholder = text;
  }
  clearPanel();
  draw();
}

function applyTheme(name) {
  const dark = name === 'dark' || (name === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  draw();
}

// What a browser that keeps nothing refuses is no reason to show nothing.
function remembered(key, standard) {
  try {
    return localStorage.getItem(`hami-${key}`) ?? standard;
  } catch {
    return standard;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(`hami-${key}`, value);
  } catch {
    // It holds for this visit.
  }
}

function setUp(id, standard, apply) {
  const select = by(id);
  select.value = remembered(id, standard);
  if (!select.value) select.value = standard;
  select.addEventListener('change', () => {
    remember(id, select.value);
    apply(select.value);
  });
  apply(select.value);
}

function login(status, text) {
  problem = null;
  by('login-error').textContent = token ? `${status}: ${text}` : '';
  const dialog = by('login');
  return new Promise((done) => {
    dialog.addEventListener('close', () => {
      token = by('token').value.trim();
      by('token').value = '';
      done();
    }, {once: true});
    if (!dialog.open) dialog.showModal();
  });
}

readAddress();
const preferred = navigator.languages.map((name) => name.slice(0, 2)).find((name) => languages.includes(name)) ?? 'en';
setUp('language', preferred, applyLanguage);
setUp('theme', 'auto', applyTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => applyTheme(by('theme').value));
addEventListener('hashchange', () => {
  readAddress();
  clearPanel();
  draw();
});
by('search').addEventListener('input', () => {
  chosen.words = by('search').value.trim().toLowerCase();
  writeAddress();
  plan();
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && chosen.node && !by('login').open) closeDetail();
  if (event.key === '/' && document.activeElement?.tagName !== 'INPUT') {
    by('search').focus();
    event.preventDefault();
  }
});
// Ages grow without news.
setInterval(() => {
  if (['waiting', 'locks', 'health'].includes(chosen.view) || chosen.node) plan();
}, 10000);

follow(model, {
  token: () => token,
  login,
  problem: (text) => {
    problem = text;
    plan();
  },
  changed: () => {
    problem = null;
    loaded = true;
    plan();
  },
});
