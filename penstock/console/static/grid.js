// The grid of rows: opens a cell and sorts numbers that are texts.
function openCell(params) {
  emitEvent(params.context.event, [params.data.n, params.column.getColId()]);
}
// Text nodes only: a cell's text is untrusted.
function markedCell(params) {
  const cell = document.createElement("span"), parts = String(params.value ?? "").split(params.mark);
  parts.forEach((part, number) => {
    if (number) cell.appendChild(document.createElement("mark")).textContent = params.mark;
    cell.append(part);
  });
  return cell;
}
function compareNumbers(a, b) {
  if (a === b) return 0;
  if (a === "" || a == null) return -1;
  if (b === "" || b == null) return 1;
  // Integers beyond 2^53 would lose digits as numbers.
  if (/^-?\d+$/.test(a) && /^-?\d+$/.test(b)) return BigInt(a) < BigInt(b) ? -1 : 1;
  return parseNumber(a) - parseNumber(b);
}
function parseNumber(text) {
  return { inf: Infinity, "-inf": -Infinity, nan: Infinity }[text] ?? Number(text);
}
