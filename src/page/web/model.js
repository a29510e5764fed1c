// SPDX-License-Identifier: Apache-2.0
//
// The cluster as the page has it: the state of /v1/state, kept current by asking for what changed since. Holds no
// element. A change is told once, however many nodes it touches.

const kWait = 25;
const kLongestPause = 15000;
const collator = new Intl.Collator('en', {numeric: true});

export class Model {
  constructor() {
    this.nodes = new Map();
    this.sorted = [];
    this.waiting = [];
    this.quotas = [];
    this.events = [];
    this.status = {leading: true, complete: true};
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
    this.events = this.events.concat(document.events).slice(-1000);
    this.version = document.version;
    this.cursor = `${document.epoch}.${document.revision}`;
    this.skew = document.time - Date.now() / 1000;
  }

  now() {
    return Date.now() / 1000 + this.skew;
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
