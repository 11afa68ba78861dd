// Small behaviours that each page has: copy buttons, menus that close, typed confirmations, the theme switch.
// Everything is delegated from the document, so parts that htmx swaps in need no set-up. Without this file each form still works.

document.documentElement.dataset.scripted = "true";

const COPIED_FOR_MS = 2000;
const THEME_COOKIE_AGE_S = 60 * 60 * 24 * 365;

// Speaks to screen readers, and holds the words of this file in the language of the page.
const announcer = document.getElementById("announcer");

function announce(text) {
  if (announcer) {
    announcer.textContent = text;
  }
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const text = source.textContent;
  const label = button.querySelector("[data-label]");
  const before = label.textContent;
  try {
    await writeToClipboard(text);
    label.textContent = announcer.dataset.copied;
    announce(announcer.dataset.copiedAnnounced);
  } catch {
    selectText(source);
    label.textContent = announcer.dataset.refused;
    announce(announcer.dataset.refusedAnnounced);
  }
  setTimeout(() => (label.textContent = before), COPIED_FOR_MS);
}

// navigator.clipboard exists only on secure origins; a console on a plain-HTTP host in a private network still has to copy.
async function writeToClipboard(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text);
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) {
    throw new Error("copying was refused");
  }
}

function selectText(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}

function chooseTheme(button) {
  const theme = button.value;
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = theme;
  }
  const name = button.parentElement.dataset.cookie;
  const secure = name.startsWith("__Host-") ? "; secure" : "";
  document.cookie = `${name}=${theme}; path=/; max-age=${THEME_COOKIE_AGE_S}; samesite=lax${secure}`;
  for (const other of document.querySelectorAll('button[name="theme"]')) {
    other.setAttribute("aria-pressed", String(other.value === theme));
  }
}

function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(except)) {
      menu.open = false;
    }
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  closeMenus(event.target);
  if (!button) {
    return;
  }
  if (button.dataset.copy) {
    copy(button);
  } else if (button.name === "theme") {
    event.preventDefault();
    chooseTheme(button);
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") {
    return;
  }
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// A dangerous button waits until the name beside it is typed. The server compares it again.
document.addEventListener("input", (event) => {
  const expected = event.target.dataset?.mustEqual;
  if (expected !== undefined) {
    event.target.form.querySelector("[data-guarded]").disabled = event.target.value !== expected;
  }
});

for (const guarded of document.querySelectorAll("[data-must-equal]")) {
  guarded.form.querySelector("[data-guarded]").disabled = guarded.value !== guarded.dataset.mustEqual;
}

// A second click on a submit button must not send the form twice; the button wakes up again when the page is restored.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button && button.name !== "theme" && !event.target.hasAttribute("data-hx-post")) {
    setTimeout(() => (button.disabled = true));
  }
});

addEventListener("pageshow", (event) => {
  if (event.persisted) {
    for (const button of document.querySelectorAll("button[type=submit]:disabled:not([data-guarded])")) {
      button.disabled = false;
    }
  }
});

// The code below a form does what was typed so far. The server makes it, and does nothing else when it is asked so.
const CURL_AFTER_MS = 250;
const curlTimers = new WeakMap();

async function showCurl(form) {
  const code = document.getElementById(form.dataset.curl);
  if (!code?.closest("details")?.open) {
    return;
  }
  const address = new URL(form.getAttribute("action") || location.pathname, location.href);
  const isGet = form.method === "get";
  if (isGet) {
    address.search = new URLSearchParams(new FormData(form)).toString();
  }
  try {
    const answer = await fetch(address, {
      method: form.method,
      body: isGet ? undefined : new FormData(form),
      headers: { "X-Wants": "curl" },
    });
    if (answer.ok && answer.headers.get("Content-Type")?.startsWith("application/json")) {
      const { curl, python, command } = await answer.json();
      code.textContent = curl;
      document.getElementById(`${code.id}-python`).textContent = python;
      document.getElementById(`${code.id}-command`).textContent = command;
    }
  } catch {
    // Without the server the code stays as it was.
  }
}

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form[data-curl]");
  if (form) {
    // Rows of a list share their code: it is about the row that was changed last.
    for (const other of document.querySelectorAll(`form[data-curl="${form.dataset.curl}"][data-touched]`)) {
      delete other.dataset.touched;
    }
    form.dataset.touched = "true";
    clearTimeout(curlTimers.get(form));
    curlTimers.set(form, setTimeout(() => showCurl(form), CURL_AFTER_MS));
  }
});

// `toggle` does not bubble.
document.addEventListener(
  "toggle",
  (event) => {
    const id = event.target.open && event.target.matches(".as-code") && event.target.querySelector("code")?.id;
    const form = id && document.querySelector(`form[data-curl="${id}"][data-touched]`);
    if (form) {
      showCurl(form);
    }
  },
  true,
);

// A page that answered with errors puts the cursor into the first wrong field.
document.querySelector('main [aria-invalid="true"]')?.focus();
