// @ts-check
/** How the connection is, in words, and what a person can do about it. */

import { button, make } from "./chat-dom.js";

/** @typedef {import("./turnwire.js").Status} Status */

/**
 * @typedef {object} Remedies
 * @property {() => void} retry
 * @property {() => void} takeOver
 * @property {() => void} begin A new conversation.
 * @property {(token: string) => Promise<void>} signIn Rejects with an error for people.
 */

/** @param {Status} status */
export function statusText(status) {
  switch (status.phase) {
    case "online":
      return "Connected";
    case "connecting":
      return "Connecting…";
    case "waiting": {
      if (!navigator.onLine) return "Offline";
      const seconds = Math.ceil(((status.retryAt ?? 0) - Date.now()) / 1000);
      return seconds > 1 ? `Reconnecting in ${seconds} s` : "Reconnecting…";
    }
    case "busy":
      return "Open elsewhere";
    default:
      return "Not connected";
  }
}

/**
 * What to tell when the connection does not come back by itself; null when it does.
 *
 * @param {Status} status
 * @param {Remedies} remedies
 * @returns {Node[] | null}
 */
export function noticeFor(status, remedies) {
  const text = make("span", {}, status.reason || "The connection was lost.");
  if (status.phase === "busy")
    return [text, button("Take over", remedies.takeOver), button("Try again", remedies.retry)];
  if (status.phase !== "stopped") return null;
  switch (status.code) {
    case 4010:
      return [text, button("Continue here", remedies.takeOver)];
    case 4400:
    case 4404:
      return [text, button("New conversation", remedies.begin)];
    case 4401:
      return [text, signInForm(remedies)];
    default:
      return [text, button("Connect again", remedies.retry)];
  }
}

/** @param {Remedies} remedies */
function signInForm(remedies) {
  const input = make("input", { type: "password", "aria-label": "Access token", placeholder: "Access token" });
  input.autocomplete = "off";
  const submit = make("button", { type: "submit" }, "Sign in");
  const told = make("span", { role: "status" });
  const form = make("form", {}, input, " ", submit, " ", told);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (input.value.trim() === "" || submit.disabled) return;
    submit.disabled = true;
    told.textContent = "Signing in…";
    try {
      await remedies.signIn(input.value.trim());
    } catch (error) {
      told.textContent = error instanceof Error ? error.message : String(error);
      input.select();
    }
    submit.disabled = false;
  });
  return form;
}
