"use strict";
(() => {
// All texts are foreign: they enter the page through textContent alone.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const make = (tag, text, parent) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
};
const best = data.ask === "best";
const place = `rmcalib-label-${data.key}`;
const bare = (object) => Object.assign(Object.create(null), object);  // a person may be called "constructor"
const fresh = () => ({person: "", labels: bare(), undo: bare()});
let state = fresh();
let index = 0, current = 0;

const warn = (text) => { at("warning").textContent = text; at("warning").hidden = !text; };
// Another tab may have the same page: what it kept is read before every change.
const load = () => {
  try {
    const kept = {...fresh(), ...JSON.parse(localStorage.getItem(place) || "null")};
    return {...kept, labels: bare(kept.labels), undo: bare(kept.undo)};
  } catch { return state; }
};
let lost = false;
const keep = () => {
  try { localStorage.setItem(place, JSON.stringify(state)); lost = false; }
  catch { lost = true; warn("This browser keeps nothing: save your labels before you close the page."); }
};
const latest = () => { if (!lost) state = {...load(), person: state.person}; };
state = load();
addEventListener("beforeunload", (event) => { if (lost) event.preventDefault(); });
addEventListener("storage", (event) => { if (event.key === place) { latest(); draw(); } });
const mine = () => (state.labels[state.person] ||= {});
const undone = () => (state.undo[state.person] ||= []);

// Markdown, as far as it helps reading: code, headings, bold.
const inline = (text, parent) => {
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) make("code", part.slice(1, -1), parent);
    else if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) make("strong", part.slice(2, -2), parent);
    else if (part) parent.append(document.createTextNode(part));
  }
};
const show = (text, parent) => {
  text.split(/^(```[^\n]*\n[\s\S]*?(?:\n```[ \t]*$|$(?![\s\S])))/m).forEach((block) => {
    if (block.startsWith("```")) {
      make("code", block.replace(/^```[^\n]*\n/, "").replace(/\n?```[ \t]*$/, ""), make("pre", undefined, parent));
      return;
    }
    for (const paragraph of block.split(/\n{2,}/)) {
      if (!paragraph.trim()) continue;
      const heading = paragraph.match(/^#{1,6} +([^\n]+)$/);
      if (heading) make("strong", heading[1], make("p", undefined, parent));
      else inline(paragraph.replace(/^\n|\n$/g, ""), make("p", undefined, parent));
    }
  });
};

const complete = (answer, item) => answer === "s" || (best ? answer !== undefined : answer && Object.keys(answer).length === item.responses.length);
const answered = (place) => data.items[place].fixed || complete(mine()[place], data.items[place]);
const next = (from) => {
  for (let i = 0; i < data.items.length; i++) {
    const place = (from + i) % data.items.length;
    if (!answered(place)) return place;
  }
  return -1;
};
const button = (text, act, parent) => { const one = make("button", text, parent); one.type = "button"; one.addEventListener("click", act); return one; };

const marks = {};
const none = {text: "", responses: []};  // what is shown after the last prompt, so that no key changes a label
const shown = () => data.items[index] || none;
const draw = () => {
  const item = shown(), answer = mine()[index], total = data.items.length;
  const done = data.items.filter((_, place) => answered(place)).length;
  at("progress").textContent = `${done} of ${total} done${item === none ? "" : `, this is number ${index + 1}`}`;
  at("done").max = total; at("done").value = done;
  at("question").textContent = done === total ? "All prompts are done. Save your labels."
    : best ? "Which response is the best?" : item.responses.length > 1 ? "Is each response correct?" : "Is the response correct?";
  at("prompt").replaceChildren(); show(item.text, at("prompt"));
  at("responses").replaceChildren();
  item.responses.forEach((one, number) => {
    const card = make("section", undefined, at("responses"));
    card.className = "response"; card.setAttribute("aria-label", `Response ${number + 1}`);
    const said = best ? undefined : (answer || {})[one.response];
    if (best && answer === one.response) card.classList.add("chosen");
    if (!best && number === current && item.responses.length > 1) card.classList.add("current");
    const bar = make("div", undefined, card); bar.className = "bar";
    if (best) button(`${number + 1} is the best`, () => choose(number), bar).setAttribute("aria-pressed", String(answer === one.response));
    else [["Correct", 1], ["Wrong", 0]].forEach(([text, value]) =>
      button(text, () => mark(number, value), bar).setAttribute("aria-pressed", String(said === value)));
    show(one.text ?? `Response ${one.response} (its text is not in the file)`, card);
    if (one.text === "") make("p", "(empty)", card);
  });
  for (const name of ["t", "s"]) marks[name]?.setAttribute("aria-pressed", String(answer === name));
  scrollTo(0, 0);
};
const record = (answer) => {
  latest();
  undone().push([index, mine()[index]]);
  mine()[index] = answer;
  keep();
};
const go = (place) => { index = place < 0 ? data.items.length : place; current = 0; draw(); };
const advance = () => go(next(index + 1));
const choose = (number) => { const one = shown().responses[number]; if (one) { record(one.response); advance(); } };
const mark = (number, value) => {
  const item = shown(), before = mine()[index];
  if (item === none) return;
  record({...(before && before !== "s" ? before : {}), [item.responses[number].response]: value});
  const open = item.responses.findIndex((one) => !(one.response in mine()[index]));
  if (open < 0) advance(); else { current = open; draw(); }
};
const undo = () => {
  latest();
  const last = undone().pop();
  if (!last) return;
  [index] = last; current = 0;
  if (last[1] === undefined || last[1] === null) delete mine()[index]; else mine()[index] = last[1];
  keep(); draw();
};
const move = (by) => { const total = data.items.length; go(shown() === none ? (by < 0 ? total - 1 : 0) : (index + by + total) % total); };
const answer = (said) => { if (shown() !== none) { record(said); advance(); } };
const actions = {
  t: ["Tie (t)", () => { if (best) answer("t"); }],
  s: ["Skip (s)", () => answer("s")],
  u: ["Undo (u)", undo],
};
for (const [name, [text, act]] of Object.entries(actions)) if (best || name !== "t") marks[name] = button(text, act, at("actions"));
button("Previous", () => move(-1), at("actions"));
button("Next", () => move(1), at("actions"));
at("keys").textContent = `${best ? "1 to 9: this response is the best. t: tie." : "c: correct. w: wrong."} s: skip. u: undo. Arrows: previous and next. Labels are kept in this browser until you save them.`;
document.addEventListener("keydown", (event) => {
  // A key that is held down repeats itself, and would label one prompt after the other.
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
  const key = event.key.toLowerCase();
  if (best && /^[1-9]$/.test(key)) choose(Number(key) - 1);
  else if (!best && (key === "c" || key === "w")) mark(current, key === "c" ? 1 : 0);
  else if (key in actions) actions[key][1]();
  else if (key === "arrowleft") move(-1);
  else if (key === "arrowright") move(1);
  else return;
  event.preventDefault();
});

const rows = () => {
  const found = [];
  const add = (item, one, label, person) => found.push({prompt: item.prompt, response: one.response, label, ...item.about, ...one.about, ...(one.text && {response_text: one.text}), ask: data.ask, person});
  data.items.forEach((item, place) => {
    if (item.fixed) return item.responses.forEach((one) => { if (one.label !== null) add(item, one, one.label, ""); });
    for (const [person, labels] of Object.entries(state.labels)) {
      const answer = labels[place];
      if (answer === undefined || answer === null || answer === "s") continue;
      item.responses.forEach((one) => {
        if (best) add(item, one, answer === "t" ? "tie" : Number(answer === one.response), person);
        else if (one.response in answer) add(item, one, answer[one.response], person);
      });
    }
  });
  return found;
};
at("save").addEventListener("click", () => {
  const lines = rows();
  if (!lines.length) { warn("Nothing is labelled yet."); return; }
  warn(lost ? "This browser keeps nothing: save again before you close the page." : "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map((row) => JSON.stringify(row)).join("\n") + "\n"], {type: "application/x-ndjson"}));
  link.download = "labels.jsonl";
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  const prompts = new Set(lines.map((row) => row.prompt)).size;
  at("progress").textContent = `Saved ${prompts} prompts as labels.jsonl, where your browser saves files ("labels (1).jsonl" if there was one before).`;
});
at("person").value = state.person;
at("person").addEventListener("keydown", (event) => { if (event.key === "Enter") at("person").blur(); });
at("person").addEventListener("change", () => {
  latest();
  const name = at("person").value.trim();
  // Labels that were given before a name was, are this person's.
  if (!state.person && name && !state.labels[name]) {
    state.labels[name] = state.labels[""] || {}; state.undo[name] = state.undo[""] || [];
    delete state.labels[""]; delete state.undo[""];
  }
  state.person = name; keep();
  go(next(0));
});
go(next(0));
})();
