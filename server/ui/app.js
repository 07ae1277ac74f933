// @ts-check
/** The page to talk on: puts the parts together and listens to the person. */

import { signIn, signOut, signedIn } from "./chat-api.js";
import { byId } from "./chat-dom.js";
import { List } from "./chat-list.js";
import { Log } from "./chat-log.js";
import { noticeFor, statusText } from "./chat-notice.js";
import { ChatSession } from "./chat-session.js";
import {
  conversations,
  draftOf,
  entryOf,
  forgetAll,
  keepDraft,
  remember,
  tidy,
  titleFrom,
} from "./chat-store.js";
import { letGo, onFree } from "./chat-tabs.js";
import { isUlid, newUlid } from "./turnwire.js";

const NEAR_PX = 80;
/** How often a conversation that is held elsewhere is asked for. */
const PROBE_MS = 5000;
/** After another tab let go of it: it may only be loading anew, and comes first then. */
const FREE_MS = 1500;
const TOLD_MS = 4000;

const at = {
  sidebar: byId("sidebar", HTMLElement),
  veil: byId("veil", HTMLElement),
  menu: byId("menu", HTMLButtonElement),
  list: byId("list", HTMLUListElement),
  listTold: byId("list-told", HTMLElement),
  signOut: byId("sign-out", HTMLButtonElement),
  fresh: byId("new", HTMLButtonElement),
  title: byId("title", HTMLElement),
  rename: byId("rename", HTMLButtonElement),
  model: byId("model", HTMLButtonElement),
  modelName: byId("model-name", HTMLElement),
  status: byId("status", HTMLButtonElement),
  statusText: byId("status-text", HTMLElement),
  scripted: byId("scripted", HTMLElement),
  notice: byId("notice", HTMLElement),
  scroller: byId("scroller", HTMLElement),
  log: byId("log", HTMLElement),
  latest: byId("latest", HTMLButtonElement),
  composer: byId("composer", HTMLFormElement),
  input: byId("input", HTMLTextAreaElement),
  hint: byId("hint", HTMLElement),
  kept: byId("kept", HTMLElement),
  send: byId("send", HTMLButtonElement),
  stop: byId("stop", HTMLButtonElement),
  spoken: byId("spoken", HTMLElement),
  dialog: byId("model-dialog", HTMLDialogElement),
  dialogModel: byId("model-input", HTMLInputElement),
  dialogReasoning: byId("reasoning", HTMLInputElement),
  dialogCancel: byId("model-cancel", HTMLButtonElement),
};

/** @type {ChatSession} */
let session;
let shownNotice = "";
let wasRunning = false;
/** Whether the newest message is to be kept in sight. */
let following = true;

const list = new List(() => session.id, removed);
const log = new Log(at.log, {
  ask: () => void session.ask(),
  askDefault: () => {
    session.choose({ ...session.choice, model: "" });
    void session.ask();
  },
  older: () => void session.loadOlder(),
  resend: (question) => session.outgoing.resend(question),
  withdraw: (question) => {
    session.outgoing.withdraw(question);
    type(at.input.value.trim() === "" ? question.text : `${question.text}\n${at.input.value}`);
    at.input.focus();
  },
  decide: (id, decision) => void session.decide(id, decision),
  answer: (id, text) => void session.answer(id, text),
});

/** @param {string} id */
function open(id) {
  if (session?.id === id) return;
  if (session) leave();
  log.clear();
  following = true;
  wasRunning = false;
  session = new ChatSession(id, schedule);
  at.input.value = draftOf(id);
  fit();
  schedule();
  at.input.focus();
}

function leave() {
  keepDraft(session.id, at.input.value);
  session.close();
  letGo(session.id);
}

function openFromAddress() {
  const named = location.hash.slice(1);
  const id = isUlid(named) ? named : (conversations()[0]?.id ?? newUlid());
  if (id !== named) history.replaceState(null, "", `#${id}`);
  open(id);
}

function begin() {
  // An empty conversation is as new as another one.
  if (session && session.view.messages.length === 0 && session.outgoing.waiting.length === 0 && !session.away)
    at.input.focus();
  else location.hash = newUlid();
  toggleSidebar(false);
}

/** @param {string} id */
function removed(id) {
  if (id === session.id) location.hash = conversations()[0]?.id ?? newUlid();
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
  const { view, outgoing, refusal, away, loading } = session;
  const { status } = session.conversation;
  keepPlace(() =>
    log.show({ view, waiting: outgoing.waiting, refusal, status, away, model: session.choice.model, loading }),
  );
  showModel();
  showStatus();
  list.show();
  at.listTold.textContent = list.failed ? "The server's list could not be read." : "";
  at.signOut.hidden = !signedIn();
  const running = view.running !== null || view.queued.length > 0;
  const empty = at.input.value.trim() === "";
  at.stop.hidden = !running || status.phase !== "online";
  at.send.disabled = empty || away;
  at.send.hidden = !at.stop.hidden && empty;
  at.kept.hidden = !away;
  at.hint.hidden = away;
  if (wasRunning && !running)
    at.spoken.textContent = view.lastRun?.finishReason === "stopped" ? "The answer was stopped." : "The answer is finished.";
  wasRunning = running;
  if (following) at.scroller.scrollTop = at.scroller.scrollHeight;
  showFollowing();
}

/** What one reads stays where it is when older messages come in above it. @param {() => void} change */
function keepPlace(change) {
  const first = at.log.querySelector(".message");
  const before = first?.getBoundingClientRect().top ?? 0;
  change();
  if (following || !first?.isConnected) return;
  const moved = first.getBoundingClientRect().top - before;
  if (moved !== 0) at.scroller.scrollTop += moved;
}

function showModel() {
  const { model } = session;
  const known = entryOf(session.id);
  const title = known?.title || "New conversation";
  at.modelName.textContent = model || "Default model";
  at.model.title = model ? `Model: ${model}` : "Choose a model";
  at.title.textContent = title;
  at.title.title = title;
  at.rename.hidden = !known || session.view.messages.length === 0;
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
  at.status.title = text;
  if (status.phase === "waiting") setTimeout(schedule, 1000);
  const key = `${session.id} ${status.phase} ${status.code} ${status.reason}`;
  if (key === shownNotice) return; // do not take a button away from under a finger
  shownNotice = key;
  const notice = noticeFor(status, {
    retry: () => session.conversation.retry(),
    takeOver: () => session.conversation.takeOver(),
    begin: () => (location.hash = newUlid()),
    signIn: async (token) => {
      await signIn(token);
      session.conversation.retry();
      void list.look().then(schedule);
    },
  });
  at.notice.hidden = notice === null;
  at.notice.replaceChildren(...(notice ?? []));
  if (status.code === 4401) at.notice.querySelector("input")?.focus();
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

// --- writing -------------------------------------------------------------------------------------

/** @param {string} text */
function type(text) {
  at.input.value = text;
  typed();
}

function typed() {
  keepDraft(session.id, at.input.value);
  fit();
  schedule();
}

/** Make the field as high as its text. */
function fit() {
  at.input.style.height = "auto";
  at.input.style.height = `${at.input.scrollHeight}px`;
}

function submit() {
  const text = at.input.value;
  if (text.trim() === "") return;
  if (session.away) {
    at.spoken.textContent = `${statusText(session.conversation.status)}. What you wrote is kept.`;
    return;
  }
  remember(session.id, { usedAt: Date.now(), title: entryOf(session.id)?.title || titleFrom(text) });
  following = true;
  session.send(text);
  type("");
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
at.input.addEventListener("input", typed);

// --- choosing ------------------------------------------------------------------------------------

at.model.addEventListener("click", () => {
  const { model, reasoning } = session.choice;
  at.dialogModel.value = model;
  at.dialogReasoning.checked = reasoning;
  at.dialog.returnValue = "";
  at.dialog.showModal();
});
at.dialogCancel.addEventListener("click", () => at.dialog.close());
at.dialog.addEventListener("close", () => {
  if (at.dialog.returnValue !== "save") return;
  session.choose({ model: at.dialogModel.value.trim(), reasoning: at.dialogReasoning.checked });
});
at.stop.addEventListener("click", () => void session.stop());
at.fresh.addEventListener("click", begin);
at.rename.addEventListener("click", () => void list.rename(session.id).then(schedule));
at.signOut.addEventListener("click", () => {
  session.close();
  signOut();
  forgetAll();
  location.hash = newUlid();
  location.reload();
});
at.menu.addEventListener("click", () => toggleSidebar(at.sidebar.dataset.open !== "true"));
at.veil.addEventListener("click", () => toggleSidebar(false));
at.list.addEventListener("click", () => toggleSidebar(false));
at.latest.addEventListener("click", () => {
  following = true;
  schedule();
});
at.status.addEventListener("click", () => {
  at.status.dataset.told = "true";
  setTimeout(() => delete at.status.dataset.told, TOLD_MS);
  session.conversation.wake();
});
at.scroller.addEventListener("scroll", () => {
  const { scrollHeight, scrollTop, clientHeight } = at.scroller;
  following = scrollHeight - scrollTop - clientHeight < NEAR_PX;
  showFollowing();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (at.sidebar.dataset.open === "true") toggleSidebar(false);
    else if (!at.stop.hidden) void session.stop();
  }
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    begin();
  }
});

// --- the world around ----------------------------------------------------------------------------

let probeFrom = 0;

/** Come back to a conversation that is held elsewhere, if it is free and somebody looks. */
function probe() {
  if (document.visibilityState === "visible" && Date.now() >= probeFrom) session.conversation.probe();
}

setInterval(probe, PROBE_MS);
onFree((id) => {
  if (id !== session.id) return;
  probeFrom = Date.now() + FREE_MS;
  setTimeout(probe, FREE_MS);
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  session.conversation.wake();
  probe();
  void list.look().then(schedule);
});
addEventListener("online", () => session.conversation.wake());
addEventListener("offline", () => {
  session.conversation.doubt();
  schedule();
});
addEventListener("pagehide", () => letGo(session.id));
addEventListener("hashchange", openFromAddress);
addEventListener("storage", schedule);

tidy();
openFromAddress();
void list.look().then(schedule);
