// Pure functions: words, concerns, order and choice of rows. They touch no document.

const SHAPES = { Active: "●", Dead: "✕", ShuttingDown: "◑", Stopping: "◑" };
/// A shape beside each word, for people who do not see the colour.
export const shape = (status) => SHAPES[status] ?? "◔";

/// `3 s`, `2 min`, `4 h`, `5 days`: one unit, rounded down.
export function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return `${Math.floor(ms)} ms`;
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

/// `3 s ago`, or `3 s ahead` of the clock; times are in milliseconds.
export function ago(at, now) {
  if (at - now >= 1000) return `${span(at - now)} ahead`;
  return now - at < 1000 ? "0 s ago" : `${span(now - at)} ago`;
}

export const count = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

/// `ip:port` of `ip:port@epoch`.
export const endpoint = (silo) => silo.slice(0, silo.lastIndexOf("@"));

/// A duration of the settings, such as `2m` or `4s 500ms`, in milliseconds.
export function duration(text) {
  const units = { ms: 1, s: 1e3, m: 6e4, h: 36e5, day: 864e5, days: 864e5 };
  let all = 0;
  for (const [, n, unit] of String(text).matchAll(/(\d+)\s*([a-z]+)/g)) all += n * (units[unit] ?? 0);
  return all;
}

/// `10.0.0.1:7100, 10.0.0.2:7100 and 3 more`: who voted against it.
export function suspected(member) {
  const names = member.suspicions.map((vote) => endpoint(vote.accuser));
  const more = names.length - 3;
  return names.slice(0, 3).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/// `voted 12 s ago`, `evicted 3 min ago by …: disk full`.
export function ending(member, now) {
  const death = member.death;
  if (!death) return "";
  const { kind, by, reason } = death.cause;
  const when = ago(Date.parse(death.at), now);
  return kind === "evicted" ? `evicted ${when} by ${by}: ${reason}` : `${member.cause} ${when}`;
}

const LATELY = 3600e3;
export const CONCERNS = ["suspected", "lost", "stale", "changing", "fine", "gone"];

/// How much a row needs a person, as `membership status` orders rows.
export function concern(member, now, expiration, stale) {
  if (member.status === "Dead") {
    const byOthers = ["voted", "stuck", "evicted"].includes(member.cause);
    return byOthers && member.death && now - Date.parse(member.death.at) < LATELY ? "lost" : "gone";
  }
  if (member.suspicions.some((vote) => now - Date.parse(vote.at) <= expiration)) return "suspected";
  if (stale) return "stale";
  return member.status === "Active" ? "fine" : "changing";
}

const FIELDS = { status: "status", zone: "zone", role: "role", cause: "cause", name: "silo_name", host: "host_name", silo: "silo" };
const PARTS = ["name", "host", "silo"];

/// A text that a person types, as a function of a member: `status=Active,zone=z1`, or a part of
/// any field.
export function filter(text) {
  const value = (member, key) => String(member[FIELDS[key]] ?? "").toLowerCase();
  const typed = text.trim().toLowerCase();
  if (!typed) return () => true;
  const conditions = typed.split(",").map((part) => {
    const at = part.indexOf("=");
    return at < 0 ? [null, part] : [part.slice(0, at).trim(), part.slice(at + 1).trim()];
  });
  if (conditions.every(([key]) => key !== null && Object.hasOwn(FIELDS, key))) {
    return (member) =>
      conditions.every(([key, wanted]) => (PARTS.includes(key) ? value(member, key).includes(wanted) : value(member, key) === wanted));
  }
  return (member) => Object.keys(FIELDS).some((key) => value(member, key).includes(typed));
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/// Addresses in the order of numbers.
function byAddress(a, b) {
  return a.silo.localeCompare(b.silo, "en", { numeric: true });
}

/// Members in an order; `about` gives the concern and the last heartbeat of one.
export function ordered(members, order, about) {
  const keys = {
    worst: (m) => CONCERNS.indexOf(about(m).concern),
    silo: () => 0,
    name: (m) => m.silo_name ?? "",
    role: (m) => m.role ?? "",
    zone: (m) => m.zone ?? "",
    status: (m) => ["Created", "Joining", "Active", "ShuttingDown", "Stopping", "Dead"].indexOf(m.status),
    started: (m) => -Date.parse(m.start_time),
    heartbeat: (m) => (m.status === "Dead" ? Infinity : (about(m).beat ?? Date.parse(m.start_time))),
  };
  const key = keys[order] ?? keys.silo;
  const all = [...members].sort(byAddress).map((m) => [key(m), m]);
  return all.sort(([a], [b]) => compare(a, b)).map(([, m]) => m);
}

/// Members in groups of one field, each in the order that it has.
export function grouped(members, field) {
  if (!field) return [["", members]];
  const groups = new Map();
  for (const member of members) {
    const key = String(member[field] ?? "");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(member);
  }
  return [...groups].sort(([a], [b]) => compare(a, b));
}

/// Text without characters that hide or reorder others, or cannot be seen.
export const clean = (text) => String(text).replace(/[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu, "\ufffd");
