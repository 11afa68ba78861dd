// A topic's messages as they come. Each look is a request of its own, so that a page costs nothing while it is hidden or paused;
// it ends by itself, and shows the newest rows only. Without this file a link on the page shows what came since.

const EVERY_MS = 2000;
const FAILED_EVERY_MAX_MS = 30_000;
const ROWS_MAX = 200;
const ENDS_AFTER_MS = 10 * 60 * 1000;
const ENDS_HIDDEN_MS = 60 * 1000;

class Tail {
  constructor(panel) {
    this.panel = panel;
    this.status = panel.querySelector("[data-tail-status]");
    this.rows = panel.querySelector("tbody");
    this.cursor = panel.dataset.cursor;
    this.pauseButton = panel.querySelector("[data-tail-pause]");
    this.continueButton = panel.querySelector("[data-tail-continue]");
    this.pauseButton.addEventListener("click", () => this.stop("paused", this.continueButton));
    this.continueButton.addEventListener("click", () => this.follow(this.pauseButton));
    document.addEventListener("visibilitychange", () => this.looked());
    this.hiddenSince = document.hidden ? Date.now() : null;
    this.follow();
  }

  say(state) {
    this.panel.dataset.state = state;
    this.status.textContent = this.status.dataset[state];
  }

  follow(focused = null) {
    this.began = Date.now();
    this.waits = EVERY_MS;
    this.say("following");
    this.show(this.pauseButton, focused);
    this.next();
  }

  stop(state, focused = null) {
    clearTimeout(this.timer);
    this.say(state);
    this.show(this.continueButton, focused);
  }

  show(button, focused) {
    for (const one of [this.pauseButton, this.continueButton]) {
      one.hidden = one !== button;
    }
    focused?.focus();
  }

  get runs() {
    return ["following", "trying"].includes(this.panel.dataset.state);
  }

  looked() {
    this.hiddenSince = document.hidden ? Date.now() : null;
  }

  next() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), this.waits);
  }

  async look() {
    const now = Date.now();
    if (now - this.began > ENDS_AFTER_MS || (this.hiddenSince !== null && now - this.hiddenSince > ENDS_HIDDEN_MS)) {
      this.stop("ended");
      return;
    }
    if (this.hiddenSince === null) {
      try {
        await this.read();
      } catch {
        if (this.runs) {
          this.say("trying");
        }
        this.waits = Math.min(2 * this.waits, FAILED_EVERY_MAX_MS);
      }
    }
    if (this.runs) {
      this.next();
    }
  }

  async read() {
    const address = `${this.panel.dataset.tail}?${this.panel.dataset.query}cursor=${encodeURIComponent(this.cursor)}`;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("tbody[data-cursor]");
    if (!answer.ok || answer.redirected || !fresh) {
      throw new Error("no rows");
    }
    this.cursor = fresh.dataset.cursor;
    this.count("came", fresh.rows.length);
    this.count("unwanted", Number(fresh.dataset.unwanted));
    this.count("skipped", Number(fresh.dataset.skipped));
    this.rows.prepend(...fresh.rows);
    while (this.rows.rows.length > ROWS_MAX) {
      this.rows.rows[this.rows.rows.length - 1].remove();
    }
    this.waits = EVERY_MS;
    if (this.panel.dataset.state === "trying") {
      this.say("following");
    }
  }

  count(name, more) {
    const element = this.panel.querySelector(`[data-tail-${name}]`);
    element.textContent = String(Number(element.textContent) + more);
  }
}

for (const panel of document.querySelectorAll("[data-tail]")) {
  new Tail(panel);
}
