// Draws the dashboard from the JSON of docs/dashboard.md. What comes from there becomes text nodes and attributes,
// never markup: names of models, workers and users may hold anything.
"use strict";

const REFRESH_MS = 3000;
const SVG = "http://www.w3.org/2000/svg";
const main = document.getElementById("main");

// --- elements ---

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// `columns`: {name, cell(row), number}. The first one names the row. Roles are said aloud because a narrow window draws
// rows as cards, and a table that is drawn so is none to a screen reader otherwise.
function table(caption, columns, rows) {
  const head = columns.map((c) => el("th", {scope: "col", role: "columnheader", class: c.number ? "n" : null}, c.name));
  const body = rows.map((row) => el("tr", {role: "row"}, columns.map((column, i) => {
    const attributes = {"data-name": column.name, class: column.number ? "n" : null};
    const cell = column.cell(row), content = Array.isArray(cell) ? el("div", {}, cell) : cell;
    return i === 0 ? el("th", {...attributes, scope: "row", role: "rowheader"}, content)
                   : el("td", {...attributes, role: "cell"}, content);
  })));
  if (rows.length === 0) return el("p", {class: "quiet"}, `${caption}: there are none.`);
  return el("table", {role: "table"}, el("caption", {}, caption),
            el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, head)), el("tbody", {role: "rowgroup"}, body));
}

function tiles(pairs) {
  return el("dl", {class: "tiles"}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const STATE_CLASS = {
  running: "good", finals: "good", closing: "good", measuring: "good", idle: "good", done: "good", ok: "good",
  failed: "bad", lost: "bad", abandoned: "bad", version_mismatch: "bad", target_mismatch: "bad",
  drained: "warn", pending: "warn", queued: "warn", waiting_for_device: "warn", suspended: "warn",
};
const state = (name) => el("span", {class: `state ${STATE_CLASS[name] || ""}`}, name.replaceAll("_", " "));
const link = (href, text) => el("a", {href}, text);
const jobLink = (id) => id ? link(`#/job/${id}`, `job ${id}`) : "";

// --- numbers ---

const count = (n) => Number(n || 0).toLocaleString("en");
const number = (n) => n === 0 ? "0" : Math.abs(n) >= 100 ? n.toFixed(0) : String(Number(n.toPrecision(3)));
const ms = (n) => n > 0 ? `${number(n)} ms` : "–";
const percent = (share) => `${(100 * (share || 0)).toFixed(1)} %`;
const when = (unixMs) => unixMs ? new Date(unixMs).toLocaleString("sv") : "–";
function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

// --- plots ---

// About `want` round numbers from `low` to `high`.
function ticks(low, high, want) {
  const raw = (high - low) / want || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw);
  const all = [];
  const first = Math.ceil(low / step);  // where doubles are too coarse for `step`, to add it changes nothing
  for (let i = 0; i <= 2 * want + 2 && (first + i) * step <= high + step * 1e-9; ++i) all.push((first + i) * step);
  return all;
}

// Each value holds until the next, to the right end. `points`: [x, y], x rising.
function stepPath(points, x, y, right) {
  let path = `M${x(points[0][0]).toFixed(1)},${y(points[0][1]).toFixed(1)}`;
  for (const [px, py] of points.slice(1)) path += `H${x(px).toFixed(1)}V${y(py).toFixed(1)}`;
  return `${path}H${x(right).toFixed(1)}`;
}

function frame(label, unit, xTicks, yTicks, x, y, box) {
  return svg("svg", {viewBox: `0 0 ${box.width} ${box.height}`, role: "img", "aria-label": label},
    svg("text", {x: box.left - 6, y: 11, "text-anchor": "end"}, unit),
    yTicks.map((t) => [
      svg("line", {class: "grid", x1: box.left, x2: box.right, y1: y(t), y2: y(t)}),
      svg("text", {x: box.left - 6, y: y(t) + 4, "text-anchor": "end"}, number(t))]),
    xTicks.map(([at, text]) => {
      const anchor = x(at) > box.right - 30 ? "end" : "middle";
      return svg("text", {x: x(at), y: box.bottom + 16, "text-anchor": anchor}, text);
    }));
}

// The plot is scaled to its figure, and its letters with it: on a phone it is drawn narrower, with fewer ticks.
const NARROW = matchMedia("(max-width: 600px)").matches;
const BOX = {width: NARROW ? 300 : 480, height: 200, left: 48, right: NARROW ? 280 : 450, top: 22, bottom: 168};

function curvePlot(title, points, right) {
  if (points.length === 0) return null;
  const values = points.map((p) => p[1]), high = Math.max(...values), low = Math.min(...values);
  const margin = (high - low) * 0.08 || high * 0.1 || 1;
  const top = high + margin, base = Math.max(0, low - margin), last = Math.max(right, points[points.length - 1][0], 2);
  const x = (v) => BOX.left + (BOX.right - BOX.left) * (v - 1) / (last - 1);
  const y = (v) => BOX.bottom - (BOX.bottom - BOX.top) * (v - base) / (top - base);
  const label = `${title}: from ${ms(values[0])} to ${ms(values[values.length - 1])} in ${count(last)} trials`;
  const names = ticks(1, last, NARROW ? 2 : 5).map((t, i, all) => [t, i === all.length - 1 ? `${count(t)} trials` : count(t)]);
  const plot = frame(label, "ms", names, ticks(base, top, 6), x, y, BOX);
  plot.append(svg("path", {class: "curve", d: stepPath(points, x, y, last)}));
  return el("figure", {}, el("figcaption", {}, title), plot);
}

function sparkline(points, label, limit) {
  if (points.length < 2) return "";
  const values = points.map((p) => p[1]), all = limit ? [...values, limit] : values;
  const high = Math.max(...all), low = Math.min(...all), first = points[0][0], last = points[points.length - 1][0];
  const x = (v) => 2 + 96 * (v - first) / (last - first || 1), y = (v) => 22 - 20 * (v - low) / (high - low || 1);
  return svg("svg", {class: "spark", viewBox: "0 0 100 24", role: "img", "aria-label": label},
    limit ? svg("line", {class: "limit", x1: 2, x2: 98, y1: y(limit), y2: y(limit)}) : null,
    svg("path", {class: "curve", d: stepPath(points, x, y, last)}));
}

function throughputPlot(data) {
  const minutes = 60, now = Math.floor(data.now_unix_s / 60) * 60, start = now - 60 * (minutes - 1);
  const high = Math.max(1, ...data.minutes.map((m) => m[1] + m[2]));
  const x = (s) => BOX.left + (BOX.right - BOX.left) * (s - start) / (60 * minutes);
  const y = (n) => BOX.bottom - (BOX.bottom - BOX.top) * n / high;
  const total = data.minutes.reduce((sum, m) => sum + m[1] + m[2], 0);
  const failed = data.minutes.reduce((sum, m) => sum + m[2], 0);
  const label = `Results a minute in the last hour: ${count(total)} in all, ${count(failed)} of them failed`;
  const hours = [[start, "−60 min"], [start + 1800, "−30 min"], [now, "now"]];
  const plot = frame(label, "", hours, ticks(0, high, 4), x, y, BOX);
  const bar = (kind, s, from, to) => svg("rect",
    {class: kind, x: x(s), y: y(to), width: (BOX.right - BOX.left) / minutes - 1, height: y(from) - y(to)});
  for (const [s, measured, bad] of data.minutes) {
    plot.append(bar("bars", s, 0, measured));
    if (bad > 0) plot.append(bar("bars-bad", s, measured, measured + bad));
  }
  return el("figure", {}, el("figcaption", {}, "Results a minute, failed ones on top"), plot);
}

// --- what the server says ---

class NotLoggedIn extends Error {}

// An error of the listener itself is a line of text.
async function bodyOf(reply) {
  const isJson = (reply.headers.get("Content-Type") || "").startsWith("application/json");
  return isJson ? reply.json() : {error: (await reply.text()).trim()};
}

async function api(path, parameters) {
  const query = new URLSearchParams(Object.entries(parameters || {}).filter(([, value]) => value)).toString();
  const reply = await fetch(query ? `${path}?${query}` : path, {cache: "no-store"});
  const body = await bodyOf(reply);
  if (reply.status === 401) throw new NotLoggedIn(body.error);
  if (!reply.ok) throw new Error(body.error);
  return body;
}

let lastNews = "";
function tell(news) {
  if (news !== lastNews) document.getElementById("news").textContent = news;
  lastNews = news;
}

// --- pages: each loads what it shows and returns {title, nodes, form, news}. A form is made anew only when the address
// changes, so that nobody's typing is lost. ---

function pager(page, query, next) {
  const older = new URLSearchParams(query);
  if (next) older.set("from", next);
  const first = new URLSearchParams(query);
  first.delete("from");
  return el("nav", {class: "pages", "aria-label": "Parts of the list"},
    query.get("from") ? link(`#/${page}?${first}`, "First page") : null,
    next ? link(`#/${page}?${older}`, "Next page") : null);
}

function filterForm(page, query, fields) {
  const form = el("form", {role: "search"}, fields, el("button", {}, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.hash = `#/${page}?${asked}`;
  });
  return form;
}
const field = (name, text, value) => el("label", {}, text, el("input", {name, value: value || "", autocomplete: "off"}));
function choice(name, text, values, chosen) {
  const options = values.map((v) => el("option", {value: v, selected: v === chosen ? "" : null}, v || "any"));
  return el("label", {}, text, el("select", {name}, options));
}

const JOB_COLUMNS = [
  {name: "Job", cell: (j) => link(`#/job/${j.id}`, j.id)},
  {name: "Model", cell: (j) => el("span", {class: "text"}, j.model)},
  {name: "State", cell: (j) => [state(j.state), j.reason ? el("div", {class: "quiet text"}, j.reason) : null]},
  {name: "User", cell: (j) => j.user},
  {name: "Priority", number: true, cell: (j) => j.priority},
  {name: "Device", cell: (j) => j.device},
  {name: "Trials", number: true, cell: (j) => count(j.trials)},
  {name: "Best", number: true, cell: (j) => ms(j.best_ms)},
  {name: "Course", cell: (j) => sparkline(j.curve || [], `Kernels of job ${j.id}`)},
  {name: "Begun", cell: (j) => when(j.created_unix_ms)},
];

async function jobsPage(query) {
  const [status, list, throughput] = await Promise.all([
    api("/api/status"),
    api("/api/jobs", {before: query.get("from"), state: query.get("state"), device: query.get("device")}),
    api("/api/throughput", {minutes: 60})]);
  const alive = ["queued", "waiting_for_device", "running", "finals", "closing"]
    .reduce((sum, name) => sum + (status.jobs[name] || 0), 0);
  const devices = Object.values(status.devices).reduce((sum, n) => sum + n, 0);
  return {
    title: "Jobs",
    form: () => filterForm("jobs", query, [
      choice("state", "State", ["", "queued", "running", "done", "failed", "cancelled", "abandoned"], query.get("state")),
      field("device", "Device key", query.get("device"))]),
    nodes: [
      status.store_ok ? null : el("p", {class: "error"}, "The last results could not be stored; see the server's log."),
      tiles([["jobs under way", count(alive)], ["devices", count(devices)],
             ["measuring", count(status.devices.measuring)], ["leases", count(status.leases)],
             ["candidates that wait", count(status.queues.reduce((sum, q) => sum + q.pending, 0))]]),
      table("Jobs, the newest first", JOB_COLUMNS, list.jobs), pager("jobs", query, list.next),
      el("h2", {}, "Throughput"), el("div", {class: "plots"}, throughputPlot(throughput))],
    news: `${alive} jobs under way`,
  };
}

const taskColumns = (most) => [
  {name: "Operator", cell: (t) => el("span", {class: "text", title: t.workload}, t.what)},
  {name: "Times", number: true, cell: (t) => t.alternative ? "alternative" : t.weight},
  {name: "Share", number: true, cell: (t) => {
    const bar = el("span", {class: "share"});
    bar.style.width = `${(100 * t.share / (most || 1)).toFixed(1)}%`;
    return el("div", {}, percent(t.share), bar);
  }},
  {name: "Default", number: true, cell: (t) => ms(t.untuned_ms)},
  {name: "Best", number: true, cell: (t) => ms(t.best_ms)},
  {name: "Speedup", number: true,
   cell: (t) => t.untuned_ms > 0 && t.best_ms > 0 ? `${(t.untuned_ms / t.best_ms).toFixed(2)}x` : "–"},
  {name: "Trials", number: true, cell: (t) => count(t.trials)},
  {name: "Course", cell: (t) => sparkline(t.curve, `Best times of ${t.what}`)},
  {name: "Config", cell: (t) => el("code", {}, `${t.template} ${t.config}`)},
];

async function jobPage(query, id) {
  const [job, failures] = await Promise.all([api("/api/job", {id}), api("/api/failures", {job: id})]);
  const facts = [["state", state(job.state)], ["device", job.device], ["trials", count(job.trials)],
    ["untuned, end to end", ms(job.untuned_ms)], ["tuned, end to end", ms(job.tuned_ms || job.best_ms)],
    ["user", job.user || "–"], ["priority", job.priority], ["begun", when(job.created_unix_ms)]];
  if (job.live && job.eta_s > 0) facts.push(["time left", ago(job.eta_s)]);
  if (job.live && job.expected_gain_ms > 0) facts.push(["more expected", ms(job.expected_gain_ms)]);
  if (job.build_with) facts.push(["to be built with", job.build_with]);
  return {
    title: `Job ${job.id}: ${job.model}`,
    nodes: [
      job.reason ? el("p", {class: "error text"}, job.reason) : null,
      (job.warnings || []).map((warning) => el("p", {class: "text"}, warning)),
      tiles(facts),
      el("div", {class: "plots"}, curvePlot("Sum of the kernels, best so far", job.curve, job.trials_in_curve)),
      el("h2", {}, "Operators"),
      table("Operators, the longest time first", taskColumns(job.tasks[0]?.share), job.tasks),
      job.tasks_left_out > 0 ? el("p", {class: "quiet"}, `${job.tasks_left_out} more are left out.`) : null,
      el("h2", {}, "Failures"),
      table(`Of ${count(failures.records)} records ${count(failures.failed)} failed`, FAILURE_COLUMNS, failures.groups),
      el("details", {}, el("summary", {}, "Target"), el("p", {}, el("code", {}, job.target || "–")))],
    news: `Job ${job.id} is ${job.state.replaceAll("_", " ")}`,
  };
}

const deviceColumns = (mostDrift) => [
  {name: "Device", cell: (d) => el("span", {class: "text"}, d.key)},
  {name: "Worker", cell: (d) => [el("div", {class: "text"}, d.name), el("div", {class: "quiet text"}, d.fingerprint)]},
  {name: "State", cell: (d) => [state(d.state), d.why_not_used ? el("div", {class: "quiet text"}, d.why_not_used) : null]},
  {name: "Seen", number: true, cell: (d) => `${ago(d.last_seen_s)} ago`},
  {name: "Lease", cell: (d) => d.lease_job ? [jobLink(d.lease_job), ` for ${ago(d.lease_s)}`] : ""},
  {name: "Trials", number: true, cell: (d) => count(d.trials)},
  {name: "Failures", number: true, cell: (d) => count(d.failures)},
  {name: "Canary", number: true,
   cell: (d) => d.canary.length ? `${d.canary[d.canary.length - 1][1].toFixed(2)}x` : "–"},
  {name: "Canary's course", cell: (d) =>
    sparkline(d.canary.map(([age, drift]) => [-age, drift]), `Canary of ${d.name}`, mostDrift)},
];

async function devicesPage(query) {
  const list = await api("/api/devices", {offset: query.get("from"), limit: 100});
  const states = {};
  for (const device of list.devices) states[device.state] = (states[device.state] || 0) + 1;
  return {
    title: "Devices",
    nodes: [
      el("p", {class: "quiet"}, "The canary says how many times as slow as usual a device was; above the dashed line, " +
                                `${list.most_drift}, its times are not believed.`),
      table(`${count(list.total)} workers, by device key`, deviceColumns(list.most_drift), list.devices),
      pager("devices", query, list.next)],
    news: Object.entries(states).map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`).join(", "),
  };
}

const MODEL_COLUMNS = [
  {name: "Model", cell: (m) => el("span", {class: "text"}, m.model)},
  {name: "Device", cell: (m) => m.device},
  {name: "Best", number: true, cell: (m) => ms(m.best_ms)},
  {name: "By", cell: (m) => jobLink(m.best_job)},
  {name: "Jobs", number: true, cell: (m) => count(m.jobs)},
  {name: "Latest", cell: (m) => jobLink(m.latest_job)},
  {name: "Trials", number: true, cell: (m) => count(m.trials)},
];
const RECORD_COLUMNS = [
  {name: "Operator", cell: (r) => el("span", {class: "text", title: r.workload}, r.what)},
  {name: "Device", cell: (r) => r.device},
  {name: "Time", number: true, cell: (r) => ms(r.median_ms)},
  {name: "Kind", cell: (r) => r.put ? "put by hand" : r.confirmed ? "confirmed" : "provisional"},
  {name: "Config", cell: (r) => el("code", {}, `${r.template} ${r.config}`)},
  {name: "From", cell: (r) => jobLink(r.job)},
  {name: "Record", number: true, cell: (r) => r.record},
];

async function recordsPage(query) {
  const asked = {before: query.get("from"), text: query.get("text"), device: query.get("device")};
  const [models, list] = await Promise.all([api("/api/models"), api("/api/records", asked)]);
  return {
    title: "Records",
    form: () => filterForm("records", query, [field("text", "Operator or shape", query.get("text")),
                                              field("device", "Device key", query.get("device"))]),
    nodes: [
      table("Best of each workload and device", RECORD_COLUMNS, list.records), pager("records", query, list.next),
      el("h2", {}, "Models"), table("Models, those tuned last first", MODEL_COLUMNS, models.models)],
  };
}

const FAILURE_COLUMNS = [
  {name: "Class", cell: (f) => f.class.replaceAll("_", " ")},
  {name: "Cause", cell: (f) => el("span", {class: "text"}, f.cause)},
  {name: "Times", number: true, cell: (f) => count(f.count)},
  {name: "Latest", cell: (f) => when(f.latest_unix_ms)},
  {name: "Device", cell: (f) => f.latest_device},
  {name: "Template", cell: (f) => f.latest_template},
  {name: "Record", number: true, cell: (f) => f.latest_record},
];

async function failuresPage() {
  const [status, failures] = await Promise.all([api("/api/status"), api("/api/failures")]);
  const since = Object.entries(status.failures_since_start).map(([name, n]) => [name.replaceAll("_", " "), count(n)]);
  return {
    title: "Failures",
    nodes: [
      table(`Of the newest ${count(failures.records)} records ${count(failures.failed)} failed`, FAILURE_COLUMNS,
            failures.groups),
      el("h2", {}, "The fleet since the server's start"),
      since.length ? tiles(since) : el("p", {class: "quiet"}, "Nothing went wrong.")],
  };
}

function loginPage() {
  const secret = el("input", {name: "token", type: "password", required: "", autocomplete: "current-password"});
  const said = el("p", {class: "error", role: "alert"});
  const owner = el("input", {type: "text", autocomplete: "username", value: "temper", hidden: ""});  // for password stores
  const form = el("form", {}, owner, el("label", {}, "Token", secret), el("button", {}, "Log in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const reply = await fetch("/login", {method: "POST", body: new URLSearchParams({token: secret.value.trim()})});
    if (reply.ok) show(true);
    else said.textContent = (await bodyOf(reply)).error;
  });
  main.replaceChildren(el("section", {class: "login"}, el("h1", {}, "Log in"),
    el("p", {class: "quiet"}, "A token with the scope read, as temper token add makes it."), form, said));
  document.title = "Temper: log in";
  secret.focus();
}

// --- navigation ---

const PAGES = {jobs: jobsPage, job: jobPage, devices: devicesPage, records: recordsPage, failures: failuresPage};

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, id] = path.split("/");
  return {page: PAGES[page] ? page : "jobs", id, query: new URLSearchParams(query || "")};
}

// Draws what changed in place: the focus and what is unfolded stay.
function draw(view, fresh) {
  const content = el("div", {id: "content"}, view.nodes);
  const old = document.getElementById("content");
  if (fresh || !old) {
    main.replaceChildren(el("h1", {}, view.title), ...(view.form ? [view.form()] : []), content);
  } else {
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const unfolded = [...old.querySelectorAll("details")].map((d) => d.open);
    content.querySelectorAll("details").forEach((d, i) => { d.open = unfolded[i] || false; });
    old.replaceWith(content);
    if (focused) [...content.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  }
  document.title = `${view.title} · Temper`;
  document.getElementById("fresh").textContent = `As of ${new Date().toLocaleTimeString("sv")}`;
  if (view.news) tell(view.news);
}

let shown = 0, timer = 0, drawn = null;  // drawn: the address that main shows
let session = null;  // who this is to the server, once it said so
async function show(fresh) {
  const turn = ++shown;
  clearTimeout(timer);
  const here = location.hash;
  fresh = fresh || here !== drawn;
  const {page, id, query} = address();
  if (fresh) main.setAttribute("aria-busy", "true");
  for (const a of document.querySelectorAll("[data-page]")) {
    if (a.dataset.page === (page === "job" ? "jobs" : page)) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    if (!session) session = await api("/api/session");
    document.getElementById("logout").hidden = session.open || !session.allowed;
    if (!session.allowed) throw new NotLoggedIn();
    const view = await PAGES[page](query, id);
    if (turn !== shown) return;
    draw(view, fresh);
    drawn = here;
  } catch (error) {
    if (turn !== shown) return;
    if (error instanceof NotLoggedIn) {
      session = null;
      document.getElementById("logout").hidden = true;
      loginPage();
      main.setAttribute("aria-busy", "false");
      return;
    }
    document.getElementById("fresh").textContent = "";
    if (fresh) main.replaceChildren(el("h1", {}, "That did not work"), el("p", {class: "error"}, error.message));
    else tell(`The server does not answer: ${error.message}`);
  }
  main.setAttribute("aria-busy", "false");
  if (!document.hidden) timer = setTimeout(() => show(false), REFRESH_MS);
}

document.getElementById("logout").addEventListener("click", async () => {
  await fetch("/logout", {method: "POST"});
  session = null;
  show(true);
});
addEventListener("hashchange", async () => {
  await show(true);
  scrollTo(0, 0);
  main.focus({preventScroll: true});
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (!document.querySelector(".login")) show(false);
});
show(true);
