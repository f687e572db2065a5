// The dialog that explains one silo. A `dialog` of the browser keeps the focus, closes with Esc, and
// gives the focus back.

import { element, set, siloLink } from "./rows.js";

const by = (id) => document.getElementById(id);

export class Why {
  constructor(cluster) {
    this.cluster = cluster;
    this.dialog = by("why");
    this.asked = 0;
    by("why-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => {
      // A click beside it.
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => {
      this.asked += 1;
      this.silo = undefined;
      if (this.opener && !this.opener.isConnected) document.querySelector(`#rows a[data-silo="${CSS.escape(this.opener.dataset.silo)}"]`)?.focus();
    });
  }

  async open(silo, opener) {
    if (!this.dialog.open) this.opener = opener;
    this.silo = silo;
    set(by("why-title"), silo);
    by("why-lines").replaceChildren();
    by("why-ring").replaceChildren();
    set(by("why-error"), "");
    by("why-evict").hidden = true;
    if (!this.dialog.open) this.dialog.showModal();
    by("why-title").focus();
    await this.fill();
  }

  /// Again, after the table has changed.
  async fill() {
    const silo = this.silo;
    if (!silo) return;
    this.asked += 1;
    const turn = this.asked;
    try {
      const answer = await fetch(`/api/v1/about/${encodeURIComponent(silo)}?cluster=${encodeURIComponent(this.cluster)}`);
      const found = await answer.json();
      if (turn !== this.asked) return;
      if (!answer.ok) {
        set(by("why-error"), answer.status === 404 ? "Its row is gone." : found.message);
        return;
      }
      this.show(found);
    } catch {
      if (turn === this.asked) set(by("why-error"), "The server does not answer.");
    }
  }

  show(found) {
    set(by("why-title"), found.headline);
    set(by("why-error"), "");
    by("why-lines").replaceChildren(
      ...found.lines.map((line) => {
        const row = element("div");
        row.append(element("dt", "", line.label), element("dd", "", line.text));
        return row;
      }),
    );
    this.status = found.status;
    const ring = (label, silos) => {
      const part = element("p", "", `${label}: `);
      if (!silos) part.append("not worked out for so many silos");
      else if (!silos.length) part.append("none");
      for (const [i, silo] of (silos ?? []).entries()) part.append(i ? ", " : "", siloLink(silo, this.cluster));
      return part;
    };
    const made =
      found.status === "Active"
        ? [ring("it probes", found.probes), ring("it is probed by", found.probed_by), element("p", "quiet", `With num_probed_silos = ${found.rings}, the default, and before anything was missed.`)]
        : [element("p", "quiet", `It is ${found.status}: the rings have the Active silos.`)];
    by("why-ring").replaceChildren(...made);
    this.shown?.(found);
  }
}
