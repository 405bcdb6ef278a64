// Keys: 1-7 change the page, d switches light and dark, / goes to the box that finds a message.
function shortNumber(n) {
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(n) >= unit) return `${+(n / unit).toPrecision(3)}${letter}`;
  return `${+n.toPrecision(3)}`;
}
function switchDark() {
  Quasar.Dark.set(!Quasar.Dark.isActive);
  localStorage.setItem("penstock-dark", Quasar.Dark.isActive);
}
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.isContentEditable || /INPUT|TEXTAREA|SELECT/.test(e.target.tagName)) return;
  const links = [...document.querySelectorAll(".top a[data-page]")];
  if (e.key >= "1" && e.key <= String(links.length)) links[Number(e.key) - 1].click();
  if (e.key === "d") switchDark();
  if (e.key === "/") {
    e.preventDefault();
    document.querySelector(".find input")?.focus();
  }
});
window.addEventListener("load", () => {
  const stored = localStorage.getItem("penstock-dark");
  if (stored !== null) Quasar.Dark.set(stored === "true");
});

function completeAccessibility() {
  // Scrollable areas take the focus, so that the keyboard scrolls them; others stay out of the tab order.
  for (const area of document.querySelectorAll(".wide, .tail, .timeline, pre, .schema, .cm-tooltip-autocomplete ul")) {
    const scrolls = area.scrollWidth > area.clientWidth || area.scrollHeight > area.clientHeight;
    if (scrolls) area.tabIndex = 0;
    else area.removeAttribute("tabindex");
  }
  document.querySelector(".q-loading-bar")?.setAttribute("aria-label", "loading");  // Quasar 2 gives it no name
}
window.addEventListener("load", () => {
  let timer = 0;
  // At most five times a second: pages change every second, and measuring lays them out.
  const later = () => { timer ||= setTimeout(() => { timer = 0; completeAccessibility(); }, 200); };
  new MutationObserver(later).observe(document.body, { childList: true, subtree: true });
  window.addEventListener("resize", later);
  later();
});
