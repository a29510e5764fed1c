// SPDX-License-Identifier: Apache-2.0
//
// The cluster as the page has it: the state of /v1/state, kept current by asking for what changed since. Holds no
// element. A change is told once, however many nodes it touches.

const kWait = 25;
const kLongestPause = 15000;
const kUseAgain = 10000;
const kMostEvents = 1000;
export const kHour = 3600;
const collator = new Intl.Collator('en', {numeric: true});

export class Model {
  constructor() {
    this.nodes = new Map();
    this.sorted = [];
    this.waiting = [];
    this.quotas = [];
    this.events = [];
    this.status = {leading: true, complete: true, since: 0};
    this.version = '';
    this.cursor = '';
    this.skew = 0;  // seconds that the server's clock is ahead of ours
  }

  // Takes a document: everything, or what changed.
  apply(document) {
    if (document.full) {
      this.nodes.clear();
      this.events = [];
    }
    let names = document.full;
    for (const node of document.nodes) {
      names ||= !this.nodes.has(node.name);
      node.totals = totalsOf(node);
      this.nodes.set(node.name, node);
    }
    for (const name of document.gone) names = this.nodes.delete(name) || names;
    if (names) this.sorted = [...this.nodes.values()].sort((a, b) => collator.compare(a.name, b.name));
    else if (document.nodes.length > 0) this.sorted = this.sorted.map((node) => this.nodes.get(node.name));
    for (const part of ['waiting', 'quotas', 'status']) {
      if (part in document) this[part] = document[part];
    }
    this.events = this.events.concat(document.events).slice(-kMostEvents);
    this.version = document.version;
    this.cursor = `${document.epoch}.${document.revision}`;
    this.skew = document.time - Date.now() / 1000;
  }

  now() {
    return Date.now() / 1000 + this.skew;
  }

  // From when on all that happened to cards is known.
  timeLineSince() {
    const oldest = this.events.length === kMostEvents ? this.events[0].time : 0;
    return this.status.since > 0 ? Math.max(this.status.since, oldest) : this.now();
  }

  // Of the cluster as a whole.
  totals() {
    const sum = {nodes: this.nodes.size, cards: 0, sick: 0, memory: 0, usedMemory: 0, cores: 0, usedCores: 0,
      shares: 0, pods: 0, locks: 0, waiting: this.waiting.length};
    for (const node of this.nodes.values()) {
      for (const key of ['cards', 'sick', 'memory', 'usedMemory', 'cores', 'usedCores', 'shares', 'pods']) {
        sum[key] += node.totals[key];
      }
      if (node.lock) ++sum.locks;
    }
    return sum;
  }
}

function totalsOf(node) {
  const sum = {cards: node.cards.length, sick: 0, memory: 0, usedMemory: 0, cores: 0, usedCores: 0, shares: 0,
    pods: node.pods.length};
  for (const card of node.cards) {
    if (!card.usable) ++sum.sick;
    sum.memory += card.memory_mib;
    sum.usedMemory += card.used_memory_mib;
    sum.cores += card.cores;
    sum.usedCores += card.used_cores;
    sum.shares += card.used_shares;
  }
  return sum;
}

// Whether NODE is what somebody looks for: by its name, a card's type or UUID, or a pod.
export function matches(node, words) {
  if (words === '') return true;
  if (node.name.toLowerCase().includes(words)) return true;
  if (node.cards.some((card) => `${card.type} ${card.uuid}`.toLowerCase().includes(words))) return true;
  return node.pods.some((pod) => `${pod.namespace}/${pod.name}`.toLowerCase().includes(words));
}

// The pods that hold a share of the card at POSITION.
export function tenantsOf(node, position) {
  const list = [];
  for (const pod of node.pods) {
    for (const share of pod.shares) {
      if (share.card === position) list.push({pod, share});
    }
  }
  return list;
}

// What a node's shares used: the document of /v1/use, asked for again and again while somebody looks at the node.
export class UseWatch {
  constructor(token, changed) {
    this.token = token;
    this.changed = changed;
    this.node = null;
    this.document = null;
    this.problem = null;
    this.timer = null;
  }

  // NODE: whose use is wanted; null: nobody's.
  follow(node) {
    if (node === this.node) return;
    this.node = node;
    this.document = null;
    this.problem = null;
    clearTimeout(this.timer);
    if (node !== null) this.ask();
  }

  async ask() {
    const node = this.node;
    try {
      const token = this.token();
      const answer = await fetch(`v1/use?node=${encodeURIComponent(node)}`, {cache: 'no-store',
        headers: token ? {Authorization: `Bearer ${token}`} : {}, signal: AbortSignal.timeout(15000)});
      const document = answer.ok ? await answer.json() : null;
      const text = answer.ok ? null : `${answer.status}: ${(await answer.text()).trim()}`;
      if (node !== this.node) return;
      this.document = document ?? this.document;
      this.problem = text;
    } catch (error) {
      if (node !== this.node) return;
      this.problem = error.message;
    }
    this.changed();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), kUseAgain);
  }
}

// The shares in USE that are on CARD or on a MIG instance of it, each with its samples, the oldest first.
export function seriesOf(use, card) {
  const uuids = new Set([card.uuid, ...card.mig.map((instance) => instance.uuid)]);
  const own = use.shares.filter((share) => uuids.has(share.uuid) && share.samples.length > 0);
  return own.map((share) => ({
    tenant: `${share.namespace}/${share.pod}`, name: `${share.namespace}/${share.pod} · ${share.container}`,
    uuid: share.uuid,
    samples: share.samples.map(([time, used, limit, cores, coreLimit]) =>
      ({time, used, limit, cores: cores < 0 ? null : cores, coreLimit})),
  }));
}

// What the card was over the last hour: {from, to, state}, without holes. Before the scheduler looked it is unknown.
export function bandsOf(model, node, uuid, now) {
  const begin = now - kHour;
  const card = model.nodes.get(node)?.cards.find((one) => one.uuid === uuid);
  const own = model.events.filter((event) => event.node === node && (event.card === uuid || event.card === ''));
  const first = (yes, no, otherwise) => {
    const event = own.find(({what}) => what === yes || what === no);
    return event ? event.what === no : otherwise;
  };
  // Before the first event it was what that event ended.
  const flags = {there: first('added', 'gone', card !== undefined), well: first('healthy', 'unhealthy', card?.healthy ?? true),
    cordoned: first('cordoned', 'uncordoned', card?.cordoned ?? false)};
  const known = Math.max(begin, model.timeLineSince());
  const bands = known > begin ? [{from: begin, to: Math.min(known, now), state: 'unknown'}] : [];
  const enter = (time) => {
    const state = !flags.there ? 'gone' : !flags.well ? 'unhealthy' : flags.cordoned ? 'cordoned' : 'healthy';
    const from = Math.min(now, Math.max(known, time));
    while (bands.length > 0 && bands.at(-1).from >= from && bands.at(-1).state !== 'unknown') bands.pop();
    if (bands.at(-1)?.state === state) return;
    if (bands.length > 0) bands.at(-1).to = from;
    bands.push({from, to: now, state});
  };
  enter(known);
  for (const {time, what} of own) {
    if (what === 'added') Object.assign(flags, {there: true, well: true, cordoned: false});
    else if (what === 'gone') flags.there = false;
    else if (what === 'healthy' || what === 'unhealthy') flags.well = what === 'healthy';
    else flags.cordoned = what === 'cordoned';
    enter(time);
  }
  return bands;
}

// The cards of EVENTS within the last hour: {node, uuid, index}, the latest first; of a node that came or went, all.
export function changedWithin(model, events, now) {
  const found = new Map();
  for (const event of [...events].reverse()) {
    if (event.time < now - kHour) break;
    const cards = model.nodes.get(event.node)?.cards ?? [];
    const uuids = event.card ? [event.card] : cards.map((card) => card.uuid);
    for (const uuid of uuids) {
      const index = cards.find((card) => card.uuid === uuid)?.index ?? null;
      if (!found.has(uuid)) found.set(uuid, {node: event.node, uuid, index});
    }
  }
  return [...found.values()];
}

// Asks for ever. ON: changed(), problem(kind, detail), token() -> string.
export async function follow(model, on) {
  let pause = 1000;
  for (;;) {
    try {
      const answer = await ask(model, on.token());
      if (answer.status === 200) {
        model.apply(await answer.json());
        pause = 1000;
        on.changed();
        // A server that lets nobody wait answers at once.
        await sleep(300);
        continue;
      }
      const text = (await answer.text()).trim();
      if (answer.status === 401 || answer.status === 403) {
        await on.login(answer.status, text);
        continue;
      }
      on.problem(`${answer.status}: ${text}`);
    } catch (error) {
      on.problem(error.message);
    }
    await sleep(pause);
    pause = Math.min(pause * 2, kLongestPause);
  }
}

function ask(model, token) {
  const target = model.cursor ? `v1/state?since=${encodeURIComponent(model.cursor)}&wait=${kWait}` : 'v1/state';
  const headers = token ? {Authorization: `Bearer ${token}`} : {};
  return fetch(target, {headers, cache: 'no-store', signal: AbortSignal.timeout((kWait + 15) * 1000)});
}

function sleep(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}
