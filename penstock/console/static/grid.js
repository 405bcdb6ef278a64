// The grid of rows: opens a cell, sorts numbers that are texts, marks a text in the cells.
function openCell(params) {
  emitEvent(params.context.event, [params.data.n, params.column.getColId()]);
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
function markedCell(params) {
  // Nodes instead of HTML: the texts come from senders.
  const cell = document.createElement("span"), text = params.value ?? "", mark = params.context.mark;
  let begin = 0, match;
  while (mark && (match = text.toLowerCase().indexOf(mark, begin)) >= 0) {
    cell.append(text.slice(begin, match));
    const marked = document.createElement("mark");
    marked.textContent = text.slice(match, (begin = match + mark.length));
    cell.append(marked);
  }
  cell.append(text.slice(begin));
  return cell;
}
