// SPDX-License-Identifier: Apache-2.0
//
// The last hour as pictures, each with the same in words: what a card's tenants used against their limits, and when a
// card was well. Time runs from left to right over one hour.

import {make, shape, table} from './elements.js';
import {bandsOf, kHour, seriesOf} from './model.js';
import {clock, memory, moment, number, percent, say} from './text.js';

const kWidth = 1000;
const kHeight = 100;
const kFewestGap = 150;  // seconds without a sample that are shown as a hole, at least

// What the tenants of a card used. USE: the document of /v1/use, or nothing yet; PROBLEM: why there is none.
export function useParts(node, card, tenants, use, problem, now) {
  const parts = [make('h3', {}, say('useOverHour'))];
  if (!use) return [...parts, make('p', {class: problem ? 'warn' : 'dim'}, problem ? say('lost', problem) : say('connecting'))];
  if (!use.asked) return [...parts, make('p', {class: 'dim'}, say('useNotAsked'))];
  if (use.problem) {
    parts.push(make('p', {class: 'warn', role: 'note'}, say('useProblem', use.problem,
      use.answered > 0 ? moment(use.answered) : say('never'))));
  }
  if (use.left_out > 0) parts.push(make('p', {class: 'warn'}, say('useLeftOut', number(use.left_out))));
  const series = seriesOf(use, card);
  const held = new Set(tenants.map(({pod}) => `${pod.namespace}/${pod.name}`));
  const seen = new Set(series.map((one) => one.tenant));
  for (const one of series) parts.push(tenantParts(node, one, held.has(one.tenant), now));
  for (const tenant of held) {
    if (!seen.has(tenant)) parts.push(make('p', {class: 'dim'}, say('useUnknown', tenant)));
  }
  return parts;
}

function tenantParts(node, one, here, now) {
  const last = one.samples.at(-1);
  const most = Math.max(...one.samples.map((sample) => sample.used));
  const ofMemory = last.limit > 0 ? say('ofLimit', memory(last.used), memory(last.limit), percent(last.used, last.limit)) :
    memory(last.used);
  const ofCores = last.cores === null ? say('notKnown') : last.coreLimit < 100 ?
    say('shareLimit', `${number(last.cores)} %`, `${number(last.coreLimit)} %`) : `${number(last.cores)} %`;
  const words = {
    memory: say('useOfMemory', one.name, ofMemory, clock(last.time), memory(most)),
    cores: say('useOfCores', one.name, ofCores, clock(last.time)),
  };
  const tops = {memory: Math.max(most, ...one.samples.map((sample) => sample.limit), 1), cores: 100};
  const old = now - last.time > gapOf(one.samples);
  const notes = [here ? '' : ` · ${say('noLonger')}`, old ? ` · ${say('noSampleSince', clock(last.time))}` : ''].join('');
  return make('section', {class: 'tenant', 'data-tenant': one.name},
    make('h4', {}, one.name, notes ? make('span', {class: 'dim'}, notes) : null),
    plot(words.memory, `${say('usedMemory')}: ${ofMemory}`, memory(tops.memory), one.samples, now, tops.memory,
      (sample) => sample.used, (sample) => (sample.limit > 0 ? sample.limit : null)),
    plot(words.cores, `${say('gpuTime')}: ${ofCores}`, '100 %', one.samples, now, tops.cores,
      (sample) => sample.cores, (sample) => (sample.coreLimit < 100 ? sample.coreLimit : null)),
    samplesTable(node, one));
}

// The same in numbers, the latest first.
function samplesTable(node, one) {
  const details = make('details', {'data-key': `use ${node.name} ${one.uuid} ${one.name}`},
    make('summary', {}, say('asTable', number(one.samples.length))));
  const fill = () => {
    if (!details.open || details.childElementCount > 1) return;
    details.append(table('useOverHour', [[say('time')], [say('usedMemory'), true], [say('limit'), true],
      [say('gpuTime'), true], [say('limit'), true]], [...one.samples].reverse().map((sample) => [clock(sample.time),
      memory(sample.used), sample.limit > 0 ? memory(sample.limit) : say('none'),
      sample.cores === null ? '–' : `${number(sample.cores)} %`,
      sample.coreLimit < 100 ? `${number(sample.coreLimit)} %` : say('none')])));
  };
  details.addEventListener('toggle', fill);
  return details;
}

function plot(label, caption, top, samples, now, highest, valueOf, limitOf) {
  const x = (time) => ((time - now + kHour) * kWidth) / kHour;
  const y = (value) => kHeight - (Math.min(value, highest) * (kHeight - 4)) / highest;
  const svg = shape('svg', {class: 'plot', viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': label});
  for (let quarter = 1; quarter < 4; ++quarter) {
    svg.append(shape('line', {class: 'grid', x1: (quarter * kWidth) / 4, x2: (quarter * kWidth) / 4, y1: 0, y2: kHeight}));
  }
  for (const run of runsOf(samples, valueOf)) {
    const points = run.map((sample) => `${x(sample.time).toFixed(1)},${y(valueOf(sample)).toFixed(1)}`);
    const [first, last] = [x(run[0].time).toFixed(1), x(run.at(-1).time).toFixed(1)];
    svg.append(shape('polygon', {class: 'area', points: `${first},${kHeight} ${points.join(' ')} ${last},${kHeight}`}));
    // One sample alone is a dot.
    if (run.length === 1) points.push(`${(x(run[0].time) + 2).toFixed(1)},${y(valueOf(run[0])).toFixed(1)}`);
    svg.append(shape('polyline', {class: 'used', points: points.join(' ')}));
  }
  for (const run of runsOf(samples, limitOf)) {
    const steps = run.flatMap((sample, i) => {
      const at = x(sample.time).toFixed(1);
      const level = y(limitOf(sample)).toFixed(1);
      return i === 0 ? [`${at},${level}`] : [`${at},${y(limitOf(run[i - 1])).toFixed(1)}`, `${at},${level}`];
    });
    if (run.length === 1) steps.push(`${(x(run[0].time) + 2).toFixed(1)},${y(limitOf(run[0])).toFixed(1)}`);
    svg.append(shape('polyline', {class: 'limit', points: steps.join(' ')}));
  }
  return make('figure', {class: 'trend'}, make('figcaption', {}, make('span', {}, caption),
    make('span', {class: 'dim'}, say('scaleTop', top))), svg);
}

// From how many seconds on a sample is missing.
function gapOf(samples) {
  const steps = samples.slice(1).map((sample, i) => sample.time - samples[i].time);
  return Math.max(kFewestGap, steps.length > 0 ? 2.5 * Math.min(...steps) : 0);
}

// Stretches in which VALUE is known and no sample is missing.
function runsOf(samples, valueOf) {
  const gap = gapOf(samples);
  const runs = [];
  let before = null;
  for (const sample of samples) {
    if (valueOf(sample) === null) {
      before = null;
      continue;
    }
    if (before === null || sample.time - before > gap) runs.push([]);
    runs.at(-1).push(sample);
    before = sample.time;
  }
  return runs;
}

const looks = {healthy: 'good', unhealthy: 'bad', cordoned: 'warn', gone: 'gone', unknown: 'unknown'};

// When a card was well, and what it was otherwise.
export function healthStrip(model, node, uuid, label) {
  const now = model.now();
  const bands = bandsOf(model, node, uuid, now);
  const words = bands.map((band) => `${clock(band.from)} ${say(band.state)}`).join(', ');
  const svg = shape('svg', {class: 'strip', viewBox: `0 0 ${kWidth} 20`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${label}: ${words}`});
  for (const band of bands) {
    const width = Math.max(4, ((band.to - band.from) * kWidth) / kHour);
    const x = Math.min(((band.from - now + kHour) * kWidth) / kHour, kWidth - width);
    // A height as well as a colour.
    const high = {unhealthy: 20, cordoned: 14, healthy: 8}[band.state] ?? 3;
    svg.append(shape('rect', {class: looks[band.state], x: x.toFixed(1), width: width.toFixed(1), y: 20 - high, height: high},
      shape('title', {}, `${clock(band.from)} – ${clock(band.to)} ${say(band.state)}`)));
  }
  return svg;
}

export function hourAxis(now) {
  const ticks = [0, 1, 2, 3, 4].map((quarter) => make('span', {}, clock(now - kHour + (quarter * kHour) / 4)));
  return make('div', {class: 'axis dim', 'aria-hidden': 'true'}, ...ticks);
}
