// Turns a [data-tabs] block whose children are titled sections into tabs (WAI-ARIA tab pattern, arrow keys, Home, End).
// Without scripts the sections simply stand one below the other. The chosen language is remembered for the next page.

const REMEMBERED = "highwater.language";

function recall() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null; // storage may be switched off; the first tab is a fine start
  }
}

function remember(name) {
  try {
    localStorage.setItem(REMEMBERED, name);
  } catch {
    // storage may be switched off; nothing else depends on it
  }
}

function build(block) {
  const panels = [...block.querySelectorAll("[data-tab]")];
  const list = document.createElement("div");
  list.className = "tab-list";
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", block.dataset.tabs);

  const tabs = panels.map((panel) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `${panel.id}-tab`;
    tab.textContent = panel.dataset.title;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    panel.tabIndex = 0;
    list.append(tab);
    return tab;
  });

  function select(index, focus) {
    tabs.forEach((tab, position) => {
      const chosen = position === index;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      panels[position].hidden = !chosen;
    });
    if (focus) {
      tabs[index].focus();
      remember(panels[index].dataset.tab);
    }
  }

  list.addEventListener("click", (event) => {
    const index = tabs.indexOf(event.target);
    if (index >= 0) {
      select(index, true);
    }
  });

  list.addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement);
    const next = {
      ArrowRight: (now + 1) % tabs.length,
      ArrowLeft: (now + tabs.length - 1) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      select(next, true);
    }
  });

  block.prepend(list);
  block.dataset.built = "true";
  const remembered = panels.findIndex((panel) => panel.dataset.tab === recall());
  select(Math.max(remembered, 0), false);
}

function buildAll() {
  document.querySelectorAll("[data-tabs]:not([data-built])").forEach(build);
}

buildAll();
document.addEventListener("htmx:after:process", buildAll); // blocks that htmx swapped in
