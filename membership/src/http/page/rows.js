// The table of silos: one row per silo, kept and changed in place, so that the focus stays.

import { ago, clean, concern, count, duration, ending, filter, grouped, ordered, shape, suspected } from "./words.js";

/// So many rows at once; the rest follows in the next frames.
const FIRST = 120;
const CHUNK = 300;

export const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = clean(text);
  return made;
};

export const set = (node, text) => {
  const cleaned = clean(text);
  if (node.textContent !== cleaned) node.textContent = cleaned;
};

export const siloLink = (silo, cluster) => {
  const link = element("a", "why");
  // It may break before the epoch.
  const at = silo.lastIndexOf("@");
  if (at < 0) link.append(clean(silo));
  else link.append(clean(silo.slice(0, at)), element("wbr"), clean(silo.slice(at)));
  link.dataset.silo = silo;
  link.href = `/silo/${encodeURIComponent(silo)}?cluster=${encodeURIComponent(cluster)}`;
  link.setAttribute("aria-haspopup", "dialog");
  return link;
};

export const badge = (status) => {
  const made = element("span", `badge s-${status}`);
  const mark = element("span", "", shape(status));
  mark.setAttribute("aria-hidden", "true");
  made.append(mark, ` ${status}`);
  return made;
};

export class Rows {
  constructor(table) {
    this.table = table;
    this.rows = new Map();
    this.closed = new Set();
    this.drawing = 0;
    /// How long the last drawing took until every row was in place, in milliseconds.
    this.drawn = 0;
    // The server's rows are taken over as they are.
    for (const row of table.tBodies[0].rows) this.rows.set(row.dataset.silo, this.parts(row));
  }

  parts(row) {
    const of = (name) => row.querySelector(name);
    return {
      row,
      name: of(".name"),
      zone: of(".zone"),
      role: of(".role"),
      status: of(".status"),
      note: of(".note"),
      beat: of("td.beat"),
      start: of("td.start"),
    };
  }

  make(silo, cluster) {
    const row = element("tr");
    row.dataset.silo = silo;
    const head = element("th");
    head.scope = "row";
    head.append(siloLink(silo, cluster), element("span", "name"));
    const place = element("td", "place");
    place.append(element("span", "zone"), element("span", "role"));
    const status = element("td", "status");
    status.append(element("span", "badge"), element("span", "note"));
    row.append(head, place, status, element("td", "beat"), element("td", "start"));
    const parts = this.parts(row);
    this.rows.set(silo, parts);
    return parts;
  }

  /// What is known of one member besides its row.
  about(state, member, now) {
    const beat = state.heartbeats?.[member.silo];
    const stale = state.isStale(member.silo);
    return {
      beat: beat ? Date.parse(beat.at) : undefined,
      concern: concern(member, now, state.expiration, stale),
    };
  }

  fill(parts, state, member, now) {
    const { concern: level, beat } = this.about(state, member, now);
    const className = `c-${level}`;
    if (parts.row.className !== className) parts.row.className = className;
    set(parts.name, member.silo_name ?? "");
    set(parts.zone, member.zone ?? "");
    set(parts.role, member.role ?? "");
    if (parts.row.dataset.status !== member.status) {
      parts.row.dataset.status = member.status;
      parts.status.querySelector(".badge").replaceWith(badge(member.status));
    }
    this.ages(parts, state, member, now, level, beat);
  }

  ages(parts, state, member, now, level, beat) {
    const dead = member.status === "Dead";
    let note = "";
    if (dead) note = ending(member, now);
    else if (member.suspicions.length) note = `suspected by ${suspected(member)}`;
    set(parts.note, note);
    let text = "";
    if (beat !== undefined) text = ago(beat, now);
    else if (!dead && state.heartbeats) text = "none yet";
    set(parts.beat, level === "stale" ? `${text} (stale)` : text);
    set(parts.start, ago(Date.parse(member.start_time), now));
  }

  /// Shows the members that match, in order and in groups.
  show(state, choice) {
    const now = state.now();
    const matches = filter(choice.search);
    const found = state.members.filter(matches);
    const about = new Map(found.map((m) => [m.silo, this.about(state, m, now)]));
    const all = ordered(found, choice.order, (m) => about.get(m.silo));
    const wanted = [];
    for (const [name, members] of grouped(all, choice.group)) {
      if (choice.group) wanted.push(this.heading(name, members));
      if (!choice.group || !this.closed.has(name)) wanted.push(...members);
    }
    for (const silo of this.rows.keys()) {
      if (!state.bySilo.has(silo)) this.rows.delete(silo);
    }
    this.draw(state, wanted, now);
    return { found: found.length, all: state.members.length };
  }

  heading(name, members) {
    const row = element("tr", "group");
    const head = element("th");
    head.colSpan = 5;
    head.scope = "rowgroup";
    const button = element("button", "");
    button.type = "button";
    button.dataset.group = name;
    const open = !this.closed.has(name);
    button.setAttribute("aria-expanded", String(open));
    const active = members.filter((m) => m.status === "Active").length;
    button.textContent = clean(`${open ? "▾" : "▸"} ${name || "(none)"}: ${count(members.length, "silo")}, ${active} Active`);
    head.append(button);
    row.append(head);
    return row;
  }

  toggle(name) {
    if (!this.closed.delete(name)) this.closed.add(name);
  }

  /// Puts rows in place, the first ones at once and the others in chunks.
  draw(state, wanted, now) {
    const turn = ++this.drawing;
    const began = performance.now();
    const body = this.table.tBodies[0];
    const focused = document.activeElement?.closest?.("tr")?.dataset.silo;
    let place = body.firstElementChild;
    let at = 0;
    const step = (most) => {
      if (turn !== this.drawing) return;
      const until = Math.min(wanted.length, at + most);
      for (; at < until; at += 1) {
        const item = wanted[at];
        let row = item;
        if (!(item instanceof Node)) {
          const parts = this.rows.get(item.silo) ?? this.make(item.silo, state.cluster);
          this.fill(parts, state, item, now);
          row = parts.row;
        }
        if (row === place) place = place.nextElementSibling;
        else body.insertBefore(row, place);
      }
      if (at < wanted.length) {
        requestAnimationFrame(() => step(CHUNK));
        return;
      }
      while (place) {
        const next = place.nextElementSibling;
        place.remove();
        place = next;
      }
      this.drawn = performance.now() - began;
      // A row that moved lost the focus.
      if (focused && !body.contains(document.activeElement) && document.activeElement === document.body) {
        this.rows.get(focused)?.row.querySelector("a").focus({ preventScroll: true });
      }
    };
    step(FIRST);
  }

  /// Ages go on while nothing happens.
  tick(state) {
    const now = state.now();
    for (const [silo, parts] of this.rows) {
      const member = state.bySilo.get(silo);
      if (!member || !parts.row.isConnected) continue;
      const { concern: level, beat } = this.about(state, member, now);
      this.ages(parts, state, member, now, level, beat);
    }
  }
}

/// How long a vote counts, in milliseconds, forced into the range that silos keep to.
export const expiration = (settings) => {
  const window = Math.min(Math.max(duration(settings?.failure_window ?? "4s 500ms"), 300), 600e3);
  return Math.min(Math.max(duration(settings?.death_vote_expiration ?? "2m"), 2 * window), 3600e3);
};
