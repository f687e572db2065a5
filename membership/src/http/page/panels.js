// What stands around the table of silos: what needs a person, zones, suspicions, the time line, the
// table's health, settings.

import { ago, count, endpoint, span } from "./words.js";
import { badge, element, set, siloLink } from "./rows.js";

const by = (id) => document.getElementById(id);
const STATUSES = ["Created", "Joining", "Active", "ShuttingDown", "Stopping", "Dead"];

/// Replaces the content of a part if it became another one; `key` says what it shows.
function replace(part, key, make) {
  if (part.dataset.key === key) return;
  part.dataset.key = key;
  part.replaceChildren(...make());
}

const quiet = (text) => element("p", "quiet", text);

function list(items) {
  const made = element("ul");
  made.append(...items);
  return made;
}

function item(...parts) {
  const made = element("li");
  made.append(...parts);
  return made;
}

function pairs(all) {
  const made = element("dl");
  for (const [name, value] of all) {
    const row = element("div");
    const about = element("dd");
    if (value instanceof Node) about.append(value);
    else set(about, value);
    row.append(element("dt", "", name), about);
    made.append(row);
  }
  return made;
}

export function attention(state) {
  const all = [...(state.attention ?? [])];
  const part = by("attention");
  part.classList.toggle("some", all.length > 0);
  const body = part.querySelector(".body");
  replace(body, JSON.stringify(all), () => {
    if (!all.length) return [quiet("Nothing.")];
    const line = (one) => {
      const about = state.bySilo.has(one.about) ? siloLink(one.about, state.cluster) : element("code", "", one.about);
      return item(element("strong", "", one.kind), " ", ...(one.about ? [about, " "] : []), element("span", "", one.text));
    };
    const shown = all.slice(0, 20).map(line);
    if (all.length > 20) shown.push(item(`and ${all.length - 20} more`));
    return [list(shown)];
  });
}

export function zones(state) {
  const counts = new Map();
  const used = new Set();
  for (const member of state.members) {
    const zone = member.zone ?? "";
    if (!counts.has(zone)) counts.set(zone, {});
    const of = counts.get(zone);
    of[member.status] = (of[member.status] ?? 0) + 1;
    used.add(member.status);
  }
  const statuses = STATUSES.filter((status) => used.has(status));
  const all = [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  const part = by("zones");
  let table = part.querySelector("table");
  if (!table) part.append((table = element("table")));
  replace(table, JSON.stringify([statuses, all]), () => {
    const head = element("thead");
    const heading = element("tr");
    const column = (content) => {
      const cell = element("th");
      cell.scope = "col";
      cell.append(content);
      return cell;
    };
    heading.append(column("Zone"), ...statuses.map((status) => column(badge(status))));
    head.append(heading);
    const body = element("tbody");
    for (const [zone, of] of all) {
      const row = element("tr");
      const name = element("th");
      name.scope = "row";
      const button = element("button", "link", zone || "(no zone)");
      button.type = "button";
      button.dataset.search = `zone=${zone}`;
      name.append(button);
      row.append(name, ...statuses.map((status) => element("td", "", of[status] ?? 0)));
      body.append(row);
    }
    return [head, body];
  });
}

export function suspicions(state) {
  const now = state.now();
  const votes = state.members
    .filter((member) => member.status !== "Dead")
    .flatMap((member) => member.suspicions.map((vote) => [vote, member.silo]))
    .filter(([vote]) => vote.reason !== "challenge" && now - Date.parse(vote.at) <= state.expiration);
  const reach = state.reach;
  replace(by("suspicions").querySelector(".body"), JSON.stringify([votes, reach]), () => {
    const made = [];
    if (votes.length) {
      const line = ([vote, silo]) =>
        item(siloLink(vote.accuser, state.cluster), " suspects ", siloLink(silo, state.cluster), ` since ${time(vote.at)}`);
      made.push(list(votes.slice(0, 40).map(line)));
      if (votes.length > 40) made.push(quiet(`and ${votes.length - 40} more votes`));
    } else made.push(quiet("Nobody suspects anybody."));
    if (!reach) made.push(quiet("Who does not reach whom is not known: the silos are not asked (--ask)."));
    else if (!reach.answered) made.push(quiet("Who does not reach whom is not known: no silo answered."));
    else if (state.silo && !reach.partial.length) made.push(quiet("This silo reaches all that others reach."));
    else if (!reach.partial.length) made.push(quiet(`${count(reach.answered, "silo")} answered; each reaches all that others reach.`));
    else {
      made.push(element("p", "warn", "A partial partition. Nobody is declared dead for it: repair the network between them."));
      const line = (one) =>
        item(siloLink(one.silo, state.cluster), ` does not reach ${one.unreached.slice(0, 8).map(endpoint).join(", ")}`);
      made.push(list(reach.partial.slice(0, 20).map(line)));
    }
    return made;
  });
}

const time = (text) => text.slice(11, 19);

function when(at, now) {
  const made = element("time", "", now - Date.parse(at) < 72e6 ? time(at) : at.slice(0, 16).replace("T", " "));
  made.dateTime = at;
  made.title = `${at}, ${ago(Date.parse(at), now)}`;
  return made;
}

export function timeline(state) {
  const all = (state.timeline ?? []).slice(0, 100);
  const now = state.now();
  replace(by("timeline").querySelector(".body"), JSON.stringify(all.slice(0, 3)) + all.length, () => {
    const made = element("ol");
    for (const one of all) {
      const line = element("li", `w-${one.what}`);
      if (!one.exact) line.append("≥ ");
      line.append(when(one.at, now), " ");
      if (one.silo) line.append(siloLink(one.silo, state.cluster), " ");
      if (one.name) line.append(element("span", "name", one.name), " ");
      line.append(element("span", "what", one.text));
      if (one.version !== null) line.append(element("span", "quiet", ` v${one.version}`));
      made.append(line);
    }
    return all.length ? [made] : [quiet("Nothing yet.")];
  });
}

/// The last measurements as a line.
function sparkline(values) {
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const most = Math.max(...values, 1);
  const points = values.map((value, i) => `${i * 2},${(19 - (value / most) * 18).toFixed(1)}`).join(" ");
  const width = Math.max(values.length * 2, 2);
  const drawn = svg("svg", { class: "spark", viewBox: `0 0 ${width} 20`, role: "img", "aria-label": `up to ${most} ms in the last ${values.length} reads` });
  drawn.append(svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": "1" }));
  return drawn;
}

export function table(state) {
  const health = state.table;
  const now = state.now();
  const all = [["state", health.error ? `${health.state}: ${health.error}` : health.state]];
  if (health.read_at) all.push(["last read", ago(Date.parse(health.read_at), now)]);
  if (health.latency_ms.length) {
    const last = element("span", "", `${health.latency_ms.at(-1)} ms `);
    last.append(sparkline(health.latency_ms));
    all.push(["latency", last]);
  } else if (health.mean_ms !== null) all.push(["latency, mean", `${health.mean_ms} ms`]);
  if (health.reads) all.push(["reads", `${health.reads}, ${health.failed} failed`]);
  all.push(["conflicts", health.conflicts ?? "not known to a reader"]);
  if (health.unknown !== null) all.push(["unknown outcomes", health.unknown]);
  const outages = health.outages.slice(-5).reverse().map((one) => {
    const lasted = one.to ? `for ${span(Date.parse(one.to) - Date.parse(one.from))}` : "until now";
    return item(`${time(one.from)} ${lasted}: `, element("span", "", one.error));
  });
  all.push(["outages seen", outages.length ? list(outages) : "none"]);
  if (state.version !== undefined) {
    all.push(["version", state.version], ["table id", state.table_id], ["layout", state.layout]);
    const commits = (state.recent ?? []).slice(-5).reverse();
    const line = (commit) => {
      const changed = commit.changed.keys ? commit.changed.keys.map(endpoint).join(", ") : count(commit.changed.count, "row");
      return item(`v${commit.version} by ${commit.committer ? endpoint(commit.committer) : "a program"}: `, element("span", "", changed.slice(0, 120)));
    };
    if (commits.length) all.push(["last commits", list(commits.map(line))]);
  }
  const body = by("table").querySelector(".body");
  body.replaceChildren(pairs(all));
}

export function settings(state) {
  if (!state.settings) return;
  const all = Object.entries(state.settings);
  replace(by("settings").querySelector(".body"), JSON.stringify(all), () => [
    // A silo shows no keys, nor their number.
    pairs(state.silo ? all : [...all, ["cluster keys", state.rotation_unfinished ? `${state.cluster_keys}, a rotation is unfinished` : state.cluster_keys]]),
  ]);
}
