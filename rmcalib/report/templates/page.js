"use strict";
// The page's own script: sort tables, search prompts, and move a temperature. Texts are set as text, never as HTML.
(() => {
  const byId = (name) => document.getElementById(name);
  const data = JSON.parse(byId("data").textContent);
  const svgNames = "http://www.w3.org/2000/svg";

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  // Links open the section that they point to.
  function openTarget() {
    const wanted = decodeURIComponent(location.hash.slice(1));
    if (wanted.startsWith("prompt:")) return showPrompt(wanted.slice(7));
    const found = wanted && byId(wanted);
    if (found && found.tagName === "DETAILS") { found.open = true; found.scrollIntoView(); }
  }

  // Commands can be copied; where the browser forbids it, they are selected.
  for (const command of document.querySelectorAll(".command")) {
    const text = command.textContent, button = element("button", "Copy"), code = element("code");
    code.append(...command.childNodes); // each word is an element, so that lines break between words only
    button.type = "button";
    button.setAttribute("aria-label", `Copy: ${text}`);
    command.replaceChildren(code, button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch { getSelection().selectAllChildren(code); }
    });
  }

  // Tables.
  for (const table of document.querySelectorAll("table")) {
    table.querySelectorAll("thead th").forEach((head, place) => {
      const button = element("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const key = (row) => row.children[place].dataset.v ?? row.children[place].textContent;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          const [p, q] = [parseFloat(x), parseFloat(y)];
          if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q) || x.localeCompare(y);
          return p - q;
        });
        table.tBodies[0].append(...(falling ? rows.reverse() : rows));
      });
    });
  }

  // Labels are signs: 1 correct, 0 wrong, - unknown. A stratum's prompts stand for so many that the page leaves out.
  const weights = data ? data.strata.flatMap(([entries, weight]) => Array(entries).fill(weight)) : [];
  const prompts = data ? data.prompts.map(([id, category, rewards, labels, one, texts], place) => {
    const best = Math.max(...rewards), tied = rewards.filter((reward) => reward === best).length;
    return { id, category, rewards, labels, single: one === 1, texts, place, weight: weights[place], best, tied };
  }) : [];

  function probabilities(prompt, temperature) {
    const weights = prompt.rewards.map((one) => Math.exp((one - prompt.best) / temperature));
    const total = weights.reduce((sum, one) => sum + one, 0);
    return weights.map((one) => one / total);
  }

  for (const prompt of prompts) {
    prompt.p = probabilities(prompt, 1);
    prompt.sure = Math.max(...prompt.p);
    const first = prompt.rewards.indexOf(prompt.best);
    prompt.right = prompt.labels[first] === "1";
    prompt.known = prompt.labels.includes("1");
    if (!prompt.single) continue;
    // A tie of t responses counts as 1/t right.
    prompt.hit = prompt.rewards[prompt.labels.indexOf("1")] === prompt.best ? 1 / prompt.tied : 0;
  }

  // Prompts.
  const list = byId("prompts");
  let found = prompts, shown = 0;
  const format = (p) => (data.calibrated ? (p >= 0.001 ? p.toFixed(3) : p.toExponential(0)) : "");

  function promptEntry(prompt) {
    const item = element("li"), details = element("details"), summary = element("summary");
    const mark = prompt.known ? (prompt.right ? "✓ right" : "✗ wrong") : "not decided";
    const outcome = element("span", mark, prompt.known ? (prompt.right ? "good" : "bad") : "soft");
    const about = element("span", ` · ${data.categories[prompt.category]} · ${prompt.id}${data.calibrated ? ` · says ${format(prompt.sure)}` : ""}`);
    summary.append(outcome, about);
    if (prompt.texts) summary.append(element("span", ` · ${prompt.texts[0].slice(0, 80)}${prompt.texts[0].length > 80 ? "…" : ""}`, "soft"));
    details.append(summary);
    details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) fill(details, prompt); });
    item.append(details);
    return item;
  }

  function fill(details, prompt) {
    const link = element("a", "Link to this prompt");
    link.href = `#prompt:${encodeURIComponent(prompt.id)}`;
    details.append(link);
    if (prompt.texts) {
      const text = element("div", prompt.texts[0], "prompt-text");
      details.append(text);
    }
    const order = prompt.rewards.map((_, i) => i).sort((a, b) => prompt.rewards[b] - prompt.rewards[a]);
    for (const i of order) {
      const [words, tone, border] = { 1: ["✓ correct", "good", " right"], 0: ["✗ wrong", "bad", ""] }[prompt.labels[i]] ?? ["no label", "soft", " open"];
      const box = element("div", undefined, `response${border}`);
      box.append(element("strong", words, tone));
      box.append(element("span", `${data.calibrated ? ` · probability ${format(prompt.p[i])}` : ""} · reward ${prompt.rewards[i]}`, "soft"));
      box.append(element("p", prompt.texts ? prompt.texts[i + 1] : "No text in this page."));
      details.append(box);
    }
  }

  function more() {
    list.append(...found.slice(shown, shown + 50).map(promptEntry));
    shown = Math.min(found.length, shown + 50);
    byId("more").hidden = shown >= found.length;
  }

  const orders = {
    surprise: (a, b) => a.place - b.place,
    sure: (a, b) => b.sure - a.sure,
    unsure: (a, b) => a.sure - b.sure,
    id: (a, b) => (a.id < b.id ? -1 : 1),
  };

  function filter() {
    const words = byId("search").value.toLowerCase(), category = byId("category").value;
    const outcome = byId("outcome").value, least = parseFloat(byId("confidence").value) || 0;
    found = prompts.filter((one) =>
      (category === "" || one.category === Number(category)) &&
      (outcome === "" || (one.known && one.right === (outcome === "right"))) &&
      one.sure >= least &&
      (words === "" || one.id.toLowerCase().includes(words) || (one.texts || []).some((text) => text.toLowerCase().includes(words))));
    found.sort(orders[byId("order").value]);
    list.replaceChildren();
    shown = 0;
    more();
    const left = data.total - prompts.length;
    byId("found").textContent = `${found.length.toLocaleString("en")} of ${prompts.length.toLocaleString("en")} prompts` +
      (left > 0 ? `. This page has wrong choices, the least expected first, and a random part of the others; ${left.toLocaleString("en")} do not fit` : "") +
      (data.texts && data.texts < prompts.length ? `; ${data.texts.toLocaleString("en")} of them have their texts here, wrong ones first` : "") + ".";
  }

  function showPrompt(id) {
    const wanted = prompts.find((one) => one.id === id);
    if (!wanted || !list) return;
    byId("prompt-list").open = true;
    byId("filters").reset();
    found = [wanted];
    shown = 0;
    list.replaceChildren();
    more();
    list.querySelector("details").open = true;
    byId("found").textContent = "One prompt, by its link. Change a filter to see the others.";
    list.scrollIntoView();
  }

  if (list) {
    data.categories.forEach((name, i) => { const option = element("option", name); option.value = i; byId("category").append(option); });
    let waiting;
    byId("filters").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("more").addEventListener("click", more);
    filter();
  }

  // The temperature.
  const slider = byId("temperature");
  const single = prompts.filter((one) => one.single);
  const which = prompts.some((one) => /^-+$/.test(one.labels)) ? ", on the labelled prompts," : "";
  const percent = (value) => `${(100 * value).toFixed(1).replace(/^-0\.0$/, "0.0")}%`;

  function draw(name, attributes, parent) {
    const made = document.createElementNS(svgNames, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  function measure(temperature) {
    const bins = Array.from({ length: 10 }, () => ({ n: 0, says: 0, right: 0 }));
    let says = 0, right = 0, loss = 0, uniform = 0, n = 0;
    for (const one of single) {
      const weight = one.weight;
      const p = probabilities(one, temperature), sure = Math.max(...p), correct = one.labels.indexOf("1");
      n += weight;
      says += weight * sure;
      right += weight * one.hit;
      const total = one.rewards.reduce((sum, reward) => sum + Math.exp((reward - one.best) / temperature), 0);
      loss += weight * (Math.log(total) - (one.rewards[correct] - one.best) / temperature);
      uniform += weight * Math.log(one.rewards.length);
      const bin = bins[Math.min(9, Math.floor(sure * 10))];
      bin.n += weight; bin.says += weight * sure; bin.right += weight * one.hit;
    }
    return { says: says / n, right: right / n, kept: 1 - loss / uniform, n, bins };
  }

  // The points are drawn over the page's own figure, in its coordinates; the first ones are the figure's.
  const points = byId("first-choice-points"), band = byId("first-choice-band");
  const drawn = points ? [...points.childNodes] : [];

  function diagram(bins, n) {
    const [left, top, right, bottom] = data.diagram;
    points.replaceChildren();
    for (const bin of bins.filter((one) => one.n)) {
      const says = bin.says / bin.n, share = bin.right / bin.n;
      const place = { cx: left + says * (right - left), cy: bottom - share * (bottom - top), r: 2 + 10 * Math.sqrt(bin.n / n) };
      const point = draw("circle", { ...place, fill: "var(--accent)", "fill-opacity": 0.75 }, points);
      draw("title", {}, point).textContent = `${Math.round(bin.n)} prompts: says ${percent(says)}, right ${percent(share)}`;
    }
  }

  function set(key, text) {
    for (const one of document.querySelectorAll(`[data-key="${key}"]`)) {
      if (!one.dataset.first) one.dataset.first = one.textContent;
      one.textContent = text ?? one.dataset.first;
    }
  }

  function bar(kept, usable) {
    const svg = byId("information");
    if (!svg) return;
    const low = parseFloat(svg.dataset.low), unit = 600 / (1 - low);
    const value = Math.max(kept, low), box = byId("kept");
    box.setAttribute("x", value > 0 ? -low * unit : (value - low) * unit);
    box.setAttribute("width", Math.abs(value) * unit);
    box.setAttribute("fill", value > 0 ? "var(--accent)" : "var(--bad)");
  }

  let usable;
  function move(temperature) {
    const at = measure(temperature);
    usable ??= data.temperature ? measure(data.temperature).kept : measure(1).kept;
    byId("temperature-value").textContent = temperature.toPrecision(3);
    const gap = 100 * (at.says - at.right), one = Math.abs(temperature - 1) < 1e-9;
    const words = `${gap >= 0 ? "+" : "−"}${Math.abs(gap).toFixed(1)}`;
    byId("slider-numbers").textContent = `At T = ${temperature.toPrecision(3)}${which} it says ${percent(at.says)} and is right ${percent(at.right)}: gap ${words} points${data.total > prompts.length ? ", estimated from the prompts on this page" : ""}.`;
    set("says", one ? undefined : percent(at.says));
    set("gap", one ? undefined : `${words} points`);
    set("kept", one ? undefined : percent(at.kept));
    set("lost", one ? undefined : percent(usable - at.kept));
    bar(at.kept, usable);
    band.setAttribute("display", one ? "inline" : "none"); // it shows a calibrated model that is as sure as this one
    if (one) points.replaceChildren(...drawn); else diagram(at.bins, at.n);
  }

  if (slider && single.length) {
    byId("slider").hidden = false;
    if (data.repairs) {
      const place = Math.log10(data.temperature);
      if (Math.abs(place) > 2.5) { slider.min = Math.min(-3, place - 1); slider.max = Math.max(3, place + 1); }
      const mark = element("option");
      mark.value = place.toFixed(2);
      mark.label = "best T";
      byId("temperatures").append(mark);
      const button = byId("temperature-fitted");
      button.hidden = false;
      button.textContent = `Best T, ${data.temperature.toPrecision(3)}`;
      button.addEventListener("click", () => { slider.value = place; move(data.temperature); });
    }
    byId("temperature-one").addEventListener("click", () => { slider.value = 0; move(1); });
    slider.addEventListener("input", () => move(10 ** parseFloat(slider.value)));
    move(1);
  }

  addEventListener("hashchange", openTarget);
  openTarget();
})();
