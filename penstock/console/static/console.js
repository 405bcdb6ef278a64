// Keys: 1-8 change the page, d switches light and dark, / goes to the box that finds a message, ? lists the keys.
function shortNumber(n) {
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(n) >= unit) return `${+(n / unit).toPrecision(3)}${letter}`;
  return `${+n.toPrecision(3)}`;
}
// A canvas does not inherit colors, and no single grey has a contrast of 4.5 in both themes.
const CHART_TEXT = { light: "#5c6673", dark: "#9aa4b1" };
function chartText() {
  return document.body.classList.contains("body--dark") ? CHART_TEXT.dark : CHART_TEXT.light;
}
function recolor(options) {
  for (const [key, value] of Object.entries(options ?? {}))
    if (key === "color" && Object.values(CHART_TEXT).includes(value)) options[key] = chartText();
    else if (typeof value === "object") recolor(value);
}
window.addEventListener("load", () => {
  new MutationObserver(() => {
    for (const element of document.querySelectorAll(".nicegui-echart")) {
      const chart = getElement(element.id.slice(1));
      recolor(chart?.options);
      chart?.update_chart();
    }
  }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
function switchDark() {
  Quasar.Dark.set(!Quasar.Dark.isActive);
  localStorage.setItem("penstock-dark", Quasar.Dark.isActive);
}
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.isContentEditable || /INPUT|TEXTAREA|SELECT/.test(e.target.tagName)) return;
  const links = [...document.querySelectorAll(".top a[data-page]")];
  if (e.key >= "1" && e.key <= String(links.length)) links[Number(e.key) - 1].click();
  if (e.key === "d") switchDark();
  if (e.key === "?") showKeys();
  if (e.key === "/") {
    e.preventDefault();
    document.querySelector(".find input")?.focus();
  }
});
const KEYS = [
  ["/", "find a message"], ["d", "light or dark"], ["?", "this list"], ["Tab, Enter", "move to a control, use it"],
  ["Ctrl-Enter", "run the query (SQL)"], ["Ctrl-Space", "complete a name (SQL)"], ["Esc", "close a list or this window"],
];
function showKeys() {
  let dialog = document.querySelector("dialog.keys");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "keys";
    dialog.setAttribute("aria-label", "keys");
    const pages = [...document.querySelectorAll(".top a[data-page]")].map((link, number) => [`${number + 1}`, link.textContent]);
    const rows = [...pages, ...KEYS].map(([key, meaning]) => {
      const row = document.createElement("div"), name = document.createElement("kbd");
      name.textContent = key;
      row.append(name, meaning);
      return row;
    });
    const heading = document.createElement("h2"), close = document.createElement("button");
    heading.textContent = "Keys";
    close.textContent = "close";
    close.className = "link";
    close.addEventListener("click", () => dialog.close());
    dialog.append(heading, ...rows, close);
    document.querySelector("main, .nicegui-content").append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}
function copyText(text) {
  // Without TLS a browser has no clipboard, except on this machine: then the text can be copied by hand.
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => Quasar.Notify.create({ message: "copied", timeout: 1500 }));
  else prompt("Copy this text", text);
}
document.addEventListener("click", (e) => {
  const copied = e.target.closest("[data-copy]");
  if (copied) copyText(copied.dataset.copy);
});
window.addEventListener("load", () => {
  const stored = localStorage.getItem("penstock-dark");
  if (stored !== null) Quasar.Dark.set(stored === "true");
});

const measured = new WeakSet();
const resized = new ResizeObserver(() => completeLater());
let completion = 0;

// At most five times a second: pages change every second, and measuring lays them out.
function completeLater() {
  completion ||= setTimeout(() => { completion = 0; completeAccessibility(); }, 200);
}
function completeAccessibility() {
  // Scrollable areas take the focus, so that the keyboard scrolls them; others stay out of the tab order.
  for (const area of document.querySelectorAll(".wide, .tail, .timeline, pre, .schema, .cm-tooltip-autocomplete ul")) {
    const scrolls = area.scrollWidth > area.clientWidth || area.scrollHeight > area.clientHeight;
    if (scrolls) area.tabIndex = 0;
    else area.removeAttribute("tabindex");
    area.classList.toggle("scrolls-sideways", area.scrollWidth > area.clientWidth + 1);
    for (const element of [area, ...area.children]) {
      if (!measured.has(element)) resized.observe(element);
      measured.add(element);
    }
  }
  document.querySelector(".q-loading-bar")?.setAttribute("aria-label", "loading");  // Quasar 2 gives it no name
}
window.addEventListener("load", () => {
  // Vue changes the text of an element in place (characterData). Sizes change without any change of
  // the document, too: styles that load late, panels that open, fonts.
  new MutationObserver(completeLater).observe(document.body, { childList: true, characterData: true, subtree: true });
  document.fonts.addEventListener("loadingdone", completeLater);
  window.addEventListener("resize", completeLater);
  completeLater();
});
