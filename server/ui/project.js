// @ts-check
/** The page of a project: its canvas. */

import { signIn } from "./chat-api.js";
import { byId } from "./chat-dom.js";
import { noticeFor, statusText } from "./chat-notice.js";
import { labelOf } from "./canvas-state.js";
import { Project } from "./canvas-project.js";
import { CanvasView } from "./canvas-view.js";
import { isUlid, newUlid } from "./turnwire-identity.js";

const PROBE_MS = 5000;
/** Where the project is kept that was open last: the server has no list of them. */
const LAST = "turnwire.project";

const at = {
  status: byId("status", HTMLElement),
  statusText: byId("status-text", HTMLElement),
  notice: byId("notice", HTMLElement),
  trouble: byId("trouble", HTMLElement),
  counts: byId("counts", HTMLElement),
  empty: byId("canvas-empty", HTMLElement),
  add: byId("add", HTMLButtonElement),
  remove: byId("remove", HTMLButtonElement),
  fit: byId("fit", HTMLButtonElement),
  fresh: byId("fresh", HTMLButtonElement),
  spoken: byId("spoken", HTMLElement),
  dialog: byId("name-dialog", HTMLDialogElement),
  name: byId("name", HTMLInputElement),
  cancel: byId("name-cancel", HTMLButtonElement),
};

if (!isUlid(location.hash.slice(1))) history.replaceState(null, "", `#${lastProject() || newUlid()}`);
localStorage.setItem(LAST, location.hash.slice(1));
const project = new Project(location.hash.slice(1));
/** What to do with the name that is asked for. @type {(name: string) => void} */
let named = () => {};
let shownNotice = "";
let fitted = false;

const view = new CanvasView(/** @type {any} */ (document.getElementById("canvas")), {
  add: (place) => askName("", (label) => void project.add(label, rounded(place))),
  move: async (id, to) => {
    const node = project.view.nodes.get(id);
    if (node && !project.unanswered.some((frame) => "node" in frame && "id" in frame.node && frame.node.id === id)) {
      await project.move(node, to);
      await movedOn(id, to);
    }
  },
  rename: (id) => {
    const node = project.view.nodes.get(id);
    if (node) askName(labelOf(node), (label) => void project.rename(node, label));
  },
  join: (source, target) => void project.join(source, target),
  remove: (nodeIds, edgeIds) => void project.remove(nodeIds, edgeIds),
  say: (text) => (at.spoken.textContent = text),
});

/** While a move was on its way, the node may have been moved further. @param {string} id @param {{x: number, y: number}} to */
async function movedOn(id, to) {
  const latest = view.placeOf(id);
  const node = project.view.nodes.get(id);
  const further = latest && (Math.abs(latest.x - to.x) > 1 || Math.abs(latest.y - to.y) > 1);
  if (!further || !node || view.holds(id) || project.trouble) {
    if (!view.holds(id)) view.settle(id, project.view);
    return;
  }
  const next = rounded(latest);
  await project.move(node, next);
  await movedOn(id, next);
}

/** @param {{x: number, y: number}} point */
function rounded({ x, y }) {
  return { x: Math.round(x), y: Math.round(y) };
}

/** @param {string} old @param {(name: string) => void} then */
function askName(old, then) {
  named = then;
  at.name.value = old;
  at.dialog.returnValue = "";
  at.dialog.showModal();
  at.name.select();
}

/** Another, empty project; the page is loaded anew for it. */
function begin() {
  location.hash = newUlid();
}

function lastProject() {
  const id = localStorage.getItem(LAST) ?? "";
  return isUlid(id) ? id : "";
}

let scheduled = false;

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    show();
  });
}

function show() {
  const { nodes, edges } = project.view;
  view.show(project.view);
  if (project.whole && !fitted) {
    fitted = true;
    view.fit();
  }
  const { status } = project;
  at.status.dataset.phase = status.phase;
  const text = statusText(status);
  if (at.statusText.textContent !== text) at.statusText.textContent = text;
  at.counts.textContent = `${nodes.size} ${nodes.size === 1 ? "node" : "nodes"}, ${edges.size} ${edges.size === 1 ? "edge" : "edges"}`;
  at.empty.hidden = !project.whole || nodes.size > 0;
  at.trouble.hidden = project.trouble === "";
  at.trouble.textContent = project.trouble;
  showNotice();
}

function showNotice() {
  const { status } = project;
  const key = `${status.phase} ${status.code} ${status.reason}`;
  if (key === shownNotice) return;
  shownNotice = key;
  const notice = noticeFor(status, {
    retry: () => project.retry(),
    takeOver: () => project.takeOver(),
    begin,
    signIn: async (token) => {
      await signIn(token);
      project.retry();
    },
  });
  at.notice.hidden = notice === null;
  at.notice.replaceChildren(...(notice ?? []));
}

at.add.addEventListener("click", () => {
  askName("", (label) => void project.add(label, rounded(view.room)));
});
at.remove.addEventListener("click", () => view.removeSelected());
at.fit.addEventListener("click", () => view.fit());
at.fresh.addEventListener("click", begin);
at.cancel.addEventListener("click", () => at.dialog.close());
at.dialog.addEventListener("close", () => {
  const name = at.name.value.trim();
  if (at.dialog.returnValue === "save" && name !== "") named(name);
});
setInterval(() => document.visibilityState === "visible" && project.probe(), PROBE_MS);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && project.wake());
addEventListener("online", () => project.wake());
addEventListener("offline", () => project.doubt());
addEventListener("hashchange", () => location.reload());

project.subscribe(schedule);
project.open();
