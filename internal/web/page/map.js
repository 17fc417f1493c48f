// The ownership map: five boxes and what is over, the cards in them, and between
// them what crossed last.

import { el, put, shown, short, whole } from './text.js';
import { List } from './list.js';

const boxes = [
  ['resource', 'Resource', 'May this machine take one more?'],
  ['quota', 'Quota', 'May this engine’s account?'],
  ['ownership', 'Ownership', 'Whose is the work?'],
  ['acceptance', 'Acceptance', 'Is the result good enough?'],
  ['release', 'Release', 'May it go out?'],
  ['ended', 'Over', 'Nothing is to be decided.'],
];

export const titleOf = Object.fromEntries(boxes.map(([k, t]) => [k, t]));

const wordOf = { go: 'goes', wait: 'waits', deny: 'stuck' };

// word says how a card stands, mark the same without colour.
export function word(c) {
  if (c.box === 'ended') return c.answer === 'go' ? 'done' : c.state === 'exited' ? 'failed' : c.state;
  if (c.answer === 'deny') return c.box === 'acceptance' ? 'rejected' : 'stuck';
  if (c.box === 'acceptance' || c.box === 'release') return c.review === 'released' ? 'released' : 'waits';
  return c.answer === 'wait' ? 'waits' : c.state;
}

export const markOf = (c) => c.answer === 'wait' ? '◷' : c.answer === 'deny' ? '✕' : c.box === 'ended' || c.review === 'released' ? '✓' : '▶';

export const nameOf = (c) => c.lane || `${c.engine || c.argv0} ${short(c.id)}`;

const rank = { wait: 0, deny: 1, go: 2 };
const byTurn = (a, b) => rank[a.answer] - rank[b.answer] || (a.place ?? 0) - (b.place ?? 0) || (a.id < b.id ? 1 : -1);

// detail is why it waits, or what it is.
function detail(c) {
  if (c.answer === 'go' && c.box === 'ownership') return [c.engine || c.argv0, c.workload === 'light' ? 'light' : '', c.account].filter(Boolean).join(' · ');
  if (c.box === 'ended') return c.message || c.code;
  return c.message || c.code;
}

const groupAt = 7; // cards, from which on a box is told by reasons

export class Map5 {
  constructor(root, { open, openCrossings, now }) {
    this.now = now;
    this.open = open;
    this.closed = new Set(); // groups
    this.boxes = {};
    this.arrows = {};
    boxes.forEach(([key, title, question], i) => {
      const list = new List({ label: title, height: 46, draw: (row, b) => this.draw(row, b), open: (row) => this.pick(row) });
      const counts = el('p', { class: 'counts' });
      root.append(el('section', { class: `box box-${key} at-${i}`, 'aria-labelledby': 'box-' + key },
        el('header', {}, el('h3', { id: 'box-' + key }, title), el('p', { class: 'question' }, question), counts), list.el));
      this.boxes[key] = { list, counts, cards: new Map(), dirty: true };
      if (key === 'ended') return;
      const arrow = el('button', { type: 'button', class: `cross at-${i} nothing`, onclick: () => openCrossings(key) });
      root.append(arrow);
      this.arrows[key] = arrow;
    });
  }

  // put takes a card in, wherever it was.
  put(card, was) {
    if (was && was.box !== card.box) this.drop(was);
    const b = this.boxes[card.box];
    if (!b) return;
    b.cards.set(card.id, card);
    b.dirty = true;
  }

  drop(card) {
    const b = this.boxes[card.box];
    if (b?.cards.delete(card.id)) b.dirty = true;
  }

  clear() {
    for (const b of Object.values(this.boxes)) {
      b.cards.clear();
      b.dirty = true;
    }
  }

  dirtyAll() {
    for (const b of Object.values(this.boxes)) b.dirty = true;
  }

  // render brings the boxes that changed up to date. keep chooses cards.
  render(head, keep) {
    for (const [key, b] of Object.entries(this.boxes)) {
      if (head) this.count(key, b, head.boxes?.[key]);
      if (!b.dirty) continue;
      b.dirty = false;
      const cards = [...b.cards.values()].filter(keep).sort(byTurn);
      b.list.set(this.rows(key, cards));
      b.list.el.classList.toggle('empty', cards.length === 0);
    }
  }

  count(key, b, n) {
    const go = n?.go ?? 0, wait = n?.wait ?? 0, deny = n?.deny ?? 0;
    const goes = { ownership: 'own it', release: 'released', ended: 'done' }[key] ?? 'may';
    const denied = { acceptance: 'rejected', ended: 'failed' }[key] ?? 'stuck';
    const text = [wait && `${wait.toLocaleString('en')} wait`, go && `${go.toLocaleString('en')} ${goes}`, deny && `${deny.toLocaleString('en')} ${denied}`].filter(Boolean);
    put(b.counts, text.join(' · ') || 'nobody');
    b.counts.className = 'counts ' + (deny && key !== 'ended' ? 'deny' : wait ? 'wait' : go ? 'go' : '');
  }

  // rows are the cards, told by reasons where there are many.
  rows(key, cards) {
    if (cards.length < groupAt) return cards.map(rowOf);
    const groups = new Map();
    for (const c of cards) {
      const k = `${key} ${c.answer} ${c.code}`;
      if (!groups.has(k)) groups.set(k, []);
      groups.get(k).push(c);
    }
    if (groups.size === 1 && cards.length < 50) return cards.map(rowOf);
    const rows = [];
    for (const [k, of] of groups) {
      const shut = this.closed.has(k);
      const n = of.length;
      rows.push({ key: 'group ' + k, group: k, shut, n, first: of[0], sig: `${n} ${shut}` });
      if (!shut) for (const c of of) rows.push(rowOf(c));
    }
    return rows;
  }

  pick(row) {
    if (!row.group) {
      this.open(row.card.id);
      return;
    }
    if (!this.closed.delete(row.group)) this.closed.add(row.group);
    for (const b of Object.values(this.boxes)) b.dirty = true;
    this.changed?.();
  }

  draw(row, b) {
    if (row.group) {
      b.className = 'group';
      b.setAttribute('aria-expanded', String(!row.shut));
      b.replaceChildren(el('span', { class: 'twist', 'aria-hidden': 'true' }, row.shut ? '▸' : '▾'), el('span', { class: 'name' }, `${wordOf[row.first.answer]}: ${row.first.code}`), el('span', { class: 'n' }, row.n.toLocaleString('en')));
      return;
    }
    const c = row.card;
    b.className = 'card ' + c.answer;
    b.dataset.id = c.id;
    const age = c.since ? whole((this.now() - Date.parse(c.since)) / 1000) : '';
    if (b.drawn === row.sig) { // only time has passed
      put(b.querySelector('.when'), age);
      return;
    }
    b.drawn = row.sig;
    b.replaceChildren(
      el('span', { class: 'l1' },
        el('span', { class: 'mark', 'aria-hidden': 'true' }, markOf(c)),
        el('span', { class: 'name data', title: c.lane || c.id }, nameOf(c)),
        c.place > 0 && el('span', { class: 'place' }, '#' + c.place),
        el('span', { class: 'when' }, age)),
      el('span', { class: 'l2' }, el('span', { class: 'word' }, word(c)), el('span', { class: 'msg data', title: detail(c) }, detail(c))));
  }

  tick() {
    for (const b of Object.values(this.boxes)) b.list.tick();
    for (const a of Object.values(this.arrows)) if (a.told) put(a.querySelector('.when'), this.ago(a.told));
  }

  ago(e) { return whole((this.now() - Date.parse(e.at)) / 1000) + ' ago'; }

  // cross shows what crossed last at each arrow.
  cross(all, fresh) {
    for (const [key, arrow] of Object.entries(this.arrows)) {
      const e = all?.[key]?.[0];
      const sig = e ? e.at + e.what + (e.attempt ?? '') : '';
      if (arrow.sig === sig) continue;
      const first = arrow.sig === undefined;
      arrow.sig = sig;
      arrow.told = e;
      arrow.classList.toggle('nothing', !e);
      if (!e) {
        arrow.replaceChildren(el('span', { class: 'a1' }, 'nothing crossed'));
        continue;
      }
      const who = e.lane || e.identity || e.engine || short(e.attempt);
      arrow.setAttribute('aria-label', shown(`Last at ${titleOf[key]}: ${e.sentence}`));
      arrow.replaceChildren(
        el('span', { class: 'a1' }, el('b', {}, e.what), ' ', el('span', { class: 'data' }, who)),
        el('span', { class: 'a2 data' }, proof(e)),
        el('span', { class: 'a3' }, el('span', { class: 'data' }, by(e)), el('span', { class: 'when' }, this.ago(e))));
      if (!first && fresh) {
        arrow.classList.remove('new');
        requestAnimationFrame(() => arrow.classList.add('new'));
      }
    }
  }
}

// proof is the identity that crossed, and what closed it.
function proof(e) {
  const all = [e.lane || e.what === 'accepted' ? e.identity : '', ...(e.evidence ?? [])].filter(Boolean);
  return all.length ? all.join(', ') : e.text || e.code || '';
}

function by(e) {
  if (e.by) return 'by ' + e.by;
  if (e.from && e.to) return `${e.from} → ${e.to}`;
  return e.to ? '→ ' + e.to : e.from ?? '';
}

function rowOf(c) { return { key: c.id, card: c, sig: c.sig }; }
