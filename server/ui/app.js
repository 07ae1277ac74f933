// @ts-check
/** The page to talk on: puts the parts together and listens to the person. */

import { button, byId, make } from "./chat-dom.js";
import { Log } from "./chat-log.js";
import { noticeFor, statusText } from "./chat-notice.js";
import { ChatSession, signIn } from "./chat-session.js";
import { conversations, forget, keepPreferences, preferences, remember, titleFrom } from "./chat-store.js";
import { isUlid, newUlid } from "./turnwire.js";

const NEAR_PX = 80;

const at = {
  sidebar: byId("sidebar", HTMLElement),
  veil: byId("veil", HTMLElement),
  menu: byId("menu", HTMLButtonElement),
  list: byId("list", HTMLUListElement),
  fresh: byId("new", HTMLButtonElement),
  title: byId("title", HTMLElement),
  model: byId("model", HTMLButtonElement),
  modelName: byId("model-name", HTMLElement),
  status: byId("status", HTMLElement),
  statusText: byId("status-text", HTMLElement),
  scripted: byId("scripted", HTMLElement),
  notice: byId("notice", HTMLElement),
  scroller: byId("scroller", HTMLElement),
  latest: byId("latest", HTMLButtonElement),
  composer: byId("composer", HTMLFormElement),
  input: byId("input", HTMLTextAreaElement),
  send: byId("send", HTMLButtonElement),
  stop: byId("stop", HTMLButtonElement),
  spoken: byId("spoken", HTMLElement),
  dialog: byId("model-dialog", HTMLDialogElement),
  dialogModel: byId("model-input", HTMLInputElement),
  dialogReasoning: byId("reasoning", HTMLInputElement),
};

/** What was typed and not sent, of each conversation. @type {Map<string, string>} */
const drafts = new Map();
/** @type {ChatSession} */
let session;
let shownNotice = "";
let shownList = "";
let wasRunning = false;
/** Whether the newest message is to be kept in sight. */
let following = true;

const log = new Log(byId("log", HTMLElement), {
  ask: () => void session.ask(),
  resend: (question) => session.resend(question),
  withdraw: (question) => {
    session.withdraw(question);
    if (at.input.value === "") type(question.text);
  },
  decide: (id, decision) => void session.decide(id, decision),
  answer: (id, text) => void session.answer(id, text),
});

/** @param {string} id */
function open(id) {
  if (session?.id === id) return;
  if (session) {
    drafts.set(session.id, at.input.value);
    session.close();
  }
  log.clear();
  following = true;
  wasRunning = false;
  session = new ChatSession(id, schedule);
  type(drafts.get(id) ?? "");
  schedule();
  at.input.focus();
}

function openFromAddress() {
  const named = location.hash.slice(1);
  const id = isUlid(named) ? named : (conversations()[0]?.id ?? newUlid());
  if (id !== named) history.replaceState(null, "", `#${id}`);
  open(id);
}

function begin() {
  // An empty conversation is as new as another one.
  if (session && session.conversation.view.messages.length === 0 && session.waiting.length === 0)
    at.input.focus();
  else location.hash = newUlid();
  toggleSidebar(false);
}

// --- showing -------------------------------------------------------------------------------------

let scheduled = false;

/** Show once for all that changes within a frame. */
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    show();
  });
}

function show() {
  const { view, status } = session.conversation;
  log.show(view, session.waiting, session.refusal, status.phase === "online");
  showModel();
  showStatus();
  showList();
  const running = view.running !== null || view.queued.length > 0;
  at.stop.hidden = !running;
  at.send.disabled = at.input.value.trim() === "";
  at.send.hidden = running && at.send.disabled;
  if (wasRunning && !running)
    at.spoken.textContent = view.lastRun?.finishReason === "stopped" ? "The answer was stopped." : "The answer is finished.";
  wasRunning = running;
  if (following) at.scroller.scrollTop = at.scroller.scrollHeight;
  showFollowing();
}

function showModel() {
  const { view } = session.conversation;
  const known = conversations().find((entry) => entry.id === session.id);
  const model = view.running?.model ?? (preferences().model || view.lastRun?.model || known?.model || "");
  const title = known?.title || "New conversation";
  at.modelName.textContent = model || "Default model";
  at.title.textContent = title;
  at.scripted.hidden = !model.startsWith("script/");
  at.scripted.textContent =
    model === "script/demo"
      ? "No model is configured: the answers come from a built-in script, not from a language model."
      : "The answers come from a script, not from a language model.";
  document.title = known?.title ? `${title} · Turnwire` : "Turnwire";
}

function showStatus() {
  const { status } = session.conversation;
  at.status.dataset.phase = status.phase;
  const text = statusText(status);
  if (at.statusText.textContent !== text) at.statusText.textContent = text;
  if (status.phase === "waiting") setTimeout(schedule, 1000);
  const key = `${session.id} ${status.phase} ${status.code} ${status.reason}`;
  if (key === shownNotice) return; // do not take a button away from under a finger
  shownNotice = key;
  const notice = noticeFor(status, {
    retry: () => session.conversation.retry(),
    takeOver: () => session.conversation.takeOver(),
    begin: () => (location.hash = newUlid()),
    signIn: (token) => {
      signIn(token);
      session.conversation.retry();
    },
  });
  at.notice.hidden = notice === null;
  at.notice.replaceChildren(...(notice ?? []));
}

function showList() {
  const list = conversations();
  const key = JSON.stringify([session.id, list.map(({ id, title }) => [id, title])]);
  if (key === shownList) return;
  shownList = key;
  at.list.replaceChildren(
    ...list.map(({ id, title }) => {
      const current = id === session.id;
      const name = title || "Untitled";
      const link = make("a", { href: `#${id}`, title: name, ...(current ? { "aria-current": "page" } : {}) }, name);
      const remove = button("×", () => removeFromList(id), {
        "aria-label": `Remove ${name} from this list`,
        title: "Remove from this list",
      });
      return make("li", { "data-current": String(current) }, link, remove);
    }),
  );
}

/** @param {string} id */
function removeFromList(id) {
  forget(id);
  if (id === session.id) location.hash = conversations()[0]?.id ?? newUlid();
  showList();
}

function showFollowing() {
  const { scrollHeight, scrollTop, clientHeight } = at.scroller;
  at.latest.hidden = scrollHeight - scrollTop - clientHeight < NEAR_PX;
}

/** @param {boolean} open */
function toggleSidebar(open) {
  at.sidebar.dataset.open = String(open);
  at.menu.setAttribute("aria-expanded", String(open));
  at.veil.hidden = !open;
}

// --- listening -----------------------------------------------------------------------------------

/** @param {string} text */
function type(text) {
  at.input.value = text;
  fit();
  at.send.disabled = text.trim() === "";
}

/** Make the field as high as its text. */
function fit() {
  at.input.style.height = "auto";
  at.input.style.height = `${at.input.scrollHeight}px`;
}

function submit() {
  const text = at.input.value;
  if (text.trim() === "") return;
  const known = conversations().find((entry) => entry.id === session.id);
  remember(session.id, { usedAt: Date.now(), title: known?.title || titleFrom(text) });
  type("");
  following = true;
  session.send(text);
}

at.composer.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
at.input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
at.input.addEventListener("input", () => {
  fit();
  schedule();
});
at.stop.addEventListener("click", () => void session.stop());
at.fresh.addEventListener("click", begin);
at.menu.addEventListener("click", () => toggleSidebar(at.sidebar.dataset.open !== "true"));
at.veil.addEventListener("click", () => toggleSidebar(false));
at.list.addEventListener("click", () => toggleSidebar(false));
at.latest.addEventListener("click", () => {
  following = true;
  schedule();
});
at.scroller.addEventListener("scroll", () => {
  const { scrollHeight, scrollTop, clientHeight } = at.scroller;
  following = scrollHeight - scrollTop - clientHeight < NEAR_PX;
  showFollowing();
});
at.model.addEventListener("click", () => {
  const chosen = preferences();
  at.dialogModel.value = chosen.model;
  at.dialogReasoning.checked = chosen.reasoning;
  at.dialog.returnValue = "";
  at.dialog.showModal();
});
at.dialogModel.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  at.dialog.close("save");
});
at.dialog.addEventListener("close", () => {
  if (at.dialog.returnValue !== "save") return;
  keepPreferences({ model: at.dialogModel.value.trim(), reasoning: at.dialogReasoning.checked });
  schedule();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at.dialog.open) {
    if (at.sidebar.dataset.open === "true") toggleSidebar(false);
    else if (!at.stop.hidden) void session.stop();
  }
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    begin();
  }
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") session.conversation.wake();
});
addEventListener("online", () => session.conversation.wake());
addEventListener("hashchange", openFromAddress);
addEventListener("storage", showList);

openFromAddress();
