// A list of any length of which only what can be seen is in the page. One row at a
// time can be reached with Tab; the arrows, Home, End and the page keys move on.

import { el } from './text.js';

const spare = 6; // rows beyond the edges

export class List {
  // draw(row, button) fills a button; open(row) is a click or Enter.
  constructor({ label, height, draw, open }) {
    Object.assign(this, { height, draw, open });
    this.rows = [];
    this.index = new Map();
    this.nodes = new Map(); // key → li
    this.active = null;
    this.room = el('ul', { class: 'rows', 'aria-label': label });
    this.el = el('div', { class: 'scroll' }, this.room);
    this.el.addEventListener('scroll', () => this.later(), { passive: true });
    this.room.addEventListener('keydown', (e) => this.key(e));
    this.room.addEventListener('focusin', (e) => {
      const li = e.target.closest('li');
      if (li) this.activate(li.key, false);
    });
    this.room.addEventListener('click', (e) => {
      const li = e.target.closest('li');
      const at = li && this.index.get(li.key);
      if (at !== undefined && at !== null) this.open(this.rows[at], e.target.closest('button'));
    });
    new ResizeObserver(() => this.later()).observe(this.el);
  }

  // set takes the rows: each has a key, and a sig that changes with what it shows.
  set(rows) {
    this.rows = rows;
    this.index = new Map(rows.map((r, i) => [r.key, i]));
    if (!this.index.has(this.active)) {
      const held = this.nodes.get(this.active)?.contains(document.activeElement);
      this.active = rows.length ? rows[Math.min(this.at ?? 0, rows.length - 1)].key : null;
      this.refocus = held && this.active !== null;
    }
    this.at = this.index.get(this.active);
    this.paint();
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.paint();
    });
  }

  paint() {
    const n = this.rows.length;
    const h = this.height;
    this.room.style.height = n * h + 'px';
    const view = this.el.clientHeight || 10 * h;
    const from = Math.max(0, Math.floor(this.el.scrollTop / h) - spare);
    const to = Math.min(n, Math.ceil((this.el.scrollTop + view) / h) + spare);
    const want = new Set();
    for (let i = from; i < to; i++) want.add(i);
    if (this.at !== undefined) want.add(this.at); // it may have the focus
    const keep = new Set([...want].map((i) => this.rows[i].key));
    for (const [key, li] of this.nodes) {
      if (keep.has(key)) continue;
      li.remove();
      this.nodes.delete(key);
    }
    for (const i of want) this.place(i);
    if (this.refocus) {
      this.refocus = false;
      this.focus(this.active);
    }
  }

  place(i) {
    const row = this.rows[i];
    let li = this.nodes.get(row.key);
    if (!li) {
      li = el('li', {}, el('button', { type: 'button', tabindex: -1 }));
      li.key = row.key;
      this.nodes.set(row.key, li);
      this.room.append(li);
    }
    if (li.at !== i || li.of !== this.rows.length) {
      li.at = i;
      li.of = this.rows.length;
      li.style.top = i * this.height + 'px';
      li.setAttribute('aria-posinset', i + 1);
      li.setAttribute('aria-setsize', this.rows.length);
    }
    const button = li.firstChild;
    button.tabIndex = row.key === this.active ? 0 : -1;
    if (li.sig !== row.sig) {
      li.sig = row.sig;
      this.draw(row, button);
    }
  }

  // tick draws again what can be seen, for what changes with time.
  tick() {
    for (const [key, li] of this.nodes) {
      const at = this.index.get(key);
      if (at !== undefined) this.draw(this.rows[at], li.firstChild);
    }
  }

  key(e) {
    const page = Math.max(1, Math.floor(this.el.clientHeight / this.height) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[e.key];
    if (step === undefined || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    const i = Math.min(this.rows.length - 1, Math.max(0, (this.at ?? 0) + step));
    this.activate(this.rows[i].key, true);
  }

  activate(key, focus) {
    const before = this.nodes.get(this.active);
    if (before) before.firstChild.tabIndex = -1;
    this.active = key;
    this.at = this.index.get(key);
    if (focus) this.focus(key);
    else if (this.nodes.get(key)) this.nodes.get(key).firstChild.tabIndex = 0;
  }

  focus(key) {
    const i = this.index.get(key);
    if (i === undefined) return false;
    const top = i * this.height;
    if (top < this.el.scrollTop) this.el.scrollTop = top;
    const over = top + this.height - this.el.clientHeight;
    if (over > this.el.scrollTop) this.el.scrollTop = over;
    this.active = key;
    this.at = i;
    this.paint();
    this.nodes.get(key).firstChild.focus({ preventScroll: true });
    return true;
  }
}
