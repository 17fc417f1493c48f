// The page: takes in what the stream tells, and brings the parts up to date once a
// frame.

import { el, put, whole, clock, plural, shown, moment } from './text.js';
import { enter, follow, ask, Refused } from './link.js';
import { Map5, nameOf, word, markOf } from './map.js';
import { Side } from './side.js';
import { List } from './list.js';
import { trend, bar, figure } from './charts.js';

const $ = (id) => document.getElementById(id);
const state = { cards: new Map(), head: null, crossings: null, samples: [], at: null, skew: 0, live: false, find: '' };
const now = () => Date.now() + state.skew;
const dirty = { map: true, head: true, line: true, pools: true };
let frame = false;

function later() {
  if (frame) return;
  frame = true;
  requestAnimationFrame(() => {
    frame = false;
    render();
  });
}

// ---- what is said aloud, and not too often ----

const news = [];
let speaking;
function announce(text) {
  news.push(text);
  speaking ??= setTimeout(() => {
    speaking = undefined;
    const all = news.splice(0);
    put($('say'), all.length > 3 ? `${all.slice(0, 2).join('. ')}. And ${all.length - 2} more changes.` : all.join('. '));
  }, 1500);
}

let toasted;
function said(text) {
  put($('toast'), text);
  clearTimeout(toasted);
  toasted = setTimeout(() => put($('toast'), ''), 8000);
}

// ---- parts ----

const side = new Side($('side'), $('confirm'), { now, said, card: (id) => state.cards.get(id), holds: () => state.head?.holds ?? [] });

const map = new Map5($('map'), {
  now,
  open: (id) => openCard(id, () => map.boxes[state.cards.get(id)?.box]?.list.focus(id) || $('map').focus()),
  openCrossings: (key) => side.crossings(key, state.crossings?.[key], () => map.arrows[key].focus()),
});
map.changed = () => {
  dirty.map = true;
  later();
};

const line = new List({ label: 'The line', height: 30, draw: drawPlace, open: (row) => openCard(row.key, () => line.focus(row.key) || $('map').focus()) });
$('line').append(line.el);

function openCard(id, back) {
  const c = state.cards.get(id);
  if (c) side.show('run:' + id, nameOf(c), back, c);
}

function drawPlace(row, b) {
  const c = row.card;
  b.className = 'place-row ' + c.answer;
  b.replaceChildren(
    el('span', { class: 'no' }, '#' + c.place), el('span', { class: 'name data' }, nameOf(c)), el('span', { class: 'eng data' }, c.engine || c.argv0),
    c.priority ? el('span', { class: 'prio', title: 'priority' }, (c.priority > 0 ? '+' : '') + c.priority) : '',
    el('span', { class: 'msg data' }, c.message || c.code), el('span', { class: 'when' }, whole((now() - Date.parse(c.since)) / 1000)));
}

const keep = (c) => !state.find || [c.lane, c.id, c.engine, c.account, c.author, c.code, c.state, c.message, c.argv0, ...(c.pools ?? [])].some((t) => t && t.toLowerCase().includes(state.find));

// ---- what comes in ----

function take(card) {
  card.sig = JSON.stringify(card);
  const was = state.cards.get(card.id);
  state.cards.set(card.id, card);
  map.put(card, was);
  side.changed(card.id);
  if (state.live && (!was || was.box !== card.box || was.answer !== card.answer)) {
    if (card.box === 'acceptance' && card.answer === 'wait') announce(`${nameOf(card)} waits for a verdict`);
    else if (card.review === 'released') announce(`${nameOf(card)} was released`);
    else if (card.answer === 'deny') announce(`${nameOf(card)} is ${word(card)}: ${card.message ?? card.code}`);
  }
}

function heard(kind, m) {
  if (kind === 'bye') return;
  gone(null);
  late(m.looking_s ?? 0);
  if (!m.at) return; // nothing was seen yet
  state.at = m.at;
  state.skew = Date.parse(m.at) - Date.now();
  if (kind === 'full') {
    state.live = false;
    state.cards.clear();
    map.clear();
    state.samples = [];
    side.stale = true;
  }
  for (const c of m.cards ?? []) take(c);
  for (const id of m.gone ?? []) {
    const c = state.cards.get(id);
    if (!c) continue;
    map.drop(c);
    state.cards.delete(id);
    side.changed(id);
  }
  if (m.head) {
    toldHead(m.head);
    dirty.head = dirty.pools = true;
  }
  if (m.crossings) {
    state.crossings = m.crossings;
    dirty.cross = kind === 'full' ? 'old' : 'new';
    spansSoon();
  }
  if (m.samples) {
    state.samples.push(...m.samples);
    state.samples = state.samples.filter((s) => s.at <= m.at).slice(-200); // a clock may be set back
    dirty.pools = true;
  }
  if (m.cards || m.gone) dirty.map = dirty.line = true;
  state.live = true;
  dirty.asof = true;
  later();
}

const dispatcherText = {
  answers: (d) => ['go', '● dispatcher answers' + (d.pid ? `, pid ${d.pid}` : '')],
  silent: (d) => ['wait', '◷ dispatcher is silent' + (d.pid ? `, pid ${d.pid}` : '')],
  none: () => ['deny', '✕ no dispatcher'],
};

// toldHead announces what a person has to know at once.
function toldHead(head) {
  const was = state.head?.dispatcher.state;
  state.head = head;
  const is = head.dispatcher.state;
  if (was && was !== is) announce(is === 'answers' ? 'The dispatcher answers again.' : is === 'none' ? 'The dispatcher is gone. Locks are still shown.' : 'The dispatcher does not answer.');
}

// ---- banners ----

function banner(id, kind, text) {
  let b = $('banner-' + id);
  if (!text) {
    b?.remove();
    return;
  }
  if (!b) {
    b = el('p', { id: 'banner-' + id, class: 'banner' });
    $('banners').append(b);
  }
  b.className = 'banner ' + kind;
  put(b, text);
}

// late says that a look goes on for longer than looks do, and of when the last was.
function late(seconds) {
  banner('late', 'wait', seconds >= 5 && `◷ handsel web has been looking at the home for ${seconds} s${state.at ? `; what you see is from ${clock(state.at)}` : ''}.`);
}

// gone says that handsel web does not answer, and since when; null: it does.
function gone(since) {
  const stale = since !== null;
  if (document.body.classList.contains('stale') !== stale) announce(stale ? 'handsel web does not answer. What is shown is old.' : 'handsel web answers again.');
  document.body.classList.toggle('stale', stale);
  if (stale) late(0);
  banner('server', 'deny', since && `✕ handsel web does not answer${state.at ? `; what you see is from ${clock(state.at)}` : ''}. It is tried again and again.`);
}

function headBanners(h) {
  const d = h.dispatcher;
  const wanted = h.mode === 'dispatcher';
  const text = {
    none: `✕ The dispatcher is gone: nothing that waits as a row starts. What holds locks is still shown${h.source === 'entries' ? `; rows are from ${Math.round(h.age_s)} s ago` : ''}. handsel dispatch starts one.`,
    silent: `◷ The dispatcher${d.pid ? `, pid ${d.pid},` : ''} does not answer. What holds locks is still shown; rows are from ${Math.round(h.age_s)} s ago.`,
  }[d.state];
  banner('dispatcher', d.state === 'silent' ? 'wait' : 'deny', wanted || h.source === 'entries' && [...state.cards.values()].some((c) => c.verb === 'enqueue' && c.answer === 'wait') ? text : '');
  banner('problems', 'wait', h.problems?.length ? `◷ ${h.problems.slice(0, 3).join(' · ')}${h.problems.length > 3 ? ` · and ${h.problems.length - 3} more: handsel doctor` : ''}` : '');
}

// ---- rendering ----

function render() {
  const h = state.head;
  if (!h) return;
  if (dirty.asof) put($('asof'), 'as of ' + clock(state.at));
  if (dirty.head) renderHead(h);
  if (dirty.map || dirty.head) map.render(h, keep);
  if (dirty.cross) map.cross(state.crossings, dirty.cross === 'new');
  if (dirty.line) renderLine();
  if (dirty.pools) renderPools(h);
  for (const k of Object.keys(dirty)) dirty[k] = false;
}

function renderHead(h) {
  put($('home'), h.root);
  const [kind, text] = h.mode === 'dispatcher' || h.dispatcher.state !== 'none' ? dispatcherText[h.dispatcher.state](h.dispatcher) : ['quiet', 'no dispatcher is configured'];
  $('dispatcher').className = 'pill ' + kind;
  put($('dispatcher'), text);
  $('dispatcher').title = shown(h.dispatcher.message || (h.dispatcher.version ? 'version ' + h.dispatcher.version : ''));
  const draining = (h.holds ?? []).some((o) => o.kind === 'drain' || o.scope === 'all');
  $('orders').hidden = !draining;
  put($('orders'), '◷ nothing new starts');
  put($('drain'), draining ? 'Resume…' : 'Drain…');
  $('drain').dataset.verb = draining ? 'resume' : 'drain';
  headBanners(h);
  renderOrders(h);
  renderAccounts(h);
}

function renderLine() {
  const rows = [...state.cards.values()].filter((c) => c.place > 0 && c.answer !== 'go' && keep(c)).sort((a, b) => a.place - b.place || (a.verb === 'enqueue') - (b.verb === 'enqueue'));
  put($('line-n'), rows.length ? plural(rows.length, 'waiter') : '');
  line.el.classList.toggle('empty', rows.length === 0);
  line.set(rows.map((c) => ({ key: c.id, card: c, sig: c.sig })));
}

const gauges = new Map(); // name → li

function renderPools(h) {
  const seen = new Set();
  const pools = h.pools.filter((p) => p.cap > 0 || p.held > 0);
  for (const [i, p] of pools.entries()) {
    seen.add(p.name);
    let li = gauges.get(p.name);
    if (!li) {
      const x = 'pool:' + p.name;
      const b = el('button', { type: 'button', onclick: () => side.show(x, 'pool ' + p.name, () => b.focus()) });
      li = el('li', {}, b);
      gauges.set(p.name, li);
    }
    const text = p.cap > 0 ? `${p.held} of ${p.cap}` : `${p.held}, no cap`;
    const extra = [p.draining && 'over its cap', p.orphaned > 0 && plural(p.orphaned, 'orphan')].filter(Boolean).join(', ');
    li.firstChild.replaceChildren(el('span', { class: 'name' }, p.name), el('span', { class: 'num' }, text), extra && el('span', { class: 'extra' }, '✕ ' + extra), bar(p.held, p.cap), trend(p.name, state.samples, now()));
    if ($('pools').children[i] !== li) $('pools').insertBefore(li, $('pools').children[i] ?? null); // what is moved loses the focus
  }
  for (const [name, li] of gauges) {
    if (seen.has(name)) continue;
    li.remove();
    gauges.delete(name);
  }
  $('pools').classList.toggle('none', pools.length === 0);
}

function renderOrders(h) {
  const list = (h.holds ?? []).filter((o) => o.kind === 'hold' || o.kind === 'drain'); // the others are told of the accounts
  keepFocus($('holds'), () => list.length ? [el('h3', {}, 'Orders'), el('ul', { class: 'orders' }, list.map((o) => el('li', {},
    el('span', { class: 'kind' }, '◷ ' + o.kind), el('span', { class: 'name data' }, o.scope),
    el('span', { class: 'msg data' }, [o.reason, o.by && 'by ' + o.by, o.until && 'until ' + moment(o.until)].filter(Boolean).join(' · ')),
    el('button', { type: 'button', 'data-x': 'r' + o.scope, 'aria-label': 'Resume ' + o.scope, onclick: (e) => side.confirm({ verb: 'resume', x: o.scope, of: o.scope, label: 'Resume' }, e.currentTarget) }, 'Resume…'))))] : []);
}

function renderAccounts(h) {
  keepFocus($('accounts'), () => h.accounts?.length ? [el('h3', {}, 'Engine accounts'), el('ul', { class: 'orders' }, h.accounts.map((a) => {
    const name = [a.engine, a.account].filter(Boolean).join('/');
    const x = (a.account ? 'account:' : 'engine:') + name;
    return el('li', {}, el('button', { type: 'button', class: 'ref ' + a.answer, 'data-x': x, onclick: (e) => { const b = e.currentTarget; side.show(x, name, () => (b.isConnected ? b : $('map')).focus()); } },
      `${markOf({ answer: a.answer })} ${name}`), el('span', { class: 'msg data' }, [a.message, a.until && 'until ' + moment(a.until)].filter(Boolean).join(' · ')));
  }))] : []);
}

// keepFocus builds a part anew and leaves the focus where it was.
function keepFocus(root, build) {
  const had = root.contains(document.activeElement) && document.activeElement.dataset.x;
  root.replaceChildren(...build());
  if (had) [...root.querySelectorAll('[data-x]')].find((b) => b.dataset.x === had)?.focus();
}

// ---- durations: asked for when something ended, and now and then ----

let spansAt = 0, spansTimer;
function spansSoon() {
  spansTimer ??= setTimeout(async () => {
    spansTimer = undefined;
    spansAt = Date.now();
    try {
      const d = await ask('durations');
      $('spans').replaceChildren(...d.names.map((n) => figure(n, d.durations[n])));
    } catch (e) {
      if (!(e instanceof Refused) && !(e instanceof TypeError)) throw e;
    }
  }, Math.max(300, 6000 - (Date.now() - spansAt)));
}

// ---- the rest ----

$('find').addEventListener('input', (e) => {
  state.find = e.target.value.trim().toLowerCase();
  map.dirtyAll();
  dirty.map = dirty.line = true;
  later();
});
$('drain').addEventListener('click', (e) => side.confirm(e.currentTarget.dataset.verb === 'resume' ? { verb: 'resume', x: 'all', of: 'all', label: 'Resume' } : { verb: 'drain', of: 'everything', label: 'Drain' }, e.currentTarget));
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName) && !$('confirm').open) {
    e.preventDefault();
    $('find').focus();
  } else if (e.key === 'Escape' && side.isOpen && !$('confirm').open) side.close();
});
setInterval(() => {
  if (document.hidden || !state.head) return;
  map.tick();
  line.tick();
  side.tick();
}, 1000);
setInterval(spansSoon, 30000);

function closed(text) {
  $('main').hidden = true;
  side.root.hidden = true;
  banner('server');
  put($('gate-why'), text);
  $('gate').hidden = false;
  put($('dispatcher'), '');
}

const whyClosed = {
  used_token: 'This link was opened before, and a link works once.',
  bad_token: 'This is not the link that handsel web printed.',
};

async function begin() {
  try {
    if (!await enter()) return closed('This tab has no session with handsel web: it was opened without the link.');
  } catch (e) {
    return closed(e instanceof Refused ? whyClosed[e.code] ?? e.message : 'handsel web does not answer.');
  }
  $('main').hidden = false;
  spansSoon();
  await follow({ heard, lost: () => gone(Date.now()), closed: () => closed('The session of this page is over: handsel web was started anew.') });
}

begin();
