// SPDX-License-Identifier: Apache-2.0
// What is wrong with a page as it is laid out, as a list of sentences.
(() => {
  const found = [], root = document.documentElement;
  const named = (each) => `${each.tagName.toLowerCase()}${each.className?.baseVal ?? (each.className ? "." + each.className : "")} "${each.textContent.trim().slice(0, 60)}"`;
  const seen = (each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0;
  const scrolls = (each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
  const cuts = (each) => ["hidden", "clip"].includes(getComputedStyle(each).overflowX);
  const main = document.querySelector("main") ?? document.body;

  if (root.scrollWidth > root.clientWidth) {
    const inside = (each) => { for (let of = each.parentElement; of; of = of.parentElement) if (scrolls(of) || cuts(of)) return true; return false; };
    const wide = [...document.body.querySelectorAll("*")].filter(seen).filter((each) => each.getBoundingClientRect().right > root.clientWidth + 1 && !inside(each));
    found.push(`the page is ${root.scrollWidth - root.clientWidth} px wider than the window: ${wide.slice(-2).map(named).join("; ")}`);
  }
  for (const each of main.querySelectorAll("*")) {
    if (!seen(each) || each.matches("textarea, svg *, .marks, .numbers, .sr-only") || each.closest("textarea, .editor")) continue;
    if (cuts(each) && each.scrollWidth > each.clientWidth + 1 && each.textContent.trim()) found.push(`text is cut: ${named(each)}`);
    // What overflows a box that does not scroll lies on its neighbours.
    if (each.matches("td, th, li, p, figcaption, label, button, dt, dd") && !cuts(each) && !scrolls(each) && each.clientWidth && each.scrollWidth > each.clientWidth + 1) found.push(`text overflows its box: ${named(each)}`);
  }
  for (const name of main.querySelectorAll("td:first-child code, th:first-child code")) {
    if (!seen(name)) continue;
    const range = document.createRange();
    range.selectNodeContents(name);
    const lines = new Set([...range.getClientRects()].filter((of) => of.width > 0).map((of) => Math.round(of.top)));
    // A cell that is a line of its own may be longer than the screen is wide.
    if (getComputedStyle(name.closest("td, th")).display === "block") continue;
    if (lines.size > 1) found.push(`a name of a first column is broken: ${named(name)}`);
  }
  // Beyond the edge of the screen: figures and code may scroll, but a reader on a phone looks for no sentence and no picture there.
  const right = root.clientWidth + 1;
  for (const each of main.querySelectorAll("td, figcaption, .hljs-comment")) {
    if (!seen(each) || each.textContent.trim().split(/\s+/).length < 4) continue;
    const range = document.createRange();
    range.selectNodeContents(each);
    // A comment after code may begin there.
    const isBeyond = (of) => each.matches(".hljs-comment") ? of.width > each.closest("pre").clientWidth : of.right > right;
    if ([...range.getClientRects()].some(isBeyond)) found.push(`a sentence is beyond the edge: ${named(each)}`);
  }
  for (const each of main.querySelectorAll("img")) if (seen(each) && each.getBoundingClientRect().right > right) found.push(`a picture is beyond the edge: ${each.getAttribute("src")}`);
  for (const chart of document.querySelectorAll("svg")) {
    if (!seen(chart)) continue;
    const all = chart.getBoundingClientRect(), labels = [...chart.querySelectorAll("text")].filter(seen).filter((of) => of.textContent.trim());
    const boxes = labels.map((of) => of.getBoundingClientRect());
    for (const [place, own] of boxes.entries()) {
      if (own.left < all.left - 1 || own.right > all.right + 1 || own.top < all.top - 1 || own.bottom > all.bottom + 1) found.push(`a label is cut at the edge of its chart: ${named(labels[place])}`);
      for (let other = 0; other < place; other++) {
        const of = boxes[other], [x, y] = [Math.min(own.right, of.right) - Math.max(own.left, of.left), Math.min(own.bottom, of.bottom) - Math.max(own.top, of.top)];
        if (x > 1 && y > 4) found.push(`two labels lie on each other: ${named(labels[other])} and ${named(labels[place])}`);
      }
    }
  }
  return found;
})()
