// Text as it may be shown. Nothing here, or anywhere in the page, makes markup of
// data: an element gets text, and what would not show, or would reorder what
// stands beside it, is written out.

const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Mn}\p{Me}]/gu;

export function shown(text) {
  return String(text ?? '').replace(unseen, (c) => {
    const n = c.codePointAt(0);
    if (n === 10) return '\\n';
    if (n === 13) return '\\r';
    if (n === 9) return '\\t';
    return n < 256 ? '\\x' + n.toString(16).padStart(2, '0') : n < 65536 ? '\\u' + n.toString(16).padStart(4, '0') : '\\U' + n.toString(16).padStart(8, '0');
  });
}

const svgNS = 'http://www.w3.org/2000/svg';

// el makes an element. What is data goes in as text, and through shown.
export function el(tag, attrs, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return fill(document.createElementNS(svgNS, tag), attrs, children);
}

function fill(e, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? '' : shown(value));
  }
  for (const c of children.flat(Infinity)) {
    if (c === undefined || c === null || c === false) continue;
    e.append(c instanceof Node ? c : shown(c));
  }
  return e;
}

// put sets an element's text where it has another.
export function put(e, text) {
  const t = shown(text);
  if (e.textContent !== t) e.textContent = t;
}

export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return s.toFixed(1).replace(/\.0$/, '') + ' s';
  if (s < 100) return Math.round(s) + ' s';
  if (s < 6000) return Math.round(s / 60) + ' min';
  if (s < 172800) return Math.round(s / 3600) + ' h';
  return Math.round(s / 86400) + ' d';
}

// whole is a span that is read while it grows.
export function whole(seconds) {
  return span(Math.max(0, seconds) < 100 ? Math.round(Math.max(0, seconds)) : seconds);
}

export function clock(at) {
  const t = new Date(at);
  return isNaN(t) ? '' : t.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
}

export function moment(at) {
  const t = new Date(at);
  if (isNaN(t)) return '';
  const today = new Date().toDateString() === t.toDateString();
  return today ? clock(at) : t.getFullYear() + '-' + String(t.getMonth() + 1).padStart(2, '0') + '-' + String(t.getDate()).padStart(2, '0') + ' ' + clock(at).slice(0, 5);
}

export const short = (id) => (id ?? '').length > 12 ? '…' + id.slice(-8) : id ?? '';

export const plural = (n, word) => n === 1 ? '1 ' + word : n.toLocaleString('en') + ' ' + word + 's';
