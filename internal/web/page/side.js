// The panel of one thing: what each permission answers about it, its journal, and
// what a person may do.

import { el, put, moment, short, span } from './text.js';
import { ask, act, Refused } from './link.js';
import { word, titleOf } from './map.js';

const five = ['resource', 'quota', 'ownership', 'acceptance', 'release'];
const answers = { go: '✓ go', wait: '◷ wait', deny: '✕ no', none: '– not asked' };

export class Side {
  constructor(root, dialog, { now, said, card, holds }) {
    Object.assign(this, { root, dialog, now, said, card, holds });
    root.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') {
        e.stopPropagation();
        this.close();
      }
    });
    dialog.addEventListener('close', () => dialog.replaceChildren());
  }

  get isOpen() { return !this.root.hidden; }

  // show opens the panel about what X names; back takes the focus when it closes.
  async show(x, title, back, card) {
    Object.assign(this, { x, id: card?.id, lane: card?.lane, stale: false });
    if (back) this.back = back;
    this.head = el('h2', { id: 'side-h', tabindex: -1, class: 'data' }, title);
    this.facts = el('div', { class: 'facts' });
    this.acts = el('div', { class: 'acts' });
    this.why = el('div', { class: 'why', 'aria-busy': 'true' }, el('p', { class: 'quiet' }, 'asking …'));
    this.story = el('div', { class: 'story' });
    this.root.replaceChildren(
      el('header', {}, this.head, el('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.close() }, '×')),
      el('div', { class: 'body' }, this.facts, this.acts, el('h3', {}, 'Why'), this.why, el('h3', {}, 'Journal'), this.story));
    this.root.hidden = false;
    document.body.classList.add('with-side');
    this.head.focus({ preventScroll: true });
    this.told();
    await this.refresh(true);
  }

  // crossings opens the panel about one arrow.
  crossings(key, list, back) {
    Object.assign(this, { x: undefined, id: undefined, arrow: key });
    this.back = back;
    this.head = el('h2', { id: 'side-h', tabindex: -1 }, `Last at ${titleOf[key]}`);
    this.root.replaceChildren(
      el('header', {}, this.head, el('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.close() }, '×')),
      el('div', { class: 'body' }, el('div', { class: 'story' }, story([...(list ?? [])].reverse()))));
    this.root.hidden = false;
    document.body.classList.add('with-side');
    this.head.focus({ preventScroll: true });
  }

  close() {
    this.root.hidden = true;
    document.body.classList.remove('with-side');
    this.x = this.id = undefined;
    const back = this.back;
    this.back = undefined;
    back?.();
  }

  // changed says that the card of the panel is another now.
  changed(id) {
    if (id !== this.id || !this.isOpen) return;
    this.told();
    this.stale = true;
  }

  // tick asks again where something changed, at most once a second.
  tick() {
    if (this.stale && this.isOpen && !this.asking) {
      this.stale = false;
      this.refresh(false);
    }
  }

  // told shows what the board says of it, and what may be done.
  told() {
    const c = this.id && this.card(this.id);
    if (c) this.last = c;
    const rows = c ? facts(c, this.now()) : [];
    this.facts.replaceChildren(...(c ? [el('p', { class: 'state ' + c.answer }, `${titleOf[c.box]}: ${word(c)}`, c.message && el('span', { class: 'data' }, ' — ' + c.message)), el('dl', {}, rows.map(([k, v]) => [el('dt', {}, k), el('dd', { class: 'data' }, v)]))] : []));
    const sig = c ? [c.box, c.answer, c.state, c.review, c.verb, this.held(c)].join() : this.x;
    if (this.actSig === sig && this.acts.childElementCount) return;
    this.actSig = sig;
    const had = this.acts.contains(document.activeElement);
    this.acts.replaceChildren(...this.buttons(c));
    if (had) this.head.focus({ preventScroll: true });
  }

  held(c) { return c.lane && this.holds().some((h) => h.scope === 'lane:' + c.lane); }

  buttons(c) {
    const all = [];
    const add = (label, kind, what) => all.push(el('button', { type: 'button', class: kind, onclick: (e) => this.confirm(what, e.currentTarget) }, label));
    const kind = /^(pool|engine|account):/.exec(this.x ?? '')?.[1];
    if (kind) {
      const held = this.holds().some((h) => h.scope === this.x);
      if (held) add('Resume…', '', { verb: 'resume', x: this.x, of: this.x, label: 'Resume' });
      else add('Hold…', '', { verb: 'hold', x: this.x, of: this.x, label: 'Hold' });
      return all;
    }
    if (!c) return all;
    const of = c.lane || short(c.id);
    const x = 'run:' + c.id;
    if (c.review === 'pending' || c.review === 'rejected') add('Accept…', 'good', { verb: 'accept', x, of, label: 'Accept' });
    if (c.review === 'pending' || c.review === 'accepted') add('Reject…', 'bad', { verb: 'reject', x, of, label: 'Reject' });
    const ended = ['ended', 'acceptance', 'release'].includes(c.box);
    if (!ended) add('Cancel…', 'bad', { verb: 'cancel', x, of, label: 'End it' });
    if (!ended && c.state === 'queued' && c.verb === 'enqueue') add('Priority…', '', { verb: 'prio', x, of, label: 'Set', priority: c.priority ?? 0 });
    if (ended && c.answer === 'deny' && c.verb === 'enqueue') add('Retry…', '', { verb: 'retry', x, of, label: 'Try again' });
    if (c.lane) {
      if (this.held(c)) add('Resume lane…', '', { verb: 'resume', x: 'lane:' + c.lane, of, label: 'Resume' });
      else add('Hold lane…', '', { verb: 'hold', x: 'lane:' + c.lane, of, label: 'Hold' });
    }
    const out = [el('div', { class: 'buttons' }, all)];
    if (c.review === 'accepted') out.push(release(c, this.said));
    return out;
  }

  async refresh(first) {
    if (!this.x) return;
    const x = this.x;
    this.asking = true;
    try {
      const [why, journal] = await Promise.all([ask('why', x).catch((e) => e), /^(pool):/.test(x) ? null : ask('journal', this.lane ? 'lane:' + this.lane : x).catch((e) => e)]);
      if (this.x !== x) return;
      this.why.removeAttribute('aria-busy');
      const had = this.root.contains(document.activeElement) && document.activeElement.dataset.x;
      this.why.replaceChildren(...(why instanceof Error ? [trouble(why)] : permissions(why, (to) => this.show('run:' + to, short(to), undefined, this.card(to)))));
      const events = journal?.events ?? [];
      this.story.replaceChildren(...[
        journal instanceof Error && trouble(journal),
        journal?.chosen > events.length && el('p', { class: 'quiet' }, `the last ${events.length} of ${journal.chosen}; handsel journal lists all`),
        events.length ? story(events) : !(journal instanceof Error) && el('p', { class: 'quiet' }, journal === null ? 'a pool has no journal of its own' : 'nothing passed yet'),
        ...(journal?.problems ?? []).map((p) => el('p', { class: 'problem data' }, p)),
      ].filter(Boolean));
      if (had) [...this.why.querySelectorAll('[data-x]')].find((b) => b.dataset.x === had)?.focus();
      if (first) this.root.querySelector('.body').scrollTop = 0;
    } finally {
      this.asking = false;
    }
  }

  // confirm asks once more, and says what became of it.
  confirm(what, opener) {
    const d = this.dialog;
    const field = (name, label, attrs, tag = 'input') => {
      const input = el(tag, { id: 'f-' + name, name, ...attrs });
      return [el('label', { for: 'f-' + name }, label), input];
    };
    const fields = {
      accept: () => [...field('evidence', 'Evidence: one reference a line (a link, a ticket, a run of tests)', { rows: 3 }, 'textarea'), ...field('note', 'Note', { type: 'text', maxlength: 1000 })],
      reject: () => [...field('note', 'What is missing', { type: 'text', maxlength: 1000 })],
      hold: () => [...field('reason', 'Reason, for everybody who is held back', { type: 'text', maxlength: 500 }), ...field('for_s', 'For so many minutes; empty: until it is resumed', { type: 'number', min: 1, max: 500000, step: 1 })],
      drain: () => [...field('reason', 'Reason, for everybody who is held back', { type: 'text', maxlength: 500 })],
      prio: () => [...field('priority', 'Priority, from −1000 to 1000: one step is worth a minute of waiting', { type: 'number', min: -1000, max: 1000, step: 1, value: String(what.priority), required: true })],
    }[what.verb]?.() ?? [];
    const text = {
      accept: 'The verdict names what is in its working directory at this moment. The checks of the configuration run first, where there are any.',
      reject: 'It does not go out, unless it is accepted later.',
      cancel: 'The agent and its whole process tree are ended, or it is taken out of the queue.',
      hold: 'New starts wait; what runs goes on.',
      drain: 'Nothing new starts until resume; what runs goes on.',
      resume: 'What is held back may start again.',
      retry: 'A new attempt of the same lane is queued.',
      prio: '',
    }[what.verb];
    const titles = { accept: 'Accept', reject: 'Reject', cancel: 'Cancel', hold: 'Hold', drain: 'Drain', resume: 'Resume', retry: 'Retry', prio: 'Priority of' };
    const answer = el('p', { class: 'answer', role: 'alert' });
    const go = el('button', { type: 'submit', class: 'primary ' + (['reject', 'cancel'].includes(what.verb) ? 'bad' : '') }, what.label);
    const form = el('form', { novalidate: false }, el('h2', { id: 'confirm-h' }, titles[what.verb] + ' ', el('span', { class: 'data' }, what.of), what.verb === 'prio' ? '' : '?'), text && el('p', {}, text), fields, answer,
      el('div', { class: 'buttons' }, el('button', { type: 'button', onclick: () => d.close() }, 'Back'), go));
    form.addEventListener('submit', async (e) => {
      e.preventDefault();
      const body = what.x === undefined ? {} : { x: what.x };
      for (const input of form.querySelectorAll('input,textarea')) {
        const v = input.value.trim();
        if (input.name === 'evidence') body.evidence = v.split('\n').map((l) => l.trim()).filter(Boolean);
        else if (input.name === 'for_s') { if (v) body.for_s = Math.round(Number(v) * 60); } else if (input.name === 'priority') body.priority = Number(v);
        else if (v) body[input.name] = v;
      }
      go.disabled = true;
      put(answer, 'at it …');
      answer.className = 'answer';
      try {
        const done = await act(what.verb, body);
        if (form.isConnected) d.close(); // it may be closed, and ask something else by now
        this.said([done.message, ...done.warnings].join('. '));
        this.stale = true;
      } catch (err) {
        if (!(err instanceof Refused) && !(err instanceof TypeError)) throw err;
        const text = err instanceof Refused ? `✕ Refused (${err.code}): ${err.message}` : '✕ handsel web does not answer; nothing is known of what became of it.';
        answer.className = 'answer deny';
        put(answer, text);
        if (!form.isConnected) this.said(`${what.label} ${what.of}: ${text}`);
      } finally {
        go.disabled = false;
      }
    });
    d.replaceChildren(form);
    d.returnFocus = opener;
    d.showModal();
    form.querySelector('input,textarea,button')?.focus();
    d.addEventListener('close', () => (opener.isConnected ? opener : this.head)?.focus(), { once: true });
  }
}

function facts(c, now) {
  const of = [['run', c.id], ['lane', c.lane], ['state', c.state], ['since', c.since && `${moment(c.since)}, ${span((now - Date.parse(c.since)) / 1000)}`], ['until', c.until && moment(c.until)],
    ['engine', [c.engine, c.account].filter(Boolean).join('/')], ['class', c.workload], ['command', c.argv0], ['pools', (c.pools ?? []).join(', ')], ['asked by', c.author],
    ['place', c.place && '#' + c.place], ['priority', c.priority], ['fence', c.fence], ['supervisor', c.holder_pid && 'pid ' + c.holder_pid], ['agent', c.child_pid && 'pid ' + c.child_pid],
    ['last heard', c.last_event_at && moment(c.last_event_at)], ['review', c.review]];
  return of.filter(([, v]) => v);
}

// permissions lists the five, and what is asked besides, with their answers.
function permissions(why, open) {
  const asked = new Set(why.permissions.map((p) => p.class));
  const rows = why.permissions.filter((p) => p.answer !== 'go' || !['hold', 'time', 'dependency'].includes(p.class)).map((p) => permission(p, open));
  const not = five.filter((c) => !asked.has(c));
  const besides = why.permissions.filter((p) => p.answer === 'go' && ['hold', 'time', 'dependency'].includes(p.class));
  if (besides.length) rows.push(el('li', { class: 'perm go small' }, el('span', { class: 'class' }, 'besides'), el('span', { class: 'ans' }, answers.go), el('p', { class: 'data' }, besides.map((p) => p.message).join('; '))));
  if (not.length) rows.push(el('li', { class: 'perm none small' }, el('span', { class: 'class' }, not.join(', ')), el('span', { class: 'ans' }, answers.none)));
  return [el('ul', { class: 'perms' }, rows), ...(why.problems ?? []).map((p) => el('p', { class: 'problem data' }, p)),
    why.source === 'disk' && el('p', { class: 'quiet' }, 'read from the disk: no dispatcher answers')].filter(Boolean);
}

function permission(p, open) {
  const holders = (p.holders ?? []).slice(0, 24);
  return el('li', { class: 'perm ' + p.answer },
    el('span', { class: 'class' }, p.class), el('span', { class: 'ans' }, answers[p.answer] ?? p.answer), el('code', { class: 'data' }, p.code),
    el('p', { class: 'data' }, p.message),
    (p.since || p.until) && el('p', { class: 'small' }, p.since && `since ${moment(p.since)}`, p.since && p.until && ' · ', p.until && `until ${moment(p.until)}`),
    holders.length > 0 && el('p', { class: 'held small' }, 'held by ', holders.map((h) => {
      const text = [h.pool && `${h.pool}/${h.slot}`, h.pid && 'pid ' + h.pid, h.child_pid && `agent ${h.child_pid}`].filter(Boolean).join(' ');
      return h.run ? el('button', { type: 'button', class: 'ref data', 'data-x': h.run + text, onclick: () => open(h.run) }, `${text} · ${short(h.run)}`) : el('span', { class: 'ref data' }, text);
    }), p.holders.length > holders.length && ` and ${p.holders.length - holders.length} more`),
    p.ends && el('p', { class: 'ends small' }, 'ends: ', el('span', { class: 'data' }, p.ends)));
}

// story tells the journal in sentences, the newest last.
function story(events) {
  return el('ol', { class: 'events' }, events.map((e) => el('li', { class: 'event ' + e.permission },
    el('time', { datetime: e.at }, moment(e.at)), el('span', { class: 'tag' }, e.permission),
    el('p', { class: 'data' }, e.sentence),
    (e.evidence?.length || e.identity) && el('p', { class: 'small data' }, [e.identity && 'identity: ' + e.identity, e.evidence?.length && 'on: ' + e.evidence.join(', '), e.by && 'by ' + e.by].filter(Boolean).join(' · ')))));
}

function trouble(e) { return el('p', { class: 'problem data' }, e instanceof Refused ? `${e.message} (${e.code})` : 'handsel web does not answer'); }

// release shows the command line: what runs it, where, and with what environment
// is a terminal's.
function release(c, said) {
  const line = `handsel release ${c.id} -- COMMAND`;
  return el('div', { class: 'release' },
    el('p', {}, 'A release runs a command of yours, in a directory and with credentials that a page does not have. Type it in a terminal:'),
    el('code', { class: 'line' }, line),
    el('button', { type: 'button', onclick: async () => { await navigator.clipboard.writeText(line); said('copied'); } }, 'Copy'));
}
