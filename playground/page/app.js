// SPDX-License-Identifier: Apache-2.0
// The page around the bindings. What is decided, found and explained is all the core's; here are only the traffic and the drawing.
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const { check, replay, Lab } = wasm_bindgen;
const grouped = (text) => String(text).replace(/\d{4,}/g, (digits) => Number(digits).toLocaleString("en"));
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// The traffic that each recipe is for; what is not here is as in `plain`.
const plain = { clients: 2, rate: 5, burst: 10, seconds: 20, retrying: 1, retry: "after", method: "GET", path: "/", takes: 50, size: 0, headers: "", body: "" };
const chat = { method: "POST", path: "/v1/chat/completions", headers: "authorization: Bearer key-{client}\ncontent-type: application/json", body: '{"model": "gpt-5", "messages": [], "max_tokens": 2000}', rate: 10, burst: 0, seconds: 60 };
const recipes = {
  "agents": { ...chat, headers: chat.headers + "\nx-session-id: session-{client}", rate: 5 },
  "anthropic": { ...chat, path: "/v1/messages", headers: "x-api-key: key-{client}\ncontent-type: application/json", body: '{"model": "claude-sonnet-4", "max_tokens": 4096, "messages": []}', rate: 2 },
  "ban": { rate: 2, seconds: 60, retry: "soon" },
  "cheap-and-expensive": { path: "/search /read /read /upload", size: 20000, rate: 2, burst: 4 },
  "coding-agents": { ...chat, path: "/v1/messages /v1/responses /v1/messages/count_tokens", rate: 20 },
  "credential-stuffing": { method: "POST", path: "/login", headers: "content-type: application/x-www-form-urlencoded", body: "user=user-{request}&password=leaked", rate: 1, burst: 0, seconds: 60 },
  "gemini": { ...chat, path: "/v1beta/models/gemini-2.5-pro:generateContent", headers: "x-goog-api-key: key-{client}\ncontent-type: application/json", body: '{"contents": []}', rate: 2 },
  "graphql": { method: "POST", path: "/graphql", headers: "authorization: Bearer key-{client}\ncontent-type: application/json", body: '{"query": "{ orders { id } }"}', rate: 1, burst: 5, seconds: 60 },
  "grpc": { method: "POST", path: "/shop.Orders/List /shop.Orders/Get", headers: "content-type: application/grpc\nx-user: user-{client}", rate: 0.5, burst: 12, seconds: 60 },
  "lists": { path: "/ /healthz", rate: 2 },
  "llm-budget": chat,
  "llm-money": { ...chat, headers: "x-customer: customer-{client}\nx-plan: free\ncontent-type: application/json", rate: 1 },
  "llm-providers": { ...chat, headers: "x-team: team-{client}\ncontent-type: application/json", body: '{"model": "claude-sonnet-4", "max_tokens": 64000, "messages": []}' },
  "login-form": { method: "POST", path: "/login", headers: "content-type: application/x-www-form-urlencoded", body: "user=ann&password=guess", rate: 0.2, burst: 8, seconds: 60 },
  "login-protection": { method: "POST", path: "/login", headers: "content-type: application/json", body: '{"user": "ann", "password": "guess"}', rate: 0.2, burst: 8, seconds: 60 },
  "many-regions": { headers: "authorization: Bearer key-{client}", rate: 100, burst: 60, seconds: 5 },
  "mcp": { method: "POST", path: "/mcp", headers: "mcp-session-id: session-{client}\ncontent-type: application/json", body: '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "web_search"}}', rate: 0.5, burst: 4, seconds: 60 },
  "nginx": { rate: 20, burst: 25, takes: 200, seconds: 10 },
  "per-key-and-address": { headers: "authorization: Bearer key-{client}", rate: 25, burst: 50, seconds: 10 },
  "shadow-first": { path: "/orders /search", rate: 3, burst: 0, seconds: 60 },
  "tenants": { path: "/acme/reports", rate: 2, burst: 0, takes: 1500 },
  "tiers": { headers: "x-customer: customer-{client}\nx-plan: free", rate: 0.5, burst: 5, seconds: 60 },
  "uploads": { method: "POST", path: "/upload/a", size: 50000000, rate: 2 },
  "webhooks": { method: "POST", path: "/hook", headers: "x-customer: customer-{client}", rate: 15, burst: 0, seconds: 10 },
  "websockets": { path: "/socket", headers: "upgrade: websocket\nconnection: upgrade", rate: 2, burst: 15, takes: 15000 },
};
const presets = [...document.querySelectorAll("script.preset")].map((of) => [of.dataset.name, of.textContent.trim() + "\n"]).sort(([one], [other]) => (one < other ? -1 : 1));
// Times of a trace are those of a calendar: limits may be aligned to it.
const START = Date.UTC(2026, 0, 1);
const MOST = 5000;

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// ---- Editors
const editors = [];
function addEditor(text) {
  const n = editors.length, name = n ? "compared.yaml" : "weir.yaml";
  const box = document.createElement("div");
  box.innerHTML = `<h3><label for="text-${n}">${name}</label></h3><div class="editor"><pre class="numbers" aria-hidden="true"></pre>
    <div class="stack"><pre class="marks" aria-hidden="true"></pre>
    <textarea id="text-${n}" spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off" aria-describedby="found-${n}"></textarea></div></div>
    <ul class="findings" id="found-${n}" aria-label="What weir check finds in ${name}"></ul>`;
  $("editors").append(box);
  const area = box.querySelector("textarea"), marks = box.querySelector(".marks"), numbers = box.querySelector(".numbers");
  const editor = { name, box, area, marks, numbers, list: box.querySelector("ul") };
  area.value = text;
  area.addEventListener("input", () => { paint(editor, []); own(); later(); });
  area.addEventListener("scroll", () => { marks.scrollTop = numbers.scrollTop = area.scrollTop; marks.scrollLeft = area.scrollLeft; });
  editors.push(editor);
}
// Where a finding is in the text: its line and column, up to the end of the word.
function range(lines, { line, column }) {
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const letters = [...(lines[line - 1] ?? "")], start = before + letters.slice(0, column - 1).join("").length;
  const word = letters.slice(column - 1).join("").match(/^("[^"]*"|'[^']*'|[^\s,\]}:]+)/);
  return [start, start + Math.max(1, word ? word[0].length : 1)];
}
// What has a colour in YAML and in JSON.
const TOKENS = /(?<comment>(?<=^|\s)#.*)|(?<key>(?:"[^"\n]*"|[\w$.\/-]+)(?=\s*:(?:\s|$)))|(?<string>"(?:[^"\\\n]|\\.)*"|'[^'\n]*')|(?<number>(?<![\w.\/-])(?:\d[\w.]*(?:\/\w+)?|true|false|null)(?![\w.\/-]))/gm;
// Draws the text: its colours, and under each range its mark. The field above it shows only the caret.
function paint(editor, marked) {
  const text = editor.area.value, cuts = new Map();
  const cut = (from, to, set) => { for (const at of [from, to]) cuts.set(at, cuts.get(at) ?? {}); Object.assign(cuts.get(from), set); };
  for (const token of text.matchAll(TOKENS)) {
    const [kind] = Object.entries(token.groups).find(([, found]) => found !== undefined), to = token.index + token[0].length;
    cut(token.index, to, { token: kind, tokenEnd: to });
  }
  for (const { from, to, severity } of marked) cut(from, to, { mark: severity, markEnd: to });
  let html = "", at = 0, token, tokenEnd = 0, mark, markEnd = 0;
  const piece = (to) => {
    let part = escaped(text.slice(at, to));
    if (part && at < tokenEnd) part = `<span class="${token}">${part}</span>`;
    html += at < markEnd ? `<u class="${mark}">${part || " "}</u>` : part;
    at = to;
  };
  for (const [place, set] of [...cuts].sort(([one], [other]) => one - other)) {
    piece(place);
    if (set.token) ({ token, tokenEnd } = set);
    if (set.mark) ({ mark, markEnd } = set);
  }
  piece(text.length);
  editor.marks.innerHTML = `${html}\n\n`;
  editor.numbers.textContent = text.split("\n").map((_, n) => n + 1).join("\n") + "\n\n";
}
function examine(editor) {
  const lines = editor.area.value.split("\n");
  const { findings } = JSON.parse(check(editor.name, editor.area.value));
  const ranges = findings.map((of) => range(lines, of));
  editor.isWrong = findings.some(({ severity }) => severity === "error");
  // Of two findings about one place, the first has the mark.
  let end = 0;
  paint(editor, findings.flatMap(({ severity }, place) => {
    const [from, to] = ranges[place];
    if (from < end) return [];
    end = to;
    return [{ from, to, severity }];
  }));
  editor.list.replaceChildren(...findings.map((of, place) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.className = of.severity;
    button.textContent = sentence(`${of.severity} at ${of.line}:${of.column}: ${of.message}${of.advice ? `. ${of.advice}` : ""}`);
    button.addEventListener("click", () => { editor.area.focus(); editor.area.setSelectionRange(...ranges[place]); });
    item.append(button);
    return item;
  }));
}

// ---- Traffic
const form = $("traffic");
const handles = () => Object.fromEntries(Object.entries(plain).map(([name, value]) => {
  const { value: given, min, max } = form.elements[name];
  // A field is empty while its number is typed, and a link may have any.
  return [name, typeof value === "number" ? Math.min(Number(max), Math.max(Number(min), Number(given) || 0)) : given];
}));
function setHandles(values) {
  for (const [name, value] of Object.entries({ ...plain, ...values })) form.elements[name].value = value;
}
// A request of a client, as a line of a trace.
function line(of, { client, turn, at }) {
  const paths = of.path.trim().split(/\s+/), headers = {};
  const filled = (text) => text.replaceAll("{client}", client).replaceAll("{request}", turn + 1);
  for (const each of of.headers.split("\n").filter((each) => each.includes(":"))) {
    const [name, ...rest] = each.split(":");
    headers[name.trim().toLowerCase()] = filled(rest.join(":").trim());
  }
  const request = { t_ms: START + at, method: of.method || "GET", path: paths[turn % paths.length] || "/", host: "example.com", client: `203.0.113.${client}`, duration_ms: of.takes, headers };
  if (of.body) request.body = filled(of.body);
  const size = of.size || (of.body ? new TextEncoder().encode(request.body).length : 0);
  if (size) headers["content-length"] ??= String(size);
  return JSON.stringify(request);
}
// The requests that come whatever is answered, in the order of their times.
function planned(of) {
  const all = [], clients = Math.min(Math.max(1, Math.floor(of.clients)), 50);
  for (let client = 1; client <= clients; client++) {
    let turn = 0;
    for (let n = 0; n < Math.min(of.burst, MOST); n++) all.push({ at: 0, client, turn: turn++, attempt: 0 });
    const between = 1000 / of.rate;
    for (let at = between * client / clients; at < of.seconds * 1000 && turn <= MOST; at += between) all.push({ at: Math.round(at), client, turn: turn++, attempt: 0 });
  }
  // Others are never taken: one more says that there are more.
  return all.sort((one, other) => one.at - other.at || one.client - other.client).slice(0, MOST + 1);
}
// Runs the traffic under a configuration. `watched` is the client whose limits are looked at over time.
function simulate(editor, of, watched) {
  const lab = new Lab(editor.name, editor.area.value);
  const waiting = planned(of), events = [], left = [], end = of.seconds * 1000, STEPS = 120;
  const turns = Math.min(of.path.trim().split(/\s+/).length, 8);
  const probe = (at) => {
    const limits = new Map();
    for (let turn = 0; turn < turns; turn++) {
      const { policies } = JSON.parse(lab.explain(line(of, { client: watched, turn, at }), true));
      for (const { policy, asked } of policies) for (const limit of asked?.limits ?? []) {
        // Of a limit of each path, that of the first path.
        if (!limits.has(`${policy} ${limit.name}`)) limits.set(`${policy} ${limit.name}`, { ...limit, policy });
      }
    }
    left.push({ at, limits: [...limits.values()] });
  };
  let step = 0;
  while (waiting.length && events.length < MOST) {
    const event = waiting.shift();
    for (; step <= STEPS && end * step / STEPS <= event.at; step++) probe(Math.round(end * step / STEPS));
    event.line = line(of, event);
    event.decision = JSON.parse(lab.decide(event.line));
    events.push(event);
    if (!event.decision.allowed && event.client <= of.retrying && event.attempt < 5) {
      const wait = of.retry === "soon" ? 100 : Math.max(1, event.decision.retry_after_ms ?? 1000);
      const again = { ...event, at: event.at + wait, attempt: event.attempt + 1 };
      if (again.at < end) {
        const place = waiting.findIndex((other) => other.at > again.at);
        waiting.splice(place < 0 ? waiting.length : place, 0, again);
      }
    }
  }
  for (; step <= STEPS && !waiting.length; step++) probe(Math.max(Math.round(end * step / STEPS), events.at(-1)?.at ?? 0));
  const result = { events, left, end, isCut: waiting.length > 0, report: lab.report() };
  lab.free();
  return result;
}
// What the client of an event gets: the state is that before it.
function explained(editor, events, place) {
  const lab = new Lab(editor.name, editor.area.value);
  events.slice(0, place).forEach((event) => lab.decide(event.line));
  const { answer } = JSON.parse(lab.explain(events[place].line, true)), why = lab.explain(events[place].line, false);
  lab.free();
  const headers = (answer.headers ?? []).map(({ name, value }) => `${name}: ${value}`);
  const end = headers.length ? ", with" : ", to which weir adds nothing";
  if (answer.admitted) return { why, text: [`${answer.delay_ms ? `Held for ${answer.delay_ms} ms, then the` : "The"} upstream's response${end}`, ...headers].join("\n") };
  const first = answer.status ? `HTTP status ${answer.status}` : `gRPC status ${answer.grpc_status}: ${answer.grpc_message}`;
  if (answer.grpc_retry_pushback_ms != null) headers.push(`grpc-retry-pushback-ms: ${answer.grpc_retry_pushback_ms}`);
  return { why, text: [first, ...headers, ...(answer.body ? ["", answer.body] : [])].join("\n") };
}
const kindOf = ({ decision }) => decision.outcome === "shadow" ? "shadow" : !decision.allowed ? "denied" : decision.delay_ms > 0 ? "held" : "admitted";
const KINDS = ["admitted", "held", "denied", "shadow"];
const count = (events, kind) => events.filter((event) => kindOf(event) === kind).length;

// ---- Charts
// The columns over time.
const BINS = 40;
const seconds = (ms) => `${Number((ms / 1000).toFixed(3)).toLocaleString("en", { maximumFractionDigits: 3 })} s`;
const round = (most) => { const unit = 10 ** Math.floor(Math.log10(Math.max(most, 1))); return [1, 2, 5, 10].map((by) => by * unit).find((end) => end >= most); };
// The frame of a chart: axes with units, and a scale for each.
function frame(width, height, end, most, unit, label, draw) {
  const [x0, y0, x1, y1] = [56, height - 34, width - 12, 28];
  const x = (ms) => x0 + (x1 - x0) * ms / end, y = (value) => y0 - (y0 - y1) * value / most;
  let svg = `<svg role="img" aria-label="${escaped(label)}" width="${width}" height="${height}">`;
  for (const part of [0, 0.5, 1]) svg += `<line class="axis" x1="${x0}" x2="${x1}" y1="${y(most * part)}" y2="${y(most * part)}"/><text x="${x0 - 6}" y="${y(most * part) + 4}" text-anchor="end">${Number((most * part).toPrecision(3)).toLocaleString("en")}</text>`;
  for (const part of [0, 0.25, 0.5, 0.75, 1]) svg += `<text x="${x(end * part)}" y="${y0 + 18}" text-anchor="${part === 1 ? "end" : "middle"}">${seconds(end * part)}</text>`;
  return `${svg}<text x="4" y="12">${escaped(unit)}</text>${draw(x, y)}</svg>`;
}
function overTime(width, { events, end }, most, chosen) {
  const bins = binned(events, end), length = end / bins.length;
  const label = `Requests over time: ${KINDS.map((kind) => `${count(events, kind)} ${kind}`).join(", ")}`;
  return frame(width, 200, end, most, `requests in ${seconds(length)}`, label, (x, y) => {
    let svg = "";
    bins.forEach((bin, n) => KINDS.reduce((from, kind, k) => {
      if (bin[k]) svg += `<rect class="${kind}" x="${x(n * length)}" width="${Math.max(1, x(length) - x(0) - 1)}" y="${y(from + bin[k])}" height="${y(from) - y(from + bin[k])}"/>`;
      return from + bin[k];
    }, 0));
    return svg + (chosen == null ? "" : `<line class="now" x1="${x(chosen)}" x2="${x(chosen)}" y1="${y(most)}" y2="${y(0)}"/>`);
  });
}
function binned(events, end) {
  const bins = Array.from({ length: BINS }, () => KINDS.map(() => 0));
  for (const event of events) bins[Math.min(BINS - 1, Math.floor(event.at / end * BINS))][KINDS.indexOf(kindOf(event))]++;
  return bins;
}
const tallest = ({ events, end }) => Math.max(...binned(events, end).map((bin) => bin.reduce((sum, each) => sum + each)));
const limitsOf = ({ left }) => [...new Map(left.flatMap(({ limits }) => limits).map((limit) => [`${limit.policy} ${limit.name}`, limit])).entries()];
function leftOver(width, { left, end }, name, most, chosen) {
  const points = left.flatMap(({ at, limits }) => limits.filter((of) => `${of.policy} ${of.name}` === name).map((of) => [at, of.remaining]));
  const values = points.map(([, value]) => value);
  const label = `Left of ${name} over time: from ${values[0]}, at least ${Math.min(...values)}, at the end ${values.at(-1)}`;
  return frame(width, 140, end, most, "units left", label, (x, y) =>
    `<path class="left" d="${points.map(([at, value], n) => `${n ? "L" : "M"}${x(Math.min(at, end)).toFixed(1)} ${y(Math.max(0, value)).toFixed(1)}`).join("")}"/>` +
    (chosen == null ? "" : `<line class="now" x1="${x(chosen)}" x2="${x(chosen)}" y1="${y(most)}" y2="${y(0)}"/>`));
}

// ---- What happens
let runs = [], log = null, chosen = null;
function table({ events }, of) {
  const clients = [...new Set(events.map(({ client }) => client))].sort((a, b) => a - b);
  // A column in which nothing happened would be noise.
  const columns = [...KINDS.map((kind) => [kind === "shadow" ? "in shadow" : kind, (those) => count(those, kind)]), ["retries", (those) => those.filter(({ attempt }) => attempt).length]]
    .filter(([name, sum]) => name === "admitted" || name === "denied" || sum(events) > 0);
  const longest = (those) => Math.max(0, ...those.map(({ decision }) => decision.delay_ms));
  if (longest(events) > 0) columns.push(["longest wait", (those) => seconds(longest(those))]);
  const row = (name, those) => `<tr><th scope="row">${name}</th>${columns.map(([, cell]) => `<td>${grouped(cell(those))}</td>`).join("")}</tr>`;
  const rows = clients.slice(0, 12).map((client) => row(`client ${client}${client <= of.retrying ? ", retries" : ""}`, events.filter((event) => event.client === client)));
  return `<div class="scroll"><table><thead><tr><th scope="col">who</th>${columns.map(([name]) => `<th scope="col">${name}</th>`).join("")}</tr></thead><tbody>${rows.join("")}${row(clients.length > 12 ? `all ${clients.length}` : "all", events)}</tbody></table></div>`;
}
function draw() {
  const whole = runs.filter(({ result }) => result), of = handles();
  const most = round(Math.max(1, ...whole.map(({ result }) => tallest(result))));
  $("results").className = `sides ${runs.length > 1 ? "two" : ""}`;
  const width = Math.max(280, Math.floor(parseFloat(getComputedStyle($("results")).gridTemplateColumns) || 0));
  const open = [...$("results").querySelectorAll("details")].map((each) => each.open);
  $("results").innerHTML = runs.map(({ editor, result, wrong }) => {
    const title = `<h3>${editor.name}</h3>`;
    // The list below the editor says an error of the configuration.
    if (wrong) return editor.isWrong ? "<div></div>" : `<div>${title}<p class="wrong">${escaped(sentence(wrong))}</p></div>`;
    const { events } = result, place = Math.min(chosen ?? 0, events.length - 1), now = events[place]?.at;
    const answer = events.length ? explained(editor, events, place) : { text: "No request is sent.", why: "" };
    const event = events[place];
    const charts = limitsOf(result).map(([name, { limit }]) => {
      const top = round(Math.max(1, ...whole.flatMap(({ result }) => result.left.flatMap(({ limits }) => limits.filter((each) => `${each.policy} ${each.name}` === name).map(({ remaining }) => remaining)))));
      return `<figure><figcaption><b>${escaped(name)}</b>: ${escaped(grouped(limit))}</figcaption>${leftOver(width, result, name, top, now)}</figure>`;
    });
    return `<div>${title}<figure><figcaption>Each column shows the requests of ${seconds(result.end / BINS)} by what weir does with them. The dashed line is at the request of the slider.</figcaption>${overTime(width, result, most, now)}</figure>${table(result, of)}
      <h3>The response${event ? ` to client ${event.client} at ${seconds(event.at)}: ${kindOf(event)}` : ""}</h3><pre class="response" tabindex="0">${escaped(answer.text)}</pre>
      <details><summary>Why: what <code>weir explain</code> prints</summary><pre tabindex="0">${escaped(answer.why)}</pre></details>
      <h3>Left in each limit of client ${$("client").value}</h3><p class="quiet">Each line shows how many units the client could still use at that time.</p>${charts.join("") || '<p class="quiet">No limit applies to it.</p>'}
      <details><summary>What <code>weir replay</code> prints</summary><pre class="report" tabindex="0">${escaped(result.report)}</pre></details></div>`;
  }).join("");
  $("results").querySelectorAll("details").forEach((each, n) => { each.open = open[n] ?? false; });
  const first = whole[0]?.result.events ?? [];
  const event = first[chosen ?? 0];
  $("chosen").textContent = event ? `request ${grouped((chosen ?? 0) + 1)} of ${grouped(first.length)}, of client ${event.client} at ${seconds(event.at)}` : "";
  $("request").setAttribute("aria-valuetext", $("chosen").textContent);
}
function run() {
  clearTimeout(timer);
  editors.forEach(examine);
  $("forget").hidden = log === null;
  form.hidden = log !== null;
  $("page").replaceChildren();
  $("results").hidden = log !== null;
  for (const id of ["trace", "traced"]) $(id).hidden = log !== null;
  if (log) {
    $("choice").hidden = true;
    return showLog();
  }
  const of = handles(), clients = Math.min(Math.max(1, Math.floor(of.clients)), 50);
  const client = Math.min(Number($("client").value) || 1, clients);
  $("client").innerHTML = Array.from({ length: clients }, (_, n) => `<option>${n + 1}</option>`).join("");
  $("client").value = client;
  runs = editors.map((editor) => {
    try { return { editor, result: simulate(editor, of, client) }; } catch (error) { return { editor, wrong: error.message ?? String(error) }; }
  });
  $("choice").hidden = runs.every(({ result }) => !result);
  $("trace").disabled = runs.every(({ result }) => !result?.events.length);
  const happened = new Set(runs.flatMap(({ result }) => result?.events ?? []).map(kindOf));
  for (const each of document.querySelectorAll(".legend span")) each.hidden = !happened.has(each.firstElementChild.className);
  const events = runs.find(({ result }) => result)?.result.events ?? [];
  // The first response that is not plain: what the page is opened for.
  if (events.length && (chosen === null || chosen >= events.length)) chosen = Math.max(0, events.findIndex((event) => kindOf(event) !== "admitted"));
  $("request").max = Math.max(0, events.length - 1);
  $("request").value = chosen ?? 0;
  $("summary").textContent = runs.map(({ editor, result, wrong }) => {
    const of = runs.length > 1 ? `${editor.name}: ` : "";
    if (wrong) return `${of}The configuration has an error${editor.isWrong ? ", which is listed below its editor" : ""}.`;
    return `${of}${grouped(result.events.length)} requests: ${KINDS.map((kind) => [count(result.events, kind), kind]).filter(([n]) => n).map(([n, kind]) => `${grouped(n)} ${kind === "shadow" ? "would be denied (shadow)" : kind}`).join(", ")}.${result.isCut ? ` The others are left out: ${grouped(MOST)} are the most.` : ""}`;
  }).join(" ");
  draw();
}
function showLog() {
  try {
    const html = replay(editors[0].name, editors[0].area.value, editors[1]?.area.value, log.name, log.text);
    const frame = document.createElement("iframe");
    frame.title = `weir replay --html of ${log.name}`;
    frame.setAttribute("sandbox", "");
    frame.srcdoc = html;
    $("page").append(frame);
    $("summary").textContent = `This page is what weir replay --html writes about ${log.name}.`;
  } catch (error) {
    const isWrong = editors.some((editor) => editor.isWrong);
    $("summary").textContent = `The log cannot be replayed${isWrong ? ": the configuration has an error, which is listed below its editor" : ""}.`;
    if (!isWrong) $("page").innerHTML = `<p class="wrong">${escaped(sentence(error.message ?? String(error)))}</p>`;
  }
}
let timer = 0;
function later() { clearTimeout(timer); timer = setTimeout(run, 200); }

async function readLog(file) {
  if (!file) return;
  $("summary").textContent = `Replaying ${file.name}…`;
  try {
    log = { name: file.name, text: await file.text() };
  } catch (error) {
    $("summary").textContent = `${file.name} cannot be read: ${error.message}`;
    return;
  }
  setTimeout(run, 20);
}

// ---- Share: the state as JSON, compressed, in base64url.
const through = async (bytes, stream) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
const bytesOf = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
async function packed() {
  const state = JSON.stringify({ configs: editors.map(({ area }) => area.value), traffic: handles(), request: chosen, client: $("client").value });
  const bytes = await through(new TextEncoder().encode(state), new CompressionStream("deflate-raw"));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
async function unpacked(fragment) {
  const bytes = await through(bytesOf(fragment.replaceAll("-", "+").replaceAll("_", "/")), new DecompressionStream("deflate-raw"));
  return JSON.parse(new TextDecoder().decode(bytes));
}
function setConfigs(texts) {
  editors.splice(0).forEach(({ box }) => box.remove());
  texts.slice(0, 2).forEach((text) => addEditor(String(text)));
  $("compare").checked = editors.length > 1;
  $("editors").className = `sides ${editors.length > 1 ? "two" : ""}`;
}
// The configuration is no recipe any more: each recipe can be chosen again.
function own() {
  if (!$("own")) $("preset").insertAdjacentHTML("afterbegin", '<option id="own" value="">own</option>');
  $("preset").value = "";
}
function choosePreset(name) {
  $("own")?.remove();
  const [, text] = presets.find(([each]) => each === name) ?? presets[0];
  setConfigs([text, ...(editors[1] ? [editors[1].area.value] : [])]);
  setHandles(recipes[name]);
  [log, chosen] = [null, null];
  $("log").value = "";
  run();
}
async function open() {
  const fragment = location.hash.slice(1);
  let wrong = "";
  if (fragment) {
    try {
      const state = await unpacked(fragment);
      if (!state.configs.length) throw new Error("it has no configuration");
      setConfigs(state.configs);
      setHandles(state.traffic);
      own();
      [log, chosen] = [null, Number(state.request) || 0];
      $("log").value = "";
      $("client").innerHTML = `<option>${Number(state.client) || 1}</option>`;
      return run();
    } catch {
      wrong = "The link cannot be read. What follows is a recipe. ";
    }
  }
  choosePreset("per-key-and-address");
  $("preset").value = "per-key-and-address";
  if (wrong) $("summary").prepend(wrong);
}

// ---- Begin
async function begin() {
  const packedWasm = bytesOf($("wasm").textContent.trim());
  await wasm_bindgen({ module_or_path: await through(packedWasm, new DecompressionStream("gzip")) });
  $("preset").innerHTML = presets.map(([name]) => `<option value="${name}">${name.replaceAll("-", " ")}</option>`).join("");
  $("preset").addEventListener("change", () => { if ($("preset").value) choosePreset($("preset").value); });
  $("compare").addEventListener("change", () => {
    const first = editors[0].area.value;
    setConfigs($("compare").checked ? [first, first] : [first]);
    run();
  });
  form.addEventListener("input", () => { chosen = null; later(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  $("request").addEventListener("input", () => { chosen = Number($("request").value); draw(); });
  $("client").addEventListener("change", run);
  $("log").addEventListener("change", () => readLog($("log").files[0]));
  $("forget").addEventListener("click", () => { log = null; $("log").value = ""; run(); $("log").focus(); });
  const hasFile = (event) => event.dataTransfer.types.includes("Files");
  addEventListener("dragover", (event) => { if (hasFile(event)) { event.preventDefault(); document.body.classList.add("dropping"); } });
  addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => { if (hasFile(event)) { event.preventDefault(); document.body.classList.remove("dropping"); readLog(event.dataTransfer.files[0]); } });
  $("share").addEventListener("click", async () => {
    const link = `${location.href.split("#")[0]}#${await packed()}`;
    try { history.replaceState(null, "", link); } catch { /* The page is of a file. */ }
    $("linked").hidden = false;
    $("link").value = link;
    $("link").focus();
    $("link").select();
  });
  $("trace").addEventListener("click", () => {
    const events = runs.find(({ result }) => result)?.result.events ?? [];
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(events.map((event) => event.line + "\n"), { type: "application/jsonl" }));
    link.download = "trace.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  addEventListener("hashchange", open);
  addEventListener("error", ({ message }) => { $("summary").textContent = `The page has failed: ${message}. Load it again.`; });
  addEventListener("unhandledrejection", ({ reason }) => { $("summary").textContent = `The page has failed: ${reason?.message ?? reason}. Load it again.`; });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; if (!log) draw(); } });
  await open();
  document.documentElement.dataset.ready = Math.round(performance.now());
}
begin().catch((error) => { $("summary").textContent = `The page does not run here: ${error.message}`; });
})();
