// The page, live: waits for later revisions of the state, and shows them.

import { Changes } from "./change.js";
import { Why } from "./dialogs.js";
import * as panels from "./panels.js";
import { Rows, expiration, set } from "./rows.js";
import { count } from "./words.js";

const by = (id) => document.getElementById(id);
const cluster = document.body.dataset.cluster;
const rows = new Rows(by("rows"));
const why = new Why(cluster);
const changes = new Changes(cluster, () => state?.change_token);
const choice = { search: "", order: "worst", group: "" };
let state = null;
/// The server's clock against this one.
let skew = 0;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/// The newest state; the rows come only if they are others than those that are here.
async function ask(known) {
  const query = new URLSearchParams({ cluster });
  if (known) {
    query.set("wait", known.revision);
    query.set("timeout", "10s");
    if (known.digest) query.set("have", known.digest);
  }
  const answer = await fetch(`/api/v1/status?${query}`, { signal: AbortSignal.timeout(25000) });
  if (answer.status === 401) throw Object.assign(new Error("log in again"), { login: true });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).message ?? `status ${answer.status}`);
  return answer.json();
}

function take(found, known) {
  skew = Date.parse(found.now) - Date.now();
  // A row without votes has no list of them.
  for (const member of found.members ?? []) member.suspicions ??= [];
  found.members ??= found.digest && known ? known.members : [];
  found.bySilo = new Map(found.members.map((member) => [member.silo, member]));
  const stale = new Set(found.stale ?? []);
  found.isStale = (silo) => stale.has(silo);
  found.expiration = expiration(found.settings);
  found.now = () => Date.now() + skew;
  return found;
}

function rowsAgain() {
  if (!state) return;
  const shown = rows.show(state, choice);
  const text = shown.found === shown.all ? count(shown.all, "silo") : `${shown.found} of ${count(shown.all, "silo")}`;
  set(by("shown"), text);
}

function show() {
  set(by("summary"), state.summary ?? "");
  by("cleanup").hidden = !state.may_change;
  document.title = `${state.members.filter((m) => m.status === "Active").length} Active · ${cluster}`;
  by("rows").classList.toggle("no-beats", !state.heartbeats);
  rowsAgain();
  panels.attention(state);
  panels.zones(state);
  panels.suspicions(state);
  panels.timeline(state);
  panels.table(state);
  panels.settings(state);
  if (why.dialog.open) why.fill();
}

function live(text, kind) {
  const part = by("live");
  set(part, text);
  part.className = kind;
}

function tellState() {
  const { table, digest } = state;
  if (table.error) live(`The table: ${table.error}`, "bad");
  else if (!digest) live("The table is being read.", "");
  else live("● live", "good");
}

async function follow() {
  let pause = 500;
  for (;;) {
    try {
      const before = state;
      state = take(await ask(before), before);
      show();
      document.documentElement.dataset.revision = state.revision;
      requestAnimationFrame(() => (by("rows").dataset.drawn = Math.ceil(rows.drawn)));
      tellState();
      pause = 500;
      // A busy cluster is drawn four times a second.
      await sleep(250);
    } catch (error) {
      if (error.login) {
        location.href = "/login";
        return;
      }
      live(`The server does not answer (${error.message}); still trying. This is as of the last answer.`, "bad");
      await sleep(pause);
      pause = Math.min(pause * 2, 5000);
      // Another process may answer now, with other revisions.
      if (state) state.revision = 0;
    }
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a.why");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    why.open(link.dataset.silo, link);
    return;
  }
  const zone = event.target.closest?.("button[data-search]");
  if (zone) search(zone.dataset.search);
  const group = event.target.closest?.("button[data-group]");
  if (group) {
    const name = group.dataset.group;
    rows.toggle(name);
    rowsAgain();
    document.querySelector(`button[data-group="${CSS.escape(name)}"]`)?.focus();
  }
});

function search(text) {
  by("search").value = text;
  choice.search = text;
  rowsAgain();
  by("rows").scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const field = event.target.closest?.("input, select");
  if (event.key === "/" && !field) {
    event.preventDefault();
    by("search").focus();
  } else if (event.key === "Escape" && event.target.id === "search") {
    search("");
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (!field || event.target.id === "search")) {
    const links = [...document.querySelectorAll("#rows tbody a.why")];
    const at = links.indexOf(document.activeElement);
    if (at < 0 && event.target.id !== "search" && document.activeElement !== document.body) return;
    const next = links[at < 0 ? 0 : at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
});

by("cleanup").addEventListener("click", () => changes.cleanup());
why.shown = (found) => {
  by("why-evict").hidden = !found.eviction;
  by("why-evict").onclick = () => changes.evict(found.silo, found.eviction);
};
by("controls").hidden = false;
by("controls").addEventListener("submit", (event) => event.preventDefault());
by("controls").addEventListener("input", () => {
  choice.search = by("search").value;
  choice.order = by("order").value;
  choice.group = by("group").value;
  rowsAgain();
});
for (const link of document.querySelectorAll("a.why")) link.setAttribute("aria-haspopup", "dialog");
setInterval(() => {
  if (!state || document.hidden) return;
  rows.tick(state);
  panels.table(state);
}, 1000);
follow();
