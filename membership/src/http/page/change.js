// Evict and clean up, where the server allows it: a confirmation that shows what it does, and how it
// ended. What may have happened is said as such.

import { element, set } from "./rows.js";
import { count } from "./words.js";

const by = (id) => document.getElementById(id);

export class Changes {
  /// `token` gives the token of the newest state.
  constructor(cluster, token) {
    this.cluster = cluster;
    this.token = token;
    this.dialog = by("confirm");
    by("confirm-cancel").addEventListener("click", () => this.dialog.close());
    by("confirm-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.confirmed();
    });
  }

  open(title, text, list, withReason, send) {
    this.send = send;
    set(by("confirm-title"), title);
    set(by("confirm-text"), text);
    by("confirm-list").replaceChildren(...list.map((line) => element("li", "", line)));
    by("confirm-reason-label").hidden = !withReason;
    by("confirm-reason").required = withReason;
    by("confirm-reason").value = "";
    by("confirm-yes").value = "";
    by("confirm-do").disabled = false;
    set(by("confirm-cancel"), "Cancel");
    set(by("confirm-result"), "");
    this.dialog.showModal();
    by("confirm-title").focus();
  }

  async confirmed() {
    if (by("confirm-yes").value.trim().toLowerCase() !== "yes") {
      set(by("confirm-result"), "Not confirmed, so nothing was done: type yes.");
      by("confirm-yes").focus();
      return;
    }
    by("confirm-do").disabled = true;
    set(by("confirm-result"), "…");
    const { path, body } = this.send();
    let text;
    let again = false;
    try {
      const answer = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Membership-Token": this.token() ?? "" },
        body: JSON.stringify({ cluster: this.cluster, ...body }),
      });
      const found = await answer.json();
      text = found.message;
      again = found.outcome !== "done" && found.outcome !== "nothing_to_do" && found.outcome !== "may_have_happened";
    } catch {
      text = "The server did not answer: it may have happened. Look at the table before you try again.";
    }
    set(by("confirm-result"), text);
    set(by("confirm-cancel"), "Close");
    by("confirm-do").disabled = !again;
    if (!again) by("confirm-cancel").focus();
  }

  evict(silo, what) {
    this.open(`Evict ${silo}`, what, [], true, () => ({
      path: "/act/evict",
      body: { silo, reason: by("confirm-reason").value },
    }));
  }

  async cleanup() {
    let found;
    try {
      const answer = await fetch(`/api/v1/cleanup?cluster=${encodeURIComponent(this.cluster)}`);
      found = await answer.json();
      if (!answer.ok) throw new Error(found.message);
    } catch (error) {
      this.open("Clean up", `What would be removed is not known: ${error.message}`, [], false, () => ({}));
      by("confirm-do").disabled = true;
      return;
    }
    const rows = found.rows;
    const shown = rows.length > 20 ? [...rows.slice(0, 20), `and ${rows.length - 20} more`] : rows;
    const text = rows.length
      ? `This removes ${count(rows.length, "row")} of silos that died more than 7 days ago and are not among the last 25. Nobody can read afterwards how they ended:`
      : "There is nothing to remove: no silo died more than 7 days ago, apart from the last 25 that are kept.";
    this.open("Clean up", text, shown, false, () => ({ path: "/act/cleanup", body: {} }));
    by("confirm-do").disabled = rows.length === 0;
  }
}
