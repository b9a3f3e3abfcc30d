"use strict";
// What every page uses.  Whatever comes from a run or a file is set as text, never as HTML.
const $ = (id) => document.getElementById(id);
const make = (name, text, className) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};
const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => String.fromCharCode(0x2400 + (c.charCodeAt(0) & 0x3f)))
  .replace(/[\u202a-\u202e\u2066-\u2069]/g, "\u2423");
// The pieces of a text `a`: those that `b` lacks are <ins>, what it has beside them <del>.
const differing = (a, b) => {
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i][j] = a[i] === b[j] ? 1 + longest[i + 1][j + 1] : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const box = make("pre");
  const add = (piece, name) => {
    const last = box.lastChild;
    if (last && last.nodeName === (name || "SPAN").toUpperCase()) last.textContent += visible(piece);
    else box.append(make(name || "span", visible(piece)));
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { add(a[i++]); j++; }
    else if (j < b.length && (i === a.length || longest[i][j + 1] > longest[i + 1][j])) add(b[j++], "del");
    else add(a[i++], "ins");
  }
  return box;
};
