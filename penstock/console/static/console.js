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
  if (e.ctrlKey || e.metaKey || e.altKey || /INPUT|TEXTAREA|SELECT/.test(e.target.tagName)) return;
  const links = [...document.querySelectorAll(".top a[data-page]")];
  if (e.key >= "1" && e.key <= String(links.length)) links[Number(e.key) - 1].click();
  if (e.key === "d") switchDark();
  if (e.key === "/") {
    e.preventDefault();
    document.querySelector(".find input")?.focus();
  }
});
window.addEventListener("load", () => {
  const kept = localStorage.getItem("penstock-dark");
  if (kept !== null) Quasar.Dark.set(kept === "true");
});
