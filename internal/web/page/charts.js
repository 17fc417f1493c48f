// Charts of our own: a gauge over time, and a distribution. Each says in words
// what it shows.

import { svg, el, span } from './text.js';

const W = 120, H = 26;

// trend is how many were held, and the cap, at each sample: of the last quarter of
// an hour, or since the first there is.
export function trend(name, samples, now) {
  const first = samples.length ? Date.parse(samples[0].at) : now;
  const long = Math.min(15 * 60e3, Math.max(30e3, now - first));
  const from = now - long;
  const of = samples.filter((s) => s.pools[name] && Date.parse(s.at) >= from - 6e3);
  const most = Math.max(1, ...of.map((s) => Math.max(...s.pools[name])));
  const x = (at) => Math.max(0, Math.min(W, ((at - from) / long) * W));
  const y = (n) => H - 2 - (n / most) * (H - 5);
  const chart = svg('svg', { class: 'trend', viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name} over the last ${span(long / 1000)}: at most ${Math.max(0, ...of.map((s) => s.pools[name][0]))} held` });
  if (of.length === 0) return chart;
  let held = '', cap = '', last = null, lastCap = null, start = null;
  for (const s of [...of, { at: new Date(now).toISOString(), pools: of.at(-1).pools }]) {
    const at = x(Date.parse(s.at));
    const [n, c] = s.pools[name];
    held += last === null ? `M${at} ${y(n)}` : `H${at}V${y(n)}`;
    if (c > 0) cap += lastCap === null ? `M${at} ${y(c)}` : `H${at}V${y(c)}`;
    start ??= at;
    last = at;
    lastCap = c > 0 ? at : null;
  }
  chart.append(
    svg('path', { class: 'area', d: `${held}V${H}H${start}Z` }),
    svg('path', { class: 'held', d: held, 'vector-effect': 'non-scaling-stroke' }),
    cap && svg('path', { class: 'cap', d: cap, 'vector-effect': 'non-scaling-stroke' }),
  );
  return chart;
}

// bar is how much of a cap is taken.
export function bar(held, cap) {
  const part = cap > 0 ? Math.min(1, held / cap) : held > 0 ? 1 : 0;
  return svg('svg', { class: 'bar ' + (cap > 0 && held >= cap ? 'full' : ''), viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('rect', { class: 'of', width: 100, height: 6, rx: 1 }), svg('rect', { class: 'is', width: part * 100, height: 6, rx: 1 }));
}

const names = {
  queue_wait: 'waited in line', claim_wait: 'waited for its driver', run: 'ran', review_wait: 'waited for a reviewer',
  acceptance: 'until accepted', release_wait: 'until released',
};

// figure is one duration as a distribution.
export function figure(name, d) {
  const title = names[name] ?? name;
  const counts = d.up_to.map((b, i) => b.count - (i ? d.up_to[i - 1].count : 0));
  if (d.count > 0) counts.push(d.count - (d.up_to.at(-1)?.count ?? 0));
  const most = Math.max(1, ...counts);
  const words = d.count === 0 ? 'none yet' : `median ${span(d.median_s)}, nine of ten within ${span(d.p90_s)}, longest ${span(d.max_s)}`;
  const chart = svg('svg', { class: 'hist', viewBox: '0 0 140 34', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: ${d.count} times, ${words}` });
  counts.forEach((n, i) => {
    const h = n === 0 ? 1 : 3 + (n / most) * 30;
    const limit = d.up_to[i] ? 'up to ' + span(d.up_to[i].le_s) : 'longer';
    chart.append(svg('rect', { class: n ? 'some' : 'none', x: i * 10 + 1, y: 34 - h, width: 8, height: h }, svg('title', {}, `${limit}: ${n}`)));
  });
  return el('figure', { class: d.count ? '' : 'empty' },
    el('figcaption', {}, el('b', {}, title), el('span', { class: 'n' }, d.count ? String(d.count) : '')),
    d.count > 0 && chart,
    d.count > 0 && el('div', { class: 'axis', 'aria-hidden': 'true' }, el('span', {}, '0.1 s'), el('span', {}, '1 min'), el('span', {}, '1 h'), el('span', {}, '1 w')),
    el('p', { class: 'words' }, d.count === 0 ? words : `median ${span(d.median_s)} · p90 ${span(d.p90_s)}`));
}
