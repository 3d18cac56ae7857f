// Enhancements of the pages. Without JavaScript, links and forms do the same.
// Names of functions are only used as text: never as HTML, never in a script.

const main = () => document.getElementById("main");

// ---- Zoom and sort: fetch the new page and replace the main part, without a navigation.

let latest = 0;

async function swap(url, { push = true, focus = () => null } = {}) {
  const turn = ++latest;
  main().setAttribute("aria-busy", "true");
  let answer;
  try {
    answer = await fetch(url, { headers: { Accept: "text/html" } });
  } catch {
    location.assign(url);
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (turn !== latest) return; // a later click has taken over
  const found = page.getElementById("main");
  if (!found) {
    location.assign(url);
    return;
  }
  document.title = page.title;
  for (const { className } of main().querySelectorAll("details[open]")) {
    const same = className && found.querySelector(`details.${className}`);
    if (same) same.open = true;
  }
  main().replaceWith(document.adoptNode(found));
  if (push) history.pushState(null, "", url);
  enhance();
  const target = focus();
  if (target !== false) (target ?? main()).focus({ preventScroll: true });
}

addEventListener("popstate", () => {
  if (!location.hash) swap(location.href, { push: false }); // else a link within the page was followed
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const href = link.getAttribute("href") ?? "";
  const url = new URL(href.baseVal ?? href, location.href);
  if (event.altKey && link.matches(".flame > svg > a")) {
    event.preventDefault();
    showTip(link, event.clientX, event.clientY);
    pinTip();
    return;
  }
  if (link.closest(".flame svg") || link.matches(".where a")) {
    event.preventDefault();
    hideTip();
    swap(url, { focus: () => callOf(url.searchParams.get("root")) });
  } else if (link.matches("[data-swap]")) {
    event.preventDefault();
    // Several links may lead to the same page.
    const same = (other) => other.getAttribute("href") === href && other.textContent === link.textContent;
    swap(url, { focus: () => [...document.querySelectorAll("[data-swap]")].find(same) });
  }
});

// ---- Flame graph: the Tab key reaches one call; the arrow keys move to its neighbours.

const calls = () => [...document.querySelectorAll(".flame > svg > a")];

function callOf(key) {
  return calls().find((call) => keyOf(call) === (key || "0")) ?? calls()[0];
}

function keyOf(call) {
  return new URLSearchParams(call.getAttribute("href")).get("root");
}

function placeOf(call) {
  const box = call.firstElementChild;
  const [left, top, width] = ["x", "y", "width"].map((name) => parseFloat(box.getAttribute(name)));
  return { left, top, right: left + width };
}

const EDGE = 1e-3; // percent of the width

function neighbour(call, key) {
  const from = placeOf(call);
  const others = calls().map((other) => ({ other, ...placeOf(other) }));
  const rows = [...new Set(others.map(({ top }) => top))].sort((a, b) => a - b);
  const row = rows[rows.indexOf(from.top) + { ArrowDown: 1, ArrowUp: -1 }[key]];
  const inRow = (top) => others.filter((place) => place.top === top).sort((a, b) => a.left - b.left);
  if (key === "ArrowDown" || key === "ArrowUp") {
    // The caller is above a call or below it, as the layout is: it is the box around where the call begins.
    const near = inRow(row);
    const caller = near.find(({ left, right }) => left < from.left + EDGE && right > from.left + EDGE);
    return (caller ?? near.find(({ left }) => left > from.left - EDGE && left < from.right - EDGE))?.other;
  }
  const same = inRow(from.top);
  const at = same.findIndex(({ other }) => other === call);
  return same[at + { ArrowRight: 1, ArrowLeft: -1 }[key]]?.other;
}

document.addEventListener("keydown", (event) => {
  const call = event.target.closest?.(".flame > svg > a");
  if (!call) return;
  if (event.key === "Escape") {
    if (isPinned) return hideTip();
    hideTip();
    document.querySelector(".where .out")?.click();
  } else if (event.key.startsWith("Arrow")) {
    event.preventDefault();
    const next = neighbour(call, event.key);
    if (!next) return;
    call.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
});

// ---- Tooltip: the browser's own is slow, doesn't appear with the keyboard, and can't be copied. Pinned, it stays
// where it is, with its text selected.

let isPinned = false;

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true"); // the call's aria-label has the same text
document.body.append(tip);

function hideTip() {
  isPinned = false;
  tip.classList.remove("pinned");
  tip.hidden = true;
}

function pinTip() {
  isPinned = true;
  tip.classList.add("pinned");
  getSelection().selectAllChildren(tip);
  navigator.clipboard?.writeText(tip.textContent).catch(() => {}); // only there with HTTPS; else Ctrl+C copies
}

function showTip(call, x, y) {
  tip.textContent = call.getAttribute("aria-label");
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 22 + height > innerHeight ? y - height - 12 : y + 22}px`;
}

document.addEventListener("pointermove", (event) => {
  if (isPinned) return;
  const call = event.target.closest?.(".flame > svg > a, .heat svg > a");
  if (call) showTip(call, event.clientX, event.clientY);
  else hideTip();
});
document.addEventListener("focusin", (event) => {
  if (!event.target.matches?.(".flame > svg > a:focus-visible")) return hideTip();
  const { left, top } = event.target.getBoundingClientRect();
  showTip(event.target, Math.max(left, 0), top);
});
addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("pointerdown", (event) => {
  if (isPinned && !tip.contains(event.target)) hideTip();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, select")) return;
  if (event.key === "c" && !tip.hidden) pinTip();
  if (event.key === "Escape" && isPinned) hideTip();
});

// ---- Timeline: drag to select a time, in whole steps. The fields and the links below it do the same.

let brush = null; // while a pointer is down: the plot, where it began, and the drawn rectangle
const FINGER = 10; // pixels: a finger that moves less along the timeline only taps on it

function stepUnder(plot, event) {
  const { left, width } = plot.getBoundingClientRect();
  const count = Number(plot.dataset.count);
  return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - left) / width) * count)));
}

function drawBrush(to) {
  const [first, last] = [Math.min(brush.from, to), Math.max(brush.from, to)];
  const step = 1000 / Number(brush.plot.dataset.count);
  brush.first = first;
  brush.last = last;
  brush.box.setAttribute("x", first * step);
  brush.box.setAttribute("width", (last - first + 1) * step);
}

function dropBrush() {
  brush?.box.remove();
  brush = null;
}

document.addEventListener("pointerdown", (event) => {
  const plot = event.target.closest?.(".timeline > svg");
  if (!plot || event.button || !event.isPrimary) return;
  event.preventDefault(); // no selection of text
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  box.setAttribute("class", "brush");
  box.setAttribute("height", "100");
  plot.append(box);
  plot.setPointerCapture(event.pointerId);
  brush = { plot, box, from: stepUnder(plot, event), x: event.clientX, isMoved: event.pointerType !== "touch" };
  if (brush.isMoved) drawBrush(brush.from);
});
document.addEventListener("pointermove", (event) => {
  if (!brush) return;
  brush.isMoved ||= Math.abs(event.clientX - brush.x) >= FINGER;
  if (brush.isMoved) drawBrush(stepUnder(brush.plot, event));
});
document.addEventListener("pointercancel", dropBrush);
document.addEventListener("pointerup", () => {
  if (!brush?.isMoved) return dropBrush();
  const [begin, seconds] = [Number(brush.plot.dataset.begin), Number(brush.plot.dataset.seconds)];
  const written = (step) => `${new Date((begin + step * seconds) * 1000).toISOString().slice(0, 19)}Z`;
  const url = new URL(location.href);
  url.searchParams.set("from", written(brush.first));
  url.searchParams.set("to", written(brush.last + 1));
  for (const name of ["last", "root"]) url.searchParams.delete(name);
  dropBrush();
  swap(url);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") dropBrush();
});

// ---- Search: mark matching calls while the user types; the server computes the sum over all stacks.

document.addEventListener("input", (event) => {
  if (event.target.id !== "search") return;
  const sought = event.target.value.toLowerCase();
  for (const box of document.querySelectorAll(".flame > svg > a > svg")) {
    const name = box.parentNode.getAttribute("aria-label").split("\n")[0].toLowerCase();
    const isHit = sought && name.includes(sought);
    box.classList.toggle("hit", Boolean(isHit));
    box.classList.toggle("miss", Boolean(sought && !isHit));
  }
});

// ---- Forms: leave out empty fields; only those of a base mean something when they are empty.

document.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) {
    if (value === "" && !name.startsWith("base_")) formData.delete(name);
  }
});

// ---- Live: the server tells when a service has a newer profile.

let stream = null;

function listen() {
  const live = document.querySelector("[data-events]");
  const url = live && new URL(live.dataset.events, location.href).href;
  if (stream && stream.url === url && stream.readyState !== EventSource.CLOSED) return;
  stream?.close();
  stream = url && new EventSource(url);
  stream?.addEventListener("profile", ({ data }) => {
    if (document.querySelector("[data-events]")?.dataset.newest !== data) refresh();
  });
  stream?.addEventListener("error", ({ target }) => {
    // The server refuses more streams: look again without one.
    if (target.readyState === EventSource.CLOSED) setTimeout(refresh, 30_000);
  });
}

// Show the newest profile, unless someone is filling in a form or selects a time; a call that has the focus keeps it.
function refresh() {
  const active = document.activeElement;
  if (!document.querySelector("[data-events]") || brush || active?.closest("form, details")) return;
  const key = active?.closest(".flame > svg > a") && keyOf(active);
  swap(location.href, { push: false, focus: () => (key ? callOf(key) : false) });
}

// ---- Open a file: drop one anywhere on the page with the form, or two, of which the older one is the base.

const dropForm = () => document.querySelector("form.drop");

document.addEventListener("dragover", (event) => {
  if (!dropForm()) return;
  event.preventDefault();
  dropForm().classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) dropForm()?.classList.remove("over"); // else it is still over the page
});
document.addEventListener("drop", (event) => {
  const form = dropForm();
  if (!form) return;
  event.preventDefault();
  form.classList.remove("over");
  const files = [...event.dataTransfer.files].sort((a, b) => b.lastModified - a.lastModified);
  if (!files.length || files.length > 2) {
    form.querySelector("[role=status]").textContent = "Drop one file, or two to compare them.";
    return;
  }
  for (const [at, field] of [form.elements.file, form.elements.base].entries()) {
    const taken = new DataTransfer();
    if (files[at]) taken.items.add(files[at]);
    field.files = taken.files;
  }
  form.requestSubmit();
});

// ---- PNG: the browser draws the SVG file that the server makes.

async function savePng(file) {
  const image = new Image();
  image.src = file;
  await image.decode();
  const scale = Math.min(2, 30_000 / image.naturalHeight); // no browser has larger canvases
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * scale;
  canvas.height = image.naturalHeight * scale;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${document.querySelector("h1").textContent}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function offerPng(link) {
  const button = document.createElement("button");
  button.className = "quiet";
  button.textContent = "PNG";
  button.addEventListener("click", () => savePng(link.href));
  link.after(button);
}

// ---- Set up a page, after it is loaded and after each swap.

function enhance() {
  document.querySelectorAll(".dropping").forEach((hint) => (hint.hidden = false));
  document.querySelectorAll("a.save").forEach(offerPng);
  listen();
  for (const box of document.querySelectorAll(".flame > svg > a > svg, .heat svg > a > svg")) {
    const title = box.querySelector("title");
    box.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  calls().forEach((call, at) => call.setAttribute("tabindex", at ? "-1" : "0"));
  for (const plot of document.querySelectorAll(".timeline")) plot.classList.add("brushed");
  for (const command of document.querySelectorAll(".command")) {
    if (!navigator.clipboard) break; // only there with HTTPS
    const button = document.createElement("button");
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(command.querySelector("code").textContent);
      button.textContent = "Copied";
    });
    command.append(button);
  }
}

enhance();
