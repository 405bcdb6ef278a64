// The SQL page: completion in the editor, the schema browser, and the browser's own history and saved queries.
const HISTORY_KEY = "penstock-sql-history", SAVED_KEY = "penstock-sql-saved", MAX_HISTORY = 50;
const sqlPage = { id: 0, catalog: { views: {}, topics: [], topic_columns: {}, functions: [] } };

function startSqlPage(id) {
  sqlPage.id = id;
  showStoredQueries();
  const component = getElement(id);
  component.editorPromise.then(async (editor) => {
    const CM = await import("nicegui-codemirror");
    editor.dispatch({
      effects: CM.StateEffect.appendConfig.of([
        CM.EditorState.languageData.of(() => [{ autocomplete: completeQuery }]),
        CM.EditorView.contentAttributes.of({ "aria-label": "query", "aria-multiline": "true", tabindex: "0" }),
        // Tab leaves the editor, so that the keyboard reaches the rest of the page.
        CM.Prec.highest(CM.keymap.of([{ key: "Tab", run: () => false }])),
      ]),
    });
    const followTheme = () => component.setTheme(document.body.classList.contains("body--dark") ? "githubDark" : "githubLight");
    new MutationObserver(followTheme).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    followTheme();
  });
}

// Completion: columns behind "view.", names of views behind FROM and JOIN, otherwise columns of the views that the query
// names; of all views while it names none, as the columns are often written first.
function completeQuery(context) {
  const { views, topics, topic_columns, functions } = sqlPage.catalog;
  const word = context.matchBefore(/[\w."]*/), text = context.state.doc.toString();
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const columnsOf = (name) => views[name] ?? (name.startsWith("topics.") ? topic_columns : null);
  const columnOptions = (columns) => Object.entries(columns).map(([label, detail]) => ({
    label, detail, type: "property", apply: /^[a-z_]\w*$/.test(label) && label !== "offset" ? label : `"${label}"`,
  }));
  const dot = word.text.lastIndexOf(".");
  if (dot >= 0) {
    const owner = word.text.slice(0, dot), from = word.from + dot + 1;
    if (owner === "topics") return { from, options: topics.map(topicOption), validFor: /^[\w."-]*$/ };
    const alias = text.match(new RegExp(`(?:\\b(?:from|join)\\s+|,\\s*)([\\w."]+)\\s+(?:as\\s+)?${owner.replace(/\W/g, "\\$&")}\\b`, "i"));
    const columns = columnsOf(owner) ?? (alias && columnsOf(alias[1]));
    return columns ? { from, options: columnOptions(columns), validFor: /^\w*$/ } : null;
  }
  const names = [...Object.keys(views).map((label) => ({ label, type: "type", detail: "view", boost: 1 })), ...topics.map((topic) => ({ ...topicOption(topic), label: `topics.${topic}`, apply: `topics.${topicOption(topic).apply}` }))];
  if (/\b(from|join)\s+[\w"]*$/i.test(text.slice(0, context.pos))) return { from: word.from, options: names, validFor: /^[\w."]*$/ };
  const columns = {};
  for (const [view, types] of Object.entries(views)) if (new RegExp(`\\b${view}\\b`).test(text)) Object.assign(columns, types);
  if (/\btopics\./.test(text)) Object.assign(columns, topic_columns);
  if (!Object.keys(columns).length) Object.assign(columns, topic_columns, ...Object.values(views));
  const calls = functions.map((label) => ({ label, type: "function", apply: `${label}(`, detail: "function" }));
  return { from: word.from, options: [...columnOptions(columns).map((option) => ({ ...option, boost: 2 })), ...names, ...calls], validFor: /^\w*$/ };
}
function topicOption(topic) {
  return { label: topic, type: "type", detail: "topic", apply: /^[a-z_]\w*$/.test(topic) ? topic : `"${topic}"` };
}

function insertIntoQuery(text) {
  const editor = getElement(sqlPage.id).editor;
  editor.dispatch(editor.state.replaceSelection(text));
  editor.focus();
}
function replaceQuery(text) {
  const editor = getElement(sqlPage.id).editor;
  editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
  editor.focus();
}
function queryText() {
  return getElement(sqlPage.id).editor.state.doc.toString();
}

function readStored(key) {
  try {
    const queries = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(queries) ? queries.filter((query) => typeof query?.text === "string") : [];
  } catch {
    return [];
  }
}
function writeStored(key, queries) {
  try {
    localStorage.setItem(key, JSON.stringify(queries));
  } catch {
    // The browser's storage is full or switched off: the list stays as it was.
  }
  showStoredQueries();
}
function rememberQuery(text, outcome) {
  const older = readStored(HISTORY_KEY).filter((query) => query.text !== text);
  writeStored(HISTORY_KEY, [{ text, outcome, at: new Date().toISOString().slice(0, 19).replace("T", " ") }, ...older].slice(0, MAX_HISTORY));
}
function saveQuery(name) {
  const text = queryText();
  if (!name.trim() || !text.trim()) return;
  writeStored(SAVED_KEY, [{ name: name.trim(), text }, ...readStored(SAVED_KEY).filter((query) => query.name !== name.trim())]);
}
function showStoredQueries() {
  for (const [key, name] of [[SAVED_KEY, "saved"], [HISTORY_KEY, "history"]]) {
    const list = document.querySelector(`[data-stored=${name}]`);
    if (!list) continue;
    const queries = readStored(key);
    list.replaceChildren(...queries.map((query, position) => storedRow(key, query, position)));
    if (!queries.length) list.textContent = name === "saved" ? "No saved queries in this browser." : "No queries yet in this browser.";
  }
}
function storedRow(key, query, position) {
  const row = document.createElement("div"), open = document.createElement("button"), remove = document.createElement("button");
  row.className = "stored-query";
  open.className = "query-text";
  open.title = query.text;
  open.append(query.name ?? query.text.replace(/\s+/g, " "));
  if (query.outcome) {
    const outcome = document.createElement("small");
    outcome.textContent = `${query.at} UTC, ${query.outcome}`;
    open.append(outcome);
  }
  open.addEventListener("click", () => replaceQuery(query.text));
  remove.textContent = "×";
  remove.setAttribute("aria-label", `remove ${query.name ?? "from the history"}`);
  remove.addEventListener("click", () => writeStored(key, readStored(key).filter((_, index) => index !== position)));
  row.append(open, remove);
  return row;
}

document.addEventListener("click", (e) => {
  const inserted = e.target.closest("[data-insert]");
  if (inserted) insertIntoQuery(inserted.dataset.insert);
});
document.addEventListener("input", (e) => {
  if (!e.target.matches("[data-filter-schema]")) return;
  const wanted = e.target.value.toLowerCase();
  for (const entry of document.querySelectorAll(".schema [data-name]")) entry.hidden = !entry.dataset.name.includes(wanted);
});
