// The link to handsel web: the session, calls, and the stream of what changes.

const where = 'handsel-key';

export class Refused extends Error {
  constructor(status, reason) {
    super(reason.message);
    this.status = status;
    this.code = reason.code;
    this.reason = reason;
  }
}

async function read(res) {
  let body;
  try {
    body = await res.json();
  } catch { // it broke off, or is none of ours: nothing is known, whatever its status
    throw new Refused(res.status, { code: 'failed', message: 'the answer cannot be read' });
  }
  if (!res.ok) throw new Refused(res.status, body.error ?? { code: 'failed', message: 'status ' + res.status });
  return body;
}

// enter takes the token of the link for a session. Without a token, one that this
// tab had goes on.
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token !== null) {
    history.replaceState(null, '', location.pathname);
    try {
      const got = await read(await fetch('/api/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }) }));
      sessionStorage.setItem(where, got.key);
      return true;
    } catch (e) {
      if (!(e instanceof Refused) || !sessionStorage.getItem(where)) throw e;
    }
  }
  return sessionStorage.getItem(where) !== null;
}

const headers = () => ({ 'X-Handsel-Key': sessionStorage.getItem(where) ?? '' });

export async function ask(path, x) {
  const q = x === undefined ? '' : '?x=' + encodeURIComponent(x);
  return read(await fetch('/api/' + path + q, { headers: headers() }));
}

export async function act(verb, body) {
  return read(await fetch('/api/' + verb, { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(body) }));
}

const silence = 7000; // a message comes every two seconds

// follow reads the stream and calls heard(kind, data); it begins again when it
// breaks, until the session is over. lost says that it broke, and closed that it
// is over.
export async function follow({ heard, lost, closed }) {
  let again = 300;
  for (;;) {
    const stop = new AbortController();
    let watch;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => stop.abort(), silence);
    };
    try {
      alive();
      const res = await fetch('/api/events', { headers: headers(), signal: stop.signal });
      if (res.status === 401) {
        clearTimeout(watch);
        closed();
        return;
      }
      if (!res.ok) await read(res);
      const bytes = res.body.getReader();
      const decoder = new TextDecoder();
      let rest = '';
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) break;
        alive();
        again = 300;
        rest += decoder.decode(value, { stream: true });
        for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
          const lines = rest.slice(0, end).split('\n');
          heard(lines[0].slice('event: '.length), JSON.parse(lines[1].slice('data: '.length)));
        }
      }
    } catch (e) {
      if (!(e instanceof TypeError) && !(e instanceof Refused) && e.name !== 'AbortError') throw e;
    } finally {
      clearTimeout(watch);
    }
    lost();
    await new Promise((r) => setTimeout(r, again));
    again = Math.min(again * 2, 3000);
  }
}
